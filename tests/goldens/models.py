"""All goldens, and the models of the founding projects and of torch.nn.TransformerEncoder."""

from torch import nn

import bert_models
import deberta_models
import head_models
import jina_models
import reference_models as ref
import rotary_models
import transformers_models
from golden_model import Golden, prefixed, randomize, state_of


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
        run=ref.run_fused_qkv_attention,
        config=config,
        input="vectors",
        heads=heads,
        width=input_dim,
        seed=seed,
        folders={"model": state_of(module)},
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
    state = state_of(module)
    return Golden(
        name,
        module,
        run=ref.run_fused_qkv_stack,
        config=config,
        input="vectors",
        heads=heads,
        width=embed_dim,
        seed=seed,
        full=False,
        folders={"model": state, "model_prefixed": prefixed(state, "transformer.")},
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
    tutorial = state_of(module)
    plain = {key.removeprefix("transformer."): value for key, value in tutorial.items()}
    return Golden(
        name,
        module,
        run=ref.run_fused_qkv_predictor,
        config=config,
        input="vectors",
        heads=heads,
        width=input_dim,
        seed=seed,
        positions=64,
        folders={
            "model": plain,
            "model_tutorial": tutorial,
            "model_prefixed": prefixed(plain, "transformer."),
            "model_wrapped": prefixed(tutorial, "model."),
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
        run=ref.run_shared_projection,
        config=config,
        input="vectors",
        heads=heads,
        width=embed_size,
        seed=seed,
        full=full,
        folders={
            "model": state_of(module),
            "model_prefixed": prefixed(state_of(module), "encoder."),
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
        run=ref.run_token_encoder,
        config=config,
        input="ids",
        heads=heads,
        width=hidden,
        seed=seed,
        vocab=vocab,
        full=full,
        folders={"model": state_of(module), "model_prefixed": prefixed(state_of(module), "model.")},
    )


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
    folders = {"model": state_of(module)}
    if full:
        folders["model_prefixed"] = prefixed(state_of(module), "encoder.")
    return Golden(
        name,
        module,
        run=ref.run_torch_encoder,
        config=config,
        input="vectors",
        heads=heads,
        width=width,
        seed=seed,
        full=full,
        folders=folders,
    )


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
    yield bert_models.bert_saved_four_ways("bert", 51)
    yield bert_models.bert(
        "bert_deep", 52, hidden=30, heads=5, ffn=52, layers=3, types=1, eps=1e-5, full=False
    )
    yield bert_models.bert("bert_no_pooler", 53, pooler=False, full=False)
    yield bert_models.bert_in_four_types("bert_data_types", 54)
    for i, act in enumerate(("gelu_new", "gelu_pytorch_tanh", "relu", "silu")):
        yield bert_models.bert(
            f"bert_{act}", 60 + i, hidden=16, heads=2, ffn=24, act=act, full=False
        )
    yield bert_models.sentence_transformer(
        "sentence_bert_mean", 71, "mean", normalize=True, layers=1
    )
    yield bert_models.sentence_transformer(
        "sentence_bert_cls", 72, "cls", normalize=False, layers=1
    )
    yield bert_models.sentence_transformer(
        "sentence_bert_dense",
        73,
        "mean",
        normalize=True,
        dense=((20, nn.Tanh), (10, nn.Identity)),
        layers=1,
        vocab=30,
    )
    yield bert_models.sentence_transformer(
        "sentence_bert_dense_max", 74, "max", normalize=False, dense=((30, nn.GELU),), layers=1
    )
    yield from transformers_models.all_goldens()
    yield from rotary_models.all_goldens()
    yield from jina_models.all_goldens()
    yield from head_models.all_goldens()
    yield from deberta_models.all_goldens()
