"""The tiny models of the goldens: shapes, configurations, weights, and how each is saved.

Weights are random with a fixed seed, and shaped so that mistakes show (see `randomize`).
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from transformers import BertConfig, BertForPreTraining, BertModel

import reference_models as ref


@dataclass
class Golden:
    """One golden folder. `folders` are the ways in which the one set of weights is saved."""

    name: str
    module: nn.Module
    run: Callable  # see reference_models
    config: dict
    input: str  # "ids" or "vectors"
    heads: int
    width: int  # of input vectors or word embeddings
    seed: int
    vocab: int = 0
    types: int = 0
    positions: bool = False  # position_ids may be sent
    full: bool = True  # all mask cases, or only a few
    folders: dict = field(default_factory=dict)  # folder -> {tensor name: tensor}
    configs: dict = field(default_factory=dict)  # folder -> config.json, where it is not `config`
    files: dict = field(default_factory=dict)  # path in every folder -> JSON value
    pooling: tuple = ()  # what a sentence-transformers folder says: (kind, normalize)


# ---- Weights -------------------------------------------------------------------------------------


def randomize(module, seed):
    """Fills every parameter, in the order of its name, from one generator.

    A golden must move by far more than a test's tolerance (1e-5) when the maths is wrong:
      - queries and keys are large, so that attention is far from even (scale, masks, head order);
      - the first FFN matrix is large, so that activations reach where GELU's forms differ;
      - the second is small, so that residual sums of pre-norm blocks stay near 1;
      - attention's output is small, so that a row with a small input keeps a small variance up to
        the first norm, where the epsilon then shows;
      - every bias and norm is random, so that none can be left out or swapped.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(_shaped(name, noise))


def _shaped(name, noise):
    if re.search(r"(position|token_type)_embeddings", name):
        return noise * 0.01
    if re.search(r"embedding", name) and noise.dim() == 2:
        # Every other token is small: rows of small variance.
        small = torch.arange(noise.shape[0]) % 2 == 0
        return noise * torch.where(small, 0.02, 1.0)[:, None]
    if re.search(r"norm", name, re.IGNORECASE) or re.search(r"output_net\.1", name):
        return 0.5 + 0.1 * noise if name.endswith("weight") else 0.1 * noise
    if noise.dim() == 1:
        return noise * (0.01 if re.search(_ATTENTION_OUT, name) else 0.1)
    return noise * _gain(name) / noise.shape[1] ** 0.5


_ATTENTION_OUT = r"o_proj|fc_out|self_attn\.fc\.|out_proj|attention\.output\.dense"


def _gain(name):
    if re.search(_ATTENTION_OUT, name):
        return 0.1
    if re.search(r"qkv_proj|in_proj|query|queries|key", name):
        return 3.0
    if re.search(r"linear_net\.0|feed_forward\.0|linear1|intermediate", name):
        return 5.0
    if re.search(r"linear_net\.3|feed_forward\.2|linear2|layer\.\d+\.output\.dense", name):
        return 0.4
    return 1.0


def _state(module):
    """The state_dict as the user's `save_file(module.state_dict(), …)` writes it."""
    return {
        name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()
    }


# ---- A, B, C -------------------------------------------------------------------------------------


def fused_qkv_attention(name, seed, input_dim, embed_dim, heads):
    module = ref.FusedQkvAttention(input_dim, embed_dim, heads)
    randomize(module, seed)
    config = {
        "model_type": "fused_qkv_attention",
        "input_dim": input_dim,
        "embed_dim": embed_dim,
        "num_heads": heads,
    }
    return Golden(
        name,
        module,
        ref.run_fused_qkv_attention,
        config,
        "vectors",
        heads,
        input_dim,
        seed,
        folders={"model": _state(module)},
    )


