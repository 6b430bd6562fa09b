// transformers_keys.h — what the config.json files of Hugging Face transformers have in common.
//
// Source: the configuration class that all models inherit, and BertConfig, in the versions 2.3,
//         2.11, 3.5, 4.8, 4.30, 4.57 and 5.
#pragma once

#include <string_view>

#include "engine/model/config_reader.h"
#include "engine/model/spec.h"

namespace encoderd {

// The activation functions by their names there: "gelu" is the exact (erf) form.
inline constexpr NamedValue<Activation> kTransformersActivations[] = {
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
};

// Keys that change no tensor of an encoder's inference: names, versions, dropout, training, heads
// for tasks, text generation, special tokens, output formats.
inline constexpr std::string_view kTransformersHarmlessKeys[] = {
    // Where the model comes from, and the software it was saved with.
    "_name_or_path", "name_or_path", "architectures", "transformers_version", "_commit_hash",
    "torch_dtype", "dtype", "finetuning_task", "tokenizer_class", "prefix", "_from_auto",
    "_from_pipeline", "_configuration_file", "revision",
    // How it is run: memory, devices, the same results.
    "use_cache", "torchscript", "use_bfloat16", "gradient_checkpointing", "xla_device",
    "chunk_size_feed_forward", "attn_implementation", "_attn_implementation",
    "_attn_implementation_internal", "_attn_implementation_autoset", "experts_implementation",
    "base_model_tp_plan", "base_model_pp_plan", "tf_legacy_loss",
    // Training.
    "attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout",
    "initializer_range",
    // Task heads; what a served one needs of these, heads.h reads.
    "num_labels", "_num_labels", "id2label", "label2id", "problem_type", "task_specific_params",
    "tie_word_embeddings", "tie_encoder_decoder", "cross_attention_hidden_size",
    // Written by the conversion of early checkpoints; never read by BertModel.
    "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "output_past",
    // Special tokens: ids come from the caller.
    "pad_token_id", "bos_token_id", "eos_token_id", "eos_token_ids", "sep_token_id", "cls_token_id",
    "mask_token_id", "unk_token_id", "decoder_start_token_id",
    // What a call of the library returns.
    "output_attentions", "_output_attentions", "output_hidden_states", "output_scores",
    "return_dict", "return_dict_in_generate",
    // Text generation.
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"};

// What every family has: ignores the keys above. Switches that change the maths may only be off.
inline void ReadTransformersKeys(ConfigReader& config) {
  using enum ConfigReader::Changes;
  config.Ignore(kTransformersHarmlessKeys);
  config.Only("is_decoder", false);
  config.Only("add_cross_attention", false);
  config.Only("is_encoder_decoder", false, kTensors);
  config.Only("pruned_heads", nlohmann::json::object(), kTensors);
  config.Only("quantization_config", nullptr, kTensors);
}

// Where a model's code is in its own repository: refused, but by the families that are that code's.
inline void RefuseOwnCode(ConfigReader& config) {
  config.Only("auto_map", nullptr, ConfigReader::Changes::kTensors);
}
inline constexpr std::string_view kOwnCodeKeys[] = {"auto_map"};

// The same for the keys that describe rotary positions, where these are not read.
inline void RefuseRotationKeys(ConfigReader& config) {
  config.Only("rope_scaling", nullptr);
  config.Only("rope_parameters", nullptr);
}

}  // namespace encoderd
