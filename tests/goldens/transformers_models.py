"""The goldens of the families of Hugging Face transformers, from their own classes."""

import json

from transformers import (
    AlbertConfig,
    AlbertModel,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

import reference_models as ref
from golden_model import Golden, prefixed, randomize, state_of

SIZES = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
    "attn_implementation": "eager",
}
NARROW = SIZES | {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}


def golden_of(name, seed, module, full=False, edges=True):
    """The golden of a module of the library; what there is to say of it its configuration says.

    `edges`: with cases of padding and of the longest sequence.
    """
    config = module.config
    randomize(module, seed)
    saved = json.loads(config.to_json_string())
    saved["architectures"] = [type(module).__name__]
    saved["dtype"] = "float32"
    return Golden(
        name,
        module,
        run=ref.run_transformers,
        config=saved,
        input="ids",
        heads=config.num_attention_heads,
        width=module.get_input_embeddings().embedding_dim,
        seed=seed,
        vocab=config.vocab_size,
        types=getattr(config, "type_vocab_size", 0),
        positions=config.max_position_embeddings,
        longest=longest_of(module) if edges else 0,
        padding=config.pad_token_id if edges else None,
        full=full,
        folders={"model": state_of(module)},
    )


def longest_of(module):
    """Where there is a table, RoBERTa's positions start behind the padding's."""
    embeddings = module.base_model.embeddings
    if not hasattr(embeddings, "position_embeddings"):
        return module.config.max_position_embeddings
    rows_before_text = getattr(embeddings, "padding_idx", -1) + 1
    return module.config.max_position_embeddings - rows_before_text


def under_a_prefix(golden, prefix, architecture):
    """The same model as a class with a head around it saves its base."""
    golden.folders = {"model": prefixed(golden.folders["model"], prefix)}
    golden.config["architectures"] = [architecture]
    return golden


def distilbert_config(sizes, **others):
    """Its own names for the same sizes."""
    names = {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
    }
    return DistilBertConfig(**{names.get(key, key): size for key, size in sizes.items()}, **others)


def all_goldens():
    one_type = {"type_vocab_size": 1}
    large_eps = {"layer_norm_eps": 1e-5}
    for name, seed, model, config in (
        ("roberta", 101, RobertaModel, RobertaConfig(**SIZES, **one_type)),
        ("roberta_narrow", 102, RobertaModel, RobertaConfig(**NARROW, **large_eps, pad_token_id=4)),
        ("xlm_roberta", 103, XLMRobertaModel, XLMRobertaConfig(**NARROW, **one_type)),
        ("xlm_roberta_types", 104, XLMRobertaModel, XLMRobertaConfig(**NARROW, **large_eps)),
        ("camembert", 105, CamembertModel, CamembertConfig(**NARROW, **one_type, **large_eps)),
        ("distilbert", 111, DistilBertModel, distilbert_config(SIZES)),
        ("distilbert_relu", 112, DistilBertModel, distilbert_config(NARROW, activation="relu")),
        ("mpnet", 141, MPNetModel, MPNetConfig(**SIZES)),
        # Up to 200 tokens, which reach the widest buckets.
        (
            "mpnet_long",
            142,
            MPNetModel,
            MPNetConfig(**(NARROW | {"max_position_embeddings": 202}), **large_eps),
        ),
        ("electra", 121, ElectraModel, ElectraConfig(**NARROW, embedding_size=10)),
        (
            "electra_one_width",
            122,
            ElectraModel,
            ElectraConfig(**NARROW, **large_eps, embedding_size=16),
        ),
        ("albert", 131, AlbertModel, AlbertConfig(**SIZES, embedding_size=10)),
        (
            "albert_groups",
            132,
            AlbertModel,
            AlbertConfig(
                **(NARROW | {"num_hidden_layers": 4}),
                **one_type,
                **large_eps,
                embedding_size=16,
                num_hidden_groups=2,
                hidden_act="gelu",
            ),
        ),
    ):
        yield golden_of(name, seed, model(config))
    config = CamembertConfig(**NARROW, **one_type)
    golden = golden_of("camembert_base", 106, CamembertModel(config, add_pooling_layer=False))
    yield under_a_prefix(golden, "roberta.", "CamembertForMultipleChoice")
