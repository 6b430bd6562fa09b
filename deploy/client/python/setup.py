"""Compiles encoder.proto into a descriptor set beside the package's modules.

A descriptor set rather than generated Python: generated code is bound to the protobuf release of
the protoc that wrote it, a descriptor set loads in any. Everything made here goes to a scratch
folder, so the source folder may be read-only.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTO = "encoderd/v1/encoder.proto"
SCRATCH = tempfile.mkdtemp(prefix="encoderd-client-")


def proto_root() -> pathlib.Path:
    """The folder that holds PROTO: $ENCODERD_PROTO_DIR, ./proto, or the repository's own."""
    candidates = [os.environ.get("ENCODERD_PROTO_DIR"), HERE / "proto", HERE / "../../../proto"]
    for root in candidates:
        if root and (pathlib.Path(root) / PROTO).is_file():
            return pathlib.Path(root).resolve()
    sys.exit(f"{PROTO} not found. Outside the repository, copy its proto/ folder to {HERE}/proto "
             "or set ENCODERD_PROTO_DIR to it.")


def compile_proto(output: pathlib.Path) -> None:
    """Tries the protoc of grpcio-tools, then the one on the PATH (3.15 or newer is needed)."""
    arguments = ["-I", str(proto_root()), f"--descriptor_set_out={output}", PROTO]
    failures = []
    for command in ([sys.executable, "-m", "grpc_tools.protoc"], [shutil.which("protoc")]):
        if command[0] is None:
            continue
        run = subprocess.run([*command, *arguments], capture_output=True, text=True)
        if run.returncode == 0:
            return
        failures.append(f"{' '.join(command)}: {run.stderr.strip()}")
    sys.exit("no protoc 3.15 or newer could compile encoder.proto: install grpcio-tools or "
             "protobuf-compiler.\n" + "\n".join(failures))


class BuildWithDescriptors(build_py):
    def run(self) -> None:
        super().run()
        # An editable install imports from the source folder.
        base = HERE if self.editable_mode else pathlib.Path(self.build_lib)
        output = base / "encoderd_client" / "encoder.binpb"
        output.parent.mkdir(parents=True, exist_ok=True)
        compile_proto(output)


try:
    setup(
        cmdclass={"build_py": BuildWithDescriptors},
        options={"build": {"build_base": SCRATCH}, "egg_info": {"egg_base": SCRATCH}},
    )
finally:
    shutil.rmtree(SCRATCH, ignore_errors=True)
