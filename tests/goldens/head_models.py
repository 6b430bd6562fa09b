"""The goldens of the heads that classes of Hugging Face transformers put on their encoders."""

from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    CamembertConfig,
    CamembertForMaskedLM,
    CamembertForSequenceClassification,
    CamembertForTokenClassification,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    ElectraForTokenClassification,
    GteConfig,
    GteForMaskedLM,
    GteForSequenceClassification,
    GteForTokenClassification,
    MPNetConfig,
    MPNetForMaskedLM,
    MPNetForSequenceClassification,
    MPNetForTokenClassification,
    NomicBertConfig,
    NomicBertForMaskedLM,
    NomicBertForSequenceClassification,
    NomicBertForTokenClassification,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForSequenceClassification,
    XLMRobertaForTokenClassification,
)

from golden_model import saved_by_the_library
from transformers_models import NARROW, distilbert_config, golden_of

SIZES = NARROW | {"num_hidden_layers": 1}  # the blocks have goldens of their own
# Of second goldens, whose sizes and number of labels are others and which are small.
SMALL = SIZES | {"hidden_size": 8, "intermediate_size": 12, "vocab_size": 20}
SMALL_WORDS = SMALL | {"embedding_size": 6}

LABELS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}}
LARGE_EPS = {"layer_norm_eps": 1e-5}
ONE_TYPE = {"type_vocab_size": 1}
NARROW_WORDS = SIZES | {"embedding_size": 12}


def masked_lm(name, seed, model, config, table, decoder, edges=True):
    """Saved as the library does, with the tied matrix once; and under its other name."""
    golden = golden_of(name, seed, model(config), edges=edges)
    state = golden.folders["model"]
    once = {key: value for key, value in state.items() if not key.startswith(decoder)}
    decoder_alone = {key: value for key, value in state.items() if key != table}
    golden.folders = {"model": once, "model_decoder_alone": decoder_alone}
    return golden


