"""The BERT goldens, with the files that Hugging Face and sentence-transformers write."""

import torch
from torch import nn
from transformers import BertConfig, BertForPreTraining, BertModel

from golden_model import prefixed, randomize, state_of
from transformers_models import golden_of


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
    return golden_of(name, seed, module, full=full, edges=False)


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
        for key, value in state_of(pretraining).items()
        if key.startswith("cls.") and not key.startswith("cls.predictions.decoder")
    }
    pretrained = prefixed(plain, "bert.") | heads
    positions = torch.arange(64).unsqueeze(0)
    golden.folders |= {
        "model_prefixed": pretrained,
        "model_old_names": _old_names(plain) | {"embeddings.position_ids": positions},
        "model_prefixed_old_names": _old_names(pretrained)
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
    golden = bert(name, seed, hidden=16, heads=2, ffn=24, layers=1, vocab=20, full=False)
    with torch.no_grad():
        for parameter in golden.module.parameters():
            rounded = parameter.bfloat16().float()
            # Below 2^-7, bfloat16 keeps bits that float16's subnormals drop.
            parameter.copy_(torch.where(rounded.abs() < 2.0**-7, 0.0, rounded))
    state = state_of(golden.module)
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


def sentence_transformer(name, seed, kind, normalize, dense=(), **shape):
    """A BERT folder with the files that sentence-transformers writes beside it. `dense` lists the
    Dense modules: (width, PyTorch's class of the activation)."""
    golden = bert(name, seed, full=False, **shape)
    golden.pooling = (kind, normalize)
    types = ["Transformer", "Pooling"] + ["Dense"] * len(dense)
    types += ["Normalize"] if normalize else []
    paths = [""] + [f"{i}_{types[i]}" for i in range(1, len(types))]
    if dense:
        golden.dense = _dense_modules(golden, seed, dense)
        for i, (linear, activation) in enumerate(zip(golden.dense[::2], golden.dense[1::2])):
            golden.weights[f"{i + 2}_Dense/model.safetensors"] = prefixed(
                state_of(linear), "linear."
            )
            golden.files[f"{i + 2}_Dense/config.json"] = {
                "in_features": linear.in_features,
                "out_features": linear.out_features,
                "bias": True,
                "activation_function": f"{type(activation).__module__}.{type(activation).__name__}",
            }
    golden.files |= {
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


def _dense_modules(golden, seed, dense):
    layers, width = [], golden.width
    for out, activation in dense:
        layers += [nn.Linear(width, out), activation()]
        width = out
    modules = nn.Sequential(*layers)
    randomize(modules, seed)
    return modules