def fused_qkv_stack(name, seed, embed_dim, heads, layers, ffn):
    """The blocks alone: input_dim = embed_dim, no positions (no max_len)."""
    module = ref.FusedQkvStack(layers, embed_dim, heads, ffn)
    randomize(module, seed)
    config = {
        "model_type": "fused_qkv_attention",
        "input_dim": embed_dim,
        "embed_dim": embed_dim,
        "num_heads": heads,
        "num_layers": layers,
        "ffn_dim": ffn,
    }
    state = _state(module)
    return Golden(
        name,
        module,
        ref.run_fused_qkv_stack,
        config,
        "vectors",
        heads,
        embed_dim,
        seed,
        full=False,
        folders={
            "model": state,
            "model_prefixed": _prefixed(state, "transformer."),
        },
    )


def fused_qkv_predictor(name, seed, input_dim, embed_dim, heads, layers, ffn, classes):
    """With input_net, positions and output_net.

    `model_tutorial` holds the names of the class as it is usually written, where only the blocks
    lie under `transformer.`; `model` has no prefix at all.
    """
    max_len = 64
    module = ref.FusedQkvPredictor(input_dim, embed_dim, heads, layers, ffn, max_len, classes)
    randomize(module, seed)
    config = {
        "model_type": "fused_qkv_attention",
        "input_dim": input_dim,
        "embed_dim": embed_dim,
        "num_heads": heads,
        "num_layers": layers,
        "ffn_dim": ffn,
        "max_len": max_len,
        "num_classes": classes,
        "input_net": True,
        "output_net": True,
    }
    tutorial = _state(module)
    plain = {key.removeprefix("transformer."): value for key, value in tutorial.items()}
    return Golden(
        name,
        module,
        ref.run_fused_qkv_predictor,
        config,
        "vectors",
        heads,
        input_dim,
        seed,
        positions=True,
        folders={
            "model": plain,
            "model_tutorial": tutorial,
            "model_prefixed": _prefixed(plain, "transformer."),
            "model_wrapped": _prefixed(tutorial, "model."),
        },
    )


def shared_projection(name, seed, embed_size, heads, expansion, layers, full=True):
    module = ref.SharedProjectionEncoder(embed_size, heads, expansion, layers)
    randomize(module, seed)
    config = {
        "model_type": "shared_projection_encoder",
        "embed_size": embed_size,
        "heads": heads,
        "forward_expansion": expansion,
        "num_layers": layers,
    }
    return Golden(
        name,
        module,
        ref.run_shared_projection,
        config,
        "vectors",
        heads,
        embed_size,
        seed,
        full=full,
        folders={
            "model": _state(module),
            "model_prefixed": _prefixed(_state(module), "encoder."),
        },
    )


def token_encoder(name, seed, vocab, hidden, heads, layers, full=True):
    module = ref.TokenEncoder(vocab, hidden, heads, layers)
    randomize(module, seed)
    config = {
        "model_type": "token_encoder",
        "input_size": vocab,
        "hidden_size": hidden,
        "num_heads": heads,
        "num_layers": layers,
    }
    return Golden(
        name,
        module,
        ref.run_token_encoder,
        config,
        "ids",
        heads,
        hidden,
        seed,
        vocab=vocab,
        full=full,
        folders={
            "model": _state(module),
            "model_prefixed": _prefixed(_state(module), "model."),
        },
    )


def _prefixed(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}


# ---- torch.nn.TransformerEncoder -----------------------------------------------------------------


def torch_encoder(seed, width, heads, ffn, layers, norm_first, activation, final_norm, full=False):
    eps = 1e-5
    layer = nn.TransformerEncoderLayer(
        width,
        heads,
        ffn,
        dropout=0.0,
        activation=activation,
        layer_norm_eps=eps,
        batch_first=True,
        norm_first=norm_first,
    )
    norm = nn.LayerNorm(width, eps=eps) if final_norm else None
    module = nn.TransformerEncoder(layer, layers, norm=norm, enable_nested_tensor=False)
    randomize(module, seed)
    config = {
        "model_type": "torch_transformer_encoder",
        "d_model": width,
        "nhead": heads,
        "num_layers": layers,
        "dim_feedforward": ffn,
        "activation": activation,
        "norm_first": norm_first,
        "layer_norm_eps": eps,
    }
    name = "_".join(
        ["torch", "pre" if norm_first else "post", activation]
        + (["final_norm"] if final_norm else [])
    )
    folders = {"model": _state(module)}
    if full:
        folders["model_prefixed"] = _prefixed(_state(module), "encoder.")
    return Golden(
        name,
        module,
        ref.run_torch_encoder,
        config,
        "vectors",
        heads,
        width,
        seed,
        full=full,
        folders=folders,
    )