def all_goldens():
    bert = {"table": "bert.embeddings.word_embeddings.weight", "decoder": "cls.predictions.decoder"}
    roberta = {"table": "roberta.embeddings.word_embeddings.weight", "decoder": "lm_head.decoder"}
    yield masked_lm("bert_masked_lm", 201, BertForMaskedLM, BertConfig(**SIZES), **bert)
    config = BertConfig(**SIZES, **LARGE_EPS, hidden_act="relu")
    yield masked_lm("bert_masked_lm_relu", 202, BertForMaskedLM, config, **bert)
    config = RobertaConfig(**SIZES, **ONE_TYPE)
    yield masked_lm("roberta_masked_lm", 203, RobertaForMaskedLM, config, **roberta)
    config = XLMRobertaConfig(**SIZES, **LARGE_EPS)
    yield masked_lm("xlm_roberta_masked_lm", 204, XLMRobertaForMaskedLM, config, **roberta)

    distilbert = {
        "table": "distilbert.embeddings.word_embeddings.weight",
        "decoder": "vocab_projector.weight",
    }
    electra = {
        "table": "electra.embeddings.word_embeddings.weight",
        "decoder": "generator_lm_head.weight",
    }
    albert = {"table": "albert.embeddings.word_embeddings.weight", "decoder": "predictions.decoder"}
    for name, seed, model, config, names in (
        ("distilbert_masked_lm", 205, DistilBertForMaskedLM, distilbert_config(SIZES),
         distilbert),
        ("distilbert_masked_lm_relu", 206, DistilBertForMaskedLM,
         distilbert_config(SIZES, activation="relu"), distilbert),
        ("electra_masked_lm", 207, ElectraForMaskedLM, ElectraConfig(**NARROW_WORDS), electra),
        ("electra_masked_lm_relu", 208, ElectraForMaskedLM,
         ElectraConfig(**NARROW_WORDS, hidden_act="relu"), electra),
        ("albert_masked_lm", 209, AlbertForMaskedLM, AlbertConfig(**NARROW_WORDS), albert),
        ("albert_masked_lm_relu", 210, AlbertForMaskedLM,
         AlbertConfig(**NARROW_WORDS, hidden_act="relu"), albert),
    ):  # fmt: skip
        yield masked_lm(name, seed, model, config, **names)

    for name, seed, model, config in (
        ("bert_sequences", 211, BertForSequenceClassification, BertConfig(**SIZES, **LABELS)),
        ("bert_sequences_one", 212, BertForSequenceClassification,
         BertConfig(**SIZES, **LARGE_EPS, num_labels=1)),
        ("roberta_sequences", 213, RobertaForSequenceClassification,
         RobertaConfig(**SIZES, **LABELS)),
        ("xlm_roberta_sequences", 214, XLMRobertaForSequenceClassification,
         XLMRobertaConfig(**SIZES, **LARGE_EPS)),
        ("bert_tokens", 221, BertForTokenClassification, BertConfig(**SIZES, **LABELS)),
        ("bert_tokens_two", 222, BertForTokenClassification, BertConfig(**SIZES, **LARGE_EPS)),
        ("xlm_roberta_tokens", 223, XLMRobertaForTokenClassification,
         XLMRobertaConfig(**SIZES, **LABELS)),
        ("camembert_tokens", 224, CamembertForTokenClassification, CamembertConfig(**SIZES)),
        ("distilbert_sequences", 215, DistilBertForSequenceClassification,
         distilbert_config(SIZES, **LABELS)),
        ("electra_sequences", 216, ElectraForSequenceClassification,
         ElectraConfig(**NARROW_WORDS, **LABELS)),
        ("albert_sequences", 217, AlbertForSequenceClassification,
         AlbertConfig(**NARROW_WORDS, **LABELS)),
        ("distilbert_tokens", 225, DistilBertForTokenClassification,
         distilbert_config(SIZES, **LABELS)),
        ("electra_tokens", 226, ElectraForTokenClassification,
         ElectraConfig(**NARROW_WORDS, **LABELS)),
        ("albert_tokens", 227, AlbertForTokenClassification,
         AlbertConfig(**NARROW_WORDS, **LABELS)),
        ("electra_replaced", 228, ElectraForPreTraining, ElectraConfig(**NARROW_WORDS)),
        ("mpnet_sequences", 231, MPNetForSequenceClassification, MPNetConfig(**SIZES, **LABELS)),
        ("mpnet_tokens", 232, MPNetForTokenClassification, MPNetConfig(**SIZES)),
        ("nomic_bert_sequences", 233, NomicBertForSequenceClassification,
         NomicBertConfig(**SIZES, **LABELS)),
        ("nomic_bert_tokens", 234, NomicBertForTokenClassification, NomicBertConfig(**SIZES)),
        ("nomic_bert_masked_lm", 235, NomicBertForMaskedLM, NomicBertConfig(**SIZES)),
        ("gte_sequences", 236, GteForSequenceClassification, GteConfig(**SIZES, **LABELS)),
        ("gte_tokens", 237, GteForTokenClassification, GteConfig(**SIZES)),
        ("gte_masked_lm", 238, GteForMaskedLM, GteConfig(**SIZES)),
    ):  # fmt: skip
        golden = golden_of(name, seed, model(config))
        # Of the newest families the classes do not have the names that are on disk.
        if config.model_type in ("nomic_bert", "gte"):
            golden.folders = {"model": saved_by_the_library(golden.module)}
        yield golden
    mpnet = {"table": "mpnet.embeddings.word_embeddings.weight", "decoder": "lm_head.decoder"}
    yield masked_lm("mpnet_masked_lm", 239, MPNetForMaskedLM, MPNetConfig(**SIZES), **mpnet)
    yield from second_goldens(roberta)


def second_goldens(roberta):
    """Of heads that have one so far. RoBERTa, XLM-R and CamemBERT share theirs."""
    yield masked_lm("camembert_masked_lm", 243, CamembertForMaskedLM,
                    CamembertConfig(**SMALL, **ONE_TYPE), **roberta, edges=False)  # fmt: skip
    for name, seed, model, config in (
        ("camembert_sequences", 253, CamembertForSequenceClassification,
         CamembertConfig(**SMALL, **LARGE_EPS, num_labels=1)),
        ("distilbert_sequences_one", 255, DistilBertForSequenceClassification,
         distilbert_config(SMALL, num_labels=1)),
        ("electra_sequences_one", 256, ElectraForSequenceClassification,
         ElectraConfig(**SMALL_WORDS, num_labels=1)),
        ("albert_sequences_one", 257, AlbertForSequenceClassification,
         AlbertConfig(**SMALL_WORDS, num_labels=1)),
        ("roberta_tokens", 271, RobertaForTokenClassification, RobertaConfig(**SMALL, **LABELS)),
        ("distilbert_tokens_two", 265, DistilBertForTokenClassification, distilbert_config(SMALL)),
        ("electra_tokens_two", 266, ElectraForTokenClassification, ElectraConfig(**SMALL_WORDS)),
        ("albert_tokens_two", 267, AlbertForTokenClassification, AlbertConfig(**SMALL_WORDS)),
        ("electra_replaced_relu", 268, ElectraForPreTraining,
         ElectraConfig(**SMALL_WORDS, hidden_act="relu")),
    ):  # fmt: skip
        yield golden_of(name, seed, model(config), edges=False)
