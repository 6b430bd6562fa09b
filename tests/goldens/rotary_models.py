"""The goldens of the families with rotary positions, from the classes of Hugging Face
transformers."""

import torch
from transformers import (
    EsmConfig,
    EsmForMaskedLM,
    EsmForSequenceClassification,
    EsmForTokenClassification,
    EsmModel,
    GteConfig,
    GteModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
    NomicBertConfig,
    NomicBertModel,
)

import reference_models as ref
from golden_model import saved_by_the_library
from transformers_models import NARROW, golden_of, under_a_prefix

PROTEINS = {"pad_token_id": 1, "position_embedding_type": "rotary", "layer_norm_eps": 1e-5}


def esm(name, seed, module, end_cases=False):
    golden = golden_of(name, seed, module)
    golden.run = ref.run_esm
    golden.mask_token = module.config.mask_token_id if module.config.token_dropout else None
    golden.gives_keys = golden.mask_token is not None
    golden.end_token = module.base_model.contact_head.eos_idx
    golden.end_cases = end_cases
    return golden


def esm_of_the_first_checkpoints(name, seed):
    """The frequencies are in every block, rounded to the half precision of the training."""
    config = EsmConfig(**NARROW, **PROTEINS, emb_layer_norm_before=True, rope_theta=100.0)
    golden = esm(name, seed, EsmForMaskedLM(config))
    frequencies = golden.module.esm.rotary_embeddings.inv_freq
    frequencies.copy_(frequencies.half().float())
    state = golden.folders["model"]
    del state["esm.rotary_embeddings.inv_freq"]
    for layer in range(config.num_hidden_layers):
        place = f"esm.encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq"
        state[place] = frequencies.clone()
    return golden


def modernbert(name, seed, layers, model=ModernBertModel, **config):
    """A window of `reach` tokens on either side, and lengths around it."""
    sizes = NARROW | {"num_hidden_layers": layers, "max_position_embeddings": 9}
    special = {"pad_token_id": 0} | {f"{kind}_token_id": 2 for kind in ("bos", "cls", "eos", "sep")}
    golden = golden_of(name, seed, model(ModernBertConfig(**sizes, **special, **config)))
    golden.run = ref.run_modernbert
    golden.gives_keys = config.get("classifier_pooling") == "mean"
    reach = golden.module.config.sliding_window
    golden.lengths = tuple(sorted({1, 2, reach - 1, reach, reach + 1, golden.longest}))
    return golden


def modernbert_of_the_first_checkpoints(name, seed):
    """All biases there are, and the keys that the first checkpoints have."""
    biases = {"norm_bias": True, "attention_bias": True, "mlp_bias": True}
    rotation = {"global_rope_theta": 100.0, "local_rope_theta": 20.0}
    window = {"local_attention": 7, "global_attn_every_n_layers": 2}
    golden = modernbert(
        name,
        seed,
        layers=3,
        **biases,
        **rotation,
        **window,
        hidden_activation="silu",
        norm_eps=1e-12,
    )
    for key in ("rope_parameters", "layer_types"):
        golden.config.pop(key)
    older = {"layer_norm_eps": 1e-5, "position_embedding_type": "absolute"}
    golden.config |= rotation | window | older
    return under_a_prefix(golden, "model.", "ModernBertForMultipleChoice")


def as_saved(golden, **config):
    """With the names on disk; `config`: what its own code wrote before the class was there."""
    golden.folders = {"model": saved_by_the_library(golden.module)}
    if config:
        golden.config = config
    return golden