# ---- BERT ----------------------------------------------------------------------------------------


def bert(
    name,
    seed,
    hidden=24,
    heads=3,
    ffn=40,
    layers=2,
    vocab=50,
    types=2,
    act="gelu",
    eps=1e-12,
    pooler=True,
    full=True,
):
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=ffn,
        hidden_act=act,
        max_position_embeddings=64,
        type_vocab_size=types,
        layer_norm_eps=eps,
        attn_implementation="eager",
    )
    module = BertModel(config, add_pooling_layer=pooler)
    randomize(module, seed)
    saved = json.loads(config.to_json_string())
    saved["architectures"] = ["BertModel"]
    saved["dtype"] = "float32"
    return Golden(
        name,
        module,
        ref.run_bert,
        saved,
        "ids",
        heads,
        hidden,
        seed,
        vocab=vocab,
        types=types,
        positions=True,
        full=full,
        folders={"model": _state(module)},
    )


def bert_saved_four_ways(name, seed):
    """One set of weights as BertModel and as BertForPreTraining saves it, each with today's names
    of the norms and with those of the first checkpoints; the older files also carry the positions.
    """
    golden = bert(name, seed)
    plain = golden.folders["model"]
    pretraining = BertForPreTraining(BertConfig.from_dict(golden.config))
    randomize(pretraining, seed)
    heads = {
        key: value
        for key, value in _state(pretraining).items()
        if key.startswith("cls.") and not key.startswith("cls.predictions.decoder")
    }
    prefixed = _prefixed(plain, "bert.") | heads
    positions = torch.arange(64).unsqueeze(0)
    golden.folders |= {
        "model_prefixed": prefixed,
        "model_old_names": _old_names(plain) | {"embeddings.position_ids": positions},
        "model_prefixed_old_names": _old_names(prefixed)
        | {"bert.embeddings.position_ids": positions},
    }
    for folder, architecture in (
        ("model_prefixed", "BertForPreTraining"),
        ("model_prefixed_old_names", "BertForMaskedLM"),
    ):
        golden.configs[folder] = golden.config | {"architectures": [architecture]}
    golden.configs["model_old_names"] = _old_config(golden.config)
    return golden


def _old_names(state):
    return {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for key, value in state.items()
    }


def _old_config(config):
    """The keys that transformers 4.8 wrote."""
    kept = (
        "attention_probs_dropout_prob",
        "hidden_act",
        "hidden_dropout_prob",
        "hidden_size",
        "initializer_range",
        "intermediate_size",
        "layer_norm_eps",
        "max_position_embeddings",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "pad_token_id",
        "type_vocab_size",
        "use_cache",
        "vocab_size",
    )
    return {
        "_name_or_path": "example/tiny-bert",
        "architectures": ["BertModel"],
        "gradient_checkpointing": False,
        "position_embedding_type": "absolute",
        "transformers_version": "4.8.2",
    } | {key: config[key] for key in kept}


