"""Goal: the ghz recipe of deploy/load calls a server by its reflection, and is answered.

Method: ghz is built as deploy/load/README.md says, then run.sh runs it for a second against a real
server. Its bundled model takes vectors, so the recipe's tokens are replaced by as many of those.
Exit code 77 (skipped) where the Go module cannot be downloaded.

usage: ghz_test.py DIR ENCODERD    DIR keeps ghz and the modules that it is built from
"""

import base64
import json
import os
import pathlib
import re
import subprocess
import sys

from running_server import RunningServer

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LOAD = SOURCE / "deploy/load"
MODEL_WIDTH = 10
SKIPPED = 77


def install_ghz(folder):
    """Returns the program's path."""
    folder.mkdir(parents=True, exist_ok=True)
    module, package, version = re.search(r"go install (\S+/ghz)(/\S+)(@v\S+)",
                                         (LOAD / "README.md").read_text()).groups()
    # -modcacherw: so that the build tree can be deleted.
    environment = os.environ | {"GOBIN": str(folder), "GOMODCACHE": str(folder / "modules"),
                                "GOFLAGS": "-modcacherw"}
    if subprocess.run(["go", "mod", "download", module + version], cwd=folder, env=environment,
                      timeout=300).returncode != 0:
        print(f"SKIPPED: the Go module {module}{version} cannot be downloaded")
        sys.exit(SKIPPED)
    subprocess.run(["go", "install", module + package + version], cwd=folder, env=environment,
                   check=True, timeout=600)
    return folder / "ghz"


def with_vectors(request):
    """The request, as JSON, with an `inputs_embeds` of zeros for each `input_ids`."""
    sequences = []
    for sequence in request["sequences"]:
        tokens = len(sequence["input_ids"])
        zeros = base64.b64encode(bytes(4 * tokens * MODEL_WIDTH)).decode()
        sequences.append({"inputs_embeds": {
            "dtype": "DATA_TYPE_FP32", "shape": [tokens, MODEL_WIDTH], "data": zeros}})
    return request | {"sequences": sequences}


def main(folder, encoderd):
    ghz = install_ghz(pathlib.Path(folder).resolve())
    recipe = json.loads((LOAD / "ghz.json").read_text())
    with RunningServer(encoderd, SOURCE / "deploy/models/reverse", "--workers=1") as server:
        done = subprocess.run(
            [LOAD / "run.sh", "ghz", "--duration=1s", "--format=json",
             f"--data={json.dumps(with_vectors(recipe['data']))}"],
            env=os.environ | {"GHZ": str(ghz), "ADDRESS": server.address},
            capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    assert report["options"]["concurrency"] == recipe["concurrency"], report["options"]
    assert set(report["statusCodeDistribution"]) == {"OK"}, report["statusCodeDistribution"]


if __name__ == "__main__":
    main(*sys.argv[1:])
