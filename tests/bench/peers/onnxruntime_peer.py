"""ONNX Runtime: its transformer optimiser's graph, in fp32 and with dynamic int8 quantisation."""

import collections

import onnx
import onnxruntime
from onnxruntime import quantization
from peer import TOGETHER, CannotError, Peer, convert, made, serve


class OnnxRuntime(Peer):
    version = f"ONNX Runtime {onnxruntime.__version__}"

    def __init__(self, path, threads):
        self._path = path
        self._threads = threads
        self._providers = []

    def _session(self, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            str(self._path), options, providers=["CPUExecutionProvider"]
        )
        self._providers = session.get_providers()
        return session

    def lanes(self, way):
        together = way == TOGETHER
        session = self._session(self._threads if together else 1)

        def lane(ids, mask):
            return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

        return [lane] * (1 if together else self._threads)

    def kernels(self):
        nodes = onnx.load(str(self._path), load_external_data=False).graph.node
        counts = collections.Counter(node.op_type for node in nodes)
        heavy = [f"{name}×{count}" for name, count in counts.most_common(8)]
        return f"{', '.join(self._providers)} (MLAS): {', '.join(heavy)}"


def quantise(source, out):
    quantization.quantize_dynamic(
        str(source), str(out), per_channel=True, weight_type=quantization.QuantType.QInt8,
        # Shape inference does not know the fused operations; their outputs are all fp32.
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )


def open_peer(model, cache, precision, threads):
    if precision == "bf16":
        raise CannotError("its CPU provider has no bf16 arithmetic")
    path = made(cache / "onnxruntime-fp32.onnx", lambda out: convert("to_onnx.py", model, out))
    if precision == "int8":
        source = path
        path = made(cache / "onnxruntime-int8.onnx", lambda out: quantise(source, out))
    return OnnxRuntime(path, threads)


if __name__ == "__main__":
    serve(open_peer)
