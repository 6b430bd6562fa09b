"""PyTorch: its encoder layers' fast path over nested tensors, and the same model compiled."""

import collections

import threadpoolctl
import torch
import transformers
from peer import TOGETHER, CannotError, Peer, captured, pad, serve
from torch import nn
from torch.backends import mkldnn


class NestedBert(nn.Module):
    """A BERT as torch.nn.TransformerEncoder: in evaluation it runs without the padding."""

    def __init__(self, bert):
        super().__init__()
        config = bert.config
        self.embeddings = bert.embeddings
        layer = nn.TransformerEncoderLayer(
            config.hidden_size, config.num_attention_heads, config.intermediate_size,
            activation="gelu", layer_norm_eps=config.layer_norm_eps, batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.num_hidden_layers, enable_nested_tensor=True
        )
        for ours, theirs in zip(self.encoder.layers, bert.encoder.layer):
            ours.load_state_dict(self._weights(theirs))

    @staticmethod
    def _weights(layer):
        attention = layer.attention
        parts = (attention.self.query, attention.self.key, attention.self.value)
        weights = {
            "self_attn.in_proj_weight": torch.cat([part.weight for part in parts]),
            "self_attn.in_proj_bias": torch.cat([part.bias for part in parts]),
        }
        for name, module in (
            ("self_attn.out_proj", attention.output.dense),
            ("norm1", attention.output.LayerNorm),
            ("linear1", layer.intermediate.dense),
            ("linear2", layer.output.dense),
            ("norm2", layer.output.LayerNorm),
        ):
            weights |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        return weights

    def forward(self, ids, mask):
        hidden = self.embeddings(ids)
        hidden_keys = None if bool(mask.all()) else mask == 0
        return self.encoder(hidden, src_key_padding_mask=hidden_keys)


class PyTorch(Peer):
    version = f"PyTorch {torch.__version__}"

    def __init__(self, model, precision, threads):
        bert = transformers.BertModel.from_pretrained(model, add_pooling_layer=False).eval()
        self._nested = NestedBert(bert).eval()
        if precision == "bf16":
            self._nested = self._nested.bfloat16()
        self._threads = threads
        self._pools = threadpoolctl.ThreadpoolController()

    def enter(self, way):
        # Its fp32 products run in BLAS, which has threads of its own.
        self._pools.limit(limits=self._threads if way == TOGETHER else 1, user_api="blas")

    def lanes(self, way):
        threads = self._threads if way == TOGETHER else 1

        def lane(ids, mask):
            torch.set_num_threads(threads)  # of the calling thread
            with torch.inference_mode():
                out = self._nested(torch.from_numpy(ids), torch.from_numpy(mask))
            return out.float().numpy()

        return [lane] * (1 if way == TOGETHER else self._threads)

    def kernels(self):
        lines = []
        with captured(lines), mkldnn.verbose(mkldnn.VERBOSE_ON):
            self.lanes(TOGETHER)[0](*pad([[101, *range(2000, 2062), 102]]))
        counts = collections.Counter()
        for line in lines:
            if ",exec,cpu," in line:
                kind, kernel = line.split(",exec,cpu,")[1].split(",")[:2]
                counts[f"{kind} {kernel}"] += 1
        used = ", ".join(f"{name}×{n}" for name, n in counts.most_common(4)) or "none of oneDNN"
        return f"{torch.backends.cpu.get_cpu_capability()}: {used}"


def open_peer(model, cache, precision, threads):
    if precision == "int8":
        raise CannotError("no int8 fast path for its encoder layers")
    return PyTorch(model, precision, threads)


if __name__ == "__main__":
    serve(open_peer)
