"""CTranslate2: its encoder, in fp32 and int8."""

import os
import re

import numpy as np
from peer import TOGETHER, CannotError, Peer, captured, convert, made, serve

os.environ["CT2_VERBOSE"] = "1"  # to hear which back ends it chooses
import ctranslate2  # pylint: disable=wrong-import-position


class CTranslate2(Peer):
    version = f"CTranslate2 {ctranslate2.__version__}"

    def __init__(self, path, compute_type, threads):
        self._path = path
        self._compute_type = compute_type
        self._threads = threads
        self._encoder = None
        self._told = []

    def lanes(self, way):
        lanes = 1 if way == TOGETHER else self._threads
        with captured(self._told):
            encoder = ctranslate2.Encoder(
                str(self._path), device="cpu", compute_type=self._compute_type,
                inter_threads=lanes, intra_threads=self._threads // lanes,
            )
        self._encoder = encoder

        def lane(ids, mask):
            lengths = mask.sum(axis=1).astype(np.int32)
            out = encoder.forward_batch(
                ctranslate2.StorageView.from_array(ids.astype(np.int32)),
                lengths=ctranslate2.StorageView.from_array(lengths),
            )
            return np.asarray(out.last_hidden_state)

        return [lane] * lanes

    def kernels(self):
        told = re.findall(r"- (Selected ISA|\w*GEMM\w* backend): (.*)", "\n".join(self._told))
        chosen = ", ".join(f"{what} {which}" for what, which in told)
        return f"compute type {self._encoder.compute_type}: {chosen}"


def open_peer(model, cache, precision, threads):
    compute_type = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}[precision]
    if compute_type not in (able := ctranslate2.get_supported_compute_types("cpu")):
        raise CannotError(f"its CPU back ends have only {', '.join(sorted(able))}")
    path = made(cache / "ctranslate2", lambda out: convert("to_ctranslate2.py", model, out))
    return CTranslate2(path, compute_type, threads)


if __name__ == "__main__":
    serve(open_peer)