def bert_in_four_types(name, seed):
    """One set of weights that float16 and bfloat16 both hold exactly, saved in four data types."""
    golden = bert(name, seed, full=False)
    with torch.no_grad():
        for parameter in golden.module.parameters():
            rounded = parameter.bfloat16().float()
            # Below 2^-7, bfloat16 keeps bits that float16's subnormals drop.
            parameter.copy_(torch.where(rounded.abs() < 2.0**-7, 0.0, rounded))
    state = _state(golden.module)
    golden.folders = {
        "model": state,
        "model_float64": {key: value.double() for key, value in state.items()},
        "model_float16": {key: value.half() for key, value in state.items()},
        "model_bfloat16": {key: value.bfloat16() for key, value in state.items()},
    }
    for key, value in state.items():
        assert torch.equal(value.half().float(), value) and torch.equal(
            value.bfloat16().float(), value
        ), key
    return golden


def sentence_transformer(name, seed, kind, normalize):
    """A BERT folder with the files that sentence-transformers writes beside it."""
    golden = bert(name, seed, full=False)
    golden.pooling = (kind, normalize)
    types = ["Transformer", "Pooling"] + (["Normalize"] if normalize else [])
    paths = ["", "1_Pooling", "2_Normalize"]
    golden.files = {
        "modules.json": [
            {
                "idx": i,
                "name": str(i),
                "path": paths[i],
                "type": f"sentence_transformers.models.{t}",
            }
            for i, t in enumerate(types)
        ],
        "sentence_bert_config.json": {"max_seq_length": 48, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "__version__": {
                "sentence_transformers": "2.0.0",
                "transformers": "4.6.1",
                "pytorch": "1.8.1",
            }
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": golden.width,
            "pooling_mode_cls_token": kind == "cls",
            "pooling_mode_mean_tokens": kind == "mean",
            "pooling_mode_max_tokens": kind == "max",
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    }
    return golden


# ---- All -----------------------------------------------------------------------------------------


def all_goldens():
    """Name by name; two seeds and two sets of shapes for the founding models."""
    yield fused_qkv_attention("fused_qkv_attention", 11, input_dim=10, embed_dim=24, heads=3)
    yield fused_qkv_attention("fused_qkv_attention_narrow", 12, input_dim=19, embed_dim=16, heads=2)
    yield fused_qkv_stack("fused_qkv_stack", 13, embed_dim=16, heads=2, layers=2, ffn=24)
    yield fused_qkv_predictor(
        "fused_qkv_predictor", 14, input_dim=7, embed_dim=24, heads=4, layers=2, ffn=36, classes=5
    )
    yield shared_projection("shared_projection", 21, embed_size=20, heads=5, expansion=2, layers=2)
    yield shared_projection(
        "shared_projection_deep", 22, embed_size=24, heads=2, expansion=4, layers=3, full=False
    )
    yield token_encoder("token_encoder", 31, vocab=29, hidden=18, heads=3, layers=2)
    yield token_encoder(
        "token_encoder_deep", 32, vocab=37, hidden=16, heads=2, layers=3, full=False
    )
    for i, (norm_first, activation, final_norm) in enumerate(
        (n, a, f) for n in (False, True) for a in ("relu", "gelu") for f in (False, True)
    ):
        full = (norm_first, activation, final_norm) in (
            (False, "relu", False),
            (True, "gelu", True),
        )
        yield torch_encoder(
            40 + i,
            width=20 if full else 16,
            heads=4 if full else 2,
            ffn=28,
            layers=2,
            norm_first=norm_first,
            activation=activation,
            final_norm=final_norm,
            full=full,
        )
    yield bert_saved_four_ways("bert", 51)
    yield bert("bert_deep", 52, hidden=30, heads=5, ffn=52, layers=3, types=1, eps=1e-5, full=False)
    yield bert("bert_no_pooler", 53, pooler=False, full=False)
    yield bert_in_four_types("bert_data_types", 54)
    for i, act in enumerate(("gelu_new", "gelu_pytorch_tanh", "relu", "silu")):
        yield bert(f"bert_{act}", 60 + i, hidden=16, heads=2, ffn=24, act=act, full=False)
    yield sentence_transformer("sentence_bert_mean", 71, "mean", normalize=True)
    yield sentence_transformer("sentence_bert_cls", 72, "cls", normalize=False)
