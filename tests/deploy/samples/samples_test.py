"""The samples of deploy/samples run, and print what the server answered.

Method: one sample per run of this script, against a fake server in this process; first with an
answer, then with a refusal. Exit code 77 (skipped) where its toolchain is not at hand.

usage: samples_test.py python | cpp PROGRAM | go
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import grpc
import numpy as np
from google.rpc import error_details_pb2

from encoderd_client import _messages
from fake_server import FakeServer, Refusal

SOURCE = pathlib.Path(__file__).resolve().parents[3]
SKIPPED = 77


def build_go(folder: pathlib.Path) -> list[str]:
    """Follows the steps of the sample's own comment on a copy."""
    for tool in ("go", "protoc"):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed")
    sample = folder / "deploy" / "samples" / "go"
    shutil.copytree(SOURCE / "deploy" / "samples" / "go", sample,
                    ignore=shutil.ignore_patterns("encoderpb"))
    shutil.copytree(SOURCE / "proto", folder / "proto")
    if subprocess.run(["go", "mod", "download"], cwd=sample, timeout=240).returncode != 0:
        skip("its Go modules cannot be downloaded")
    subprocess.run(["go", "generate"], cwd=sample, check=True, timeout=240)
    subprocess.run(["go", "build", "-o", "sample", "."], cwd=sample, check=True, timeout=480)
    return [str(sample / "sample")]


def skip(reason: str) -> None:
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)


def answer(request, context):
    ids = request.sequences[0].input_ids
    assert len(request.sequences) == 1 and len(request.outputs.pooled) == 1
    values = np.array([[sum(ids), -0.5, 0.125, 1e-3, 9]], "<f4")
    return _messages.EncodeResponse(
        token_offsets=[0, len(ids)],
        pooled=[_messages.Tensor(dtype=1, shape=values.shape, data=values.tobytes())])


def refuse(request, context):
    fault = {"field": "sequences[0].input_ids[1]", "description": "0..9, got 7592"}
    raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, ": ".join(fault.values()), details=[
        error_details_pb2.BadRequest(field_violations=[fault])])


def run(command: list[str], address: str) -> subprocess.CompletedProcess:
    return subprocess.run([*command, address, "101", "7592", "102"], capture_output=True,
                          text=True, timeout=60)


def check(command: list[str]) -> None:
    server = FakeServer()
    server.get_model = lambda request, context: _messages.GetModelResponse(
        name="tiny", num_layers=2, hidden_size=5)
    try:
        server.encode = answer
        done = run(command, server.address)
        assert done.returncode == 0, done
        assert done.stdout == ("model tiny: 2 layers, hidden size 5\n"
                               "3 tokens -> 5 numbers: 7795.000000 -0.500000 0.125000 0.001000\n"
                               ), done
        server.encode = refuse
        done = run(command, server.address)
        assert done.returncode == 1 and "0..9, got 7592" in done.stderr, done
    finally:
        server.stop()


def main(language: str, *arguments: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if language == "python":
            check([sys.executable, str(SOURCE / "deploy/samples/python/encode.py")])
        elif language == "cpp":
            check(list(arguments))
        elif language == "go":
            check(build_go(pathlib.Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
