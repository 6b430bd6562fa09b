"""OpenVINO: fp32, bf16, and int8 with the rest in bf16 where the CPU has it."""

import collections
import pathlib

import openvino
from peer import TOGETHER, CannotError, Peer, convert, made, serve

TEXT_IDS = pathlib.Path(__file__).parents[1] / "text_ids.txt"


class OpenVino(Peer):
    version = f"OpenVINO {openvino.__version__}"

    def __init__(self, path, hint, threads):
        self._model = openvino.Core().read_model(path)
        self._hint = hint
        self._threads = threads
        self._compiled = None

    def lanes(self, way):
        streams = 1 if way == TOGETHER else self._threads
        self._compiled = openvino.Core().compile_model(
            self._model, "CPU",
            {
                "INFERENCE_PRECISION_HINT": self._hint,
                "NUM_STREAMS": streams,
                "INFERENCE_NUM_THREADS": self._threads,
            },
        )
        return [self._lane(self._compiled.create_infer_request()) for _ in range(streams)]

    @staticmethod
    def _lane(request):
        def lane(ids, mask):
            return request.infer([ids, mask], share_inputs=True, share_outputs=True)[0]

        return lane

    def kernels(self):
        counts = collections.Counter()
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            about = node.get_rt_info()
            kind, kernel = (about[key].astype(str) for key in ("layerType", "primitiveType"))
            if kind in ("FullyConnected", "MatMul", "ScaledDotProductAttention", "Subgraph", "MVN"):
                counts[f"{kind} {kernel}"] += 1
        hint = self._compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        return f"hint {hint}: " + ", ".join(f"{name}×{n}" for name, n in counts.most_common())


def open_peer(model, cache, precision, threads):
    able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if precision == "bf16" and "BF16" not in able:
        raise CannotError("its CPU plugin offers no BF16 here")
    weights = "int8" if precision == "int8" else "fp32"

    def make(out):
        out.mkdir()
        convert("to_openvino.py", model, out, weights, TEXT_IDS)

    folder = made(cache / f"openvino-{weights}", make)
    hint = "bf16" if precision != "fp32" and "BF16" in able else "f32"
    return OpenVino(folder / "model.xml", hint, threads)


if __name__ == "__main__":
    serve(open_peer)
