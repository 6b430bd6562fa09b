"""The goldens of DeBERTa-v2 and v3, from the classes of Hugging Face transformers."""

from transformers import (
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    DebertaV2ForSequenceClassification,
    DebertaV2ForTokenClassification,
    DebertaV2Model,
)

import reference_models as ref
from head_models import LABELS, LARGE_EPS, masked_lm
from transformers_models import NARROW, SIZES, golden_of

# As version 3 was trained, but for the sizes: distances of 40 tokens and more share a bucket.
V3 = {
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
    "max_position_embeddings": 40,
}
# All that version 3 is not: positions added to the words, matrices of their own for the table, a
# row for each distance, narrow words.
OTHER = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "max_relative_positions": 9,
    "type_vocab_size": 2,
    "embedding_size": 10,
    **LARGE_EPS,
}
HEADS = {"num_hidden_layers": 1}  # the blocks have goldens of their own


def deberta(golden, longest=0, padding=None):
    config = golden.module.config
    golden.run = ref.run_deberta
    golden.padding = padding
    if not config.position_biased_input:
        golden.positions = 0  # there is no table, nor a longest sequence
        golden.longest = longest
    return golden


def all_goldens():
    golden = golden_of("deberta_v3", 171, DebertaV2Model(DebertaV2Config(**(SIZES | V3))))
    golden.config["pos_att_type"] = V3["pos_att_type"]  # as the files on disk have it
    yield deberta(golden, longest=100, padding=0)
    yield deberta(golden_of("deberta_v2", 172, DebertaV2Model(DebertaV2Config(**NARROW, **OTHER))))
    one = V3 | HEADS | {"pos_att_type": ["p2c"], "share_att_key": False}
    module = DebertaV2Model(DebertaV2Config(**(NARROW | one)))
    yield deberta(golden_of("deberta_v2_one_product", 173, module, edges=False))
    # Without the table it is BERT, whose scores are still divided for three products.
    config = DebertaV2Config(**(NARROW | HEADS), pos_att_type=["c2p", "p2c"])
    yield deberta(golden_of("deberta_v2_absolute", 174, DebertaV2Model(config), edges=False))

    small = NARROW | V3 | HEADS
    words = {
        "table": "deberta.embeddings.word_embeddings.weight",
        "decoder": "cls.predictions.decoder",
    }
    config = DebertaV2Config(**small, embedding_size=10)
    yield deberta(
        masked_lm("deberta_v2_masked_lm", 231, DebertaV2ForMaskedLM, config, **words), longest=9
    )
    for name, seed, model, config in (
        ("deberta_v3_masked_lm", 232, DebertaV2ForMaskedLM,
         DebertaV2Config(**small, hidden_act="relu", legacy=False)),
        ("deberta_v3_sequences", 233, DebertaV2ForSequenceClassification,
         DebertaV2Config(**small, **LABELS, pooler_hidden_act="relu")),
        ("deberta_v3_tokens", 234, DebertaV2ForTokenClassification,
         DebertaV2Config(**small, **LABELS)),
    ):  # fmt: skip
        yield deberta(golden_of(name, seed, model(config)), longest=9)
