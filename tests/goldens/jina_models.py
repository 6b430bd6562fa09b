"""The goldens of JinaBERT v2, whose code is not part of a library: BertModel with what its papers
describe, and with the names that its files have (Günther et al. 2023; Press et al. 2022)."""

import math

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from transformers.models.bert.modeling_bert import BertLayer

import reference_models as ref
from transformers_models import NARROW, golden_of


def slopes_of(heads):
    """Of ALiBi: the geometric series for a power of two of heads; those beyond it take every other
    slope of the next."""

    def series(n):
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]

    power = 2 ** math.floor(math.log2(heads))
    return torch.tensor(series(power) + series(2 * power)[::2][: heads - power])


class NoPositions(nn.Module):
    def forward(self, ids):
        return 0.0


class GatedFfn(nn.Module):
    """LayerNorm(x + wo(act(first half of gated_layers(x)) · second half))."""

    def __init__(self, config, act):
        super().__init__()
        self.act = act
        self.gated_layers = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x):
        gate, other = self.gated_layers(x).chunk(2, dim=-1)
        return self.layernorm(x + self.wo(self.act(gate) * other))


class JinaLayer(BertLayer):
    def __init__(self, config, act):
        super().__init__(config)
        del self.intermediate, self.output
        self.mlp = GatedFfn(config, act)

    def feed_forward_chunk(self, x):
        return self.mlp(x)


def run_jina_bert(module, inputs, visible):
    position = torch.arange(visible.shape[-1])
    distance = (position[:, None] - position[None, :]).abs()
    bias = -module.base_model.slopes.double()[:, None, None] * distance
    dtype = next(module.parameters()).dtype
    return ref.run_transformers(module, inputs, visible, bias=bias.to(dtype))


def jina_bert(name, seed, module, feed_forward_type):
    encoder, config = module.base_model, module.config
    encoder.register_buffer("slopes", slopes_of(config.num_attention_heads), persistent=False)
    encoder.embeddings.position_embeddings = NoPositions()
    act = {"original": None, "reglu": nn.ReLU(), "geglu": nn.GELU()}[feed_forward_type]
    if act is not None:
        encoder.encoder.layer = nn.ModuleList(
            JinaLayer(config, act) for _ in range(config.num_hidden_layers)
        )
    golden = golden_of(name, seed, module)
    golden.positions = 0
    golden.run = run_jina_bert
    golden.config |= {
        "architectures": [type(module).__name__.replace("Bert", "JinaBert")],
        "auto_map": {"AutoModel": "example/jina-bert-implementation--modeling_bert.JinaBertModel"},
        "attn_implementation": None,
        "emb_pooler": "mean",
        "feed_forward_type": feed_forward_type,
        "model_max_length": config.max_position_embeddings,
        "position_embedding_type": "alibi",
    }
    return golden


def all_goldens():
    config = BertConfig(**(NARROW | {"hidden_size": 18, "num_attention_heads": 3}))
    yield jina_bert("jina_bert", 181, BertModel(config), "geglu")
    config = BertConfig(**NARROW, layer_norm_eps=1e-5)
    yield jina_bert("jina_bert_reglu", 182, BertModel(config, add_pooling_layer=False), "reglu")
    config = BertConfig(**(NARROW | {"num_hidden_layers": 1}))
    yield jina_bert("jina_bert_masked_lm", 183, BertForMaskedLM(config), "original")
    yield jina_bert("jina_bert_tokens", 184, BertForTokenClassification(config), "geglu")
    yield jina_bert("jina_bert_sequences", 185, BertForSequenceClassification(config), "geglu")