def nomic_bert_of_the_first_checkpoints(name, seed):
    config = NomicBertConfig(**NARROW, hidden_act="gelu", layer_norm_eps=1e-5)
    sizes = {
        "vocab_size": config.vocab_size,
        "n_embd": config.hidden_size,
        "n_head": config.num_attention_heads,
        "n_inner": config.intermediate_size,
        "n_layer": config.num_hidden_layers,
        "n_positions": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
    }
    return as_saved(
        golden_of(name, seed, NomicBertModel(config)),
        model_type="nomic_bert",
        architectures=["NomicBertModel"],
        auto_map={"AutoModel": "example/bert--modeling_bert.NomicBertModel"},
        activation_function="geglu",
        layer_norm_epsilon=config.layer_norm_eps,
        qkv_proj_bias=False,
        mlp_fc1_bias=False,
        mlp_fc2_bias=False,
        rotary_emb_base=1000,
        rotary_emb_fraction=1.0,
        rotary_emb_interleaved=False,
        rotary_emb_scale_base=None,
        rotary_scaling_factor=None,
        max_trained_positions=2048,
        prenorm=False,
        **sizes,
    )


def gte_of_its_own_code(name, seed):
    rotation = {"rope_type": "default", "rope_theta": 500.0}
    config = GteConfig(**NARROW, type_vocab_size=0, layer_norm_eps=1e-5, rope_parameters=rotation)
    kept = (*NARROW, "type_vocab_size", "layer_norm_eps", "hidden_act", "pad_token_id")
    golden = golden_of(name, seed, GteModel(config))
    # Scaled positions are of its own code alone: base · factor, divided by factor ^ (2 / d).
    factor, d = 4.0, config.hidden_size // config.num_attention_heads
    frequencies = golden.module.rotary_emb.inv_freq
    frequencies.copy_((500.0 * factor) ** (-torch.arange(0, d, 2) / d) / factor ** (2 / d))
    sizes = {key: golden.config[key] for key in kept if key in golden.config}
    return as_saved(
        golden,
        model_type="new",
        architectures=["NewModel"],
        auto_map={"AutoModel": "example/new--modeling.NewModel"},
        position_embedding_type="rope",
        rope_theta=500.0,
        rope_scaling={"type": "ntk", "factor": factor},
        layer_norm_type="layer_norm",
        logn_attention_scale=False,
        logn_attention_clip1=False,
        pack_qkv=True,
        unpad_inputs=False,
        use_memory_efficient_attention=False,
        **sizes,
    )


def all_goldens():
    config = EsmConfig(**NARROW, **PROTEINS, token_dropout=True, mask_token_id=32)
    yield esm("esm", 141, EsmModel(config), end_cases=True)
    yield esm_of_the_first_checkpoints("esm_masked_lm", 142)
    small = NARROW | {"num_hidden_layers": 1}
    tokens = EsmForTokenClassification(EsmConfig(**small, **PROTEINS))
    yield as_saved(esm("esm_tokens", 143, tokens))
    config = EsmConfig(**small, **PROTEINS, num_labels=3)
    yield esm("esm_sequences", 144, EsmForSequenceClassification(config))
    yield modernbert("modernbert", 171, layers=4, local_attention=8)
    yield modernbert_of_the_first_checkpoints("modernbert_biases", 172)
    for name, seed, model, config in (
        ("modernbert_masked_lm", 173, ModernBertForMaskedLM, {}),
        ("modernbert_tokens", 174, ModernBertForTokenClassification,
         {"classifier_activation": "silu", "num_labels": 3}),
        ("modernbert_sequences", 175, ModernBertForSequenceClassification,
         {"classifier_pooling": "cls"}),
        ("modernbert_sequences_mean", 176, ModernBertForSequenceClassification,
         {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True}),
    ):  # fmt: skip
        yield modernbert(name, seed, 1, model, local_attention=4, **config)
    yield as_saved(golden_of("nomic_bert", 151, NomicBertModel(NomicBertConfig(**NARROW))))
    yield nomic_bert_of_the_first_checkpoints("nomic_bert_first_keys", 152)
    yield as_saved(golden_of("gte", 161, GteModel(GteConfig(**NARROW, hidden_act="silu"))))
    yield gte_of_its_own_code("gte_own_code", 162)
