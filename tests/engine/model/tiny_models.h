// tiny_models.h — small models of every family for tests: configurations, and weights to go with
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/families.h"
#include "engine/model/tensor_list.h"
#include "tests/engine/io/safetensors_writer.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd {

inline nlohmann::json TinyBert() {
  return {{"model_type", "bert"},         {"vocab_size", 11},         {"hidden_size", 6},
          {"num_hidden_layers", 2},       {"num_attention_heads", 3}, {"intermediate_size", 8},
          {"max_position_embeddings", 5}, {"type_vocab_size", 2}};
}

// Padding 1: sequences of up to 5 tokens.
inline nlohmann::json TinyRoberta() {
  nlohmann::json config = TinyBert();
  config.update({{"model_type", "roberta"}, {"max_position_embeddings", 7}, {"pad_token_id", 1}});
  return config;
}

inline nlohmann::json TinyDistilBert() {
  return {{"model_type", "distilbert"},
          {"vocab_size", 11},
          {"dim", 6},
          {"n_layers", 2},
          {"n_heads", 3},
          {"hidden_dim", 8},
          {"max_position_embeddings", 5}};
}

// Sequences of up to 5 tokens.
inline nlohmann::json TinyMpnet() {
  nlohmann::json config = TinyBert();
  config.erase("type_vocab_size");
  config.update({{"model_type", "mpnet"}, {"max_position_embeddings", 7}});
  return config;
}

// Tables of width 4 in front of blocks of width 6.
inline nlohmann::json TinyElectra() {
  nlohmann::json config = TinyBert();
  config.update({{"model_type", "electra"}, {"embedding_size", 4}});
  return config;
}

// 4 blocks, of which each two share their tensors.
inline nlohmann::json TinyAlbert() {
  nlohmann::json config = TinyElectra();
  config.update({{"model_type", "albert"}, {"num_hidden_layers", 4}, {"num_hidden_groups", 2}});
  return config;
}

// Blocks 0 and 2 see all tokens, the others one on either side.
inline nlohmann::json TinyModernBert() {
  return {{"model_type", "modernbert"},
          {"vocab_size", 11},
          {"hidden_size", 6},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 3},
          {"intermediate_size", 8},
          {"max_position_embeddings", 5},
          {"local_attention", 2},
          {"global_attn_every_n_layers", 2}};
}

inline nlohmann::json TinyEsm() {
  nlohmann::json config = TinyBert();
  config.erase("type_vocab_size");
  config.update({{"model_type", "esm"},
                 {"position_embedding_type", "rotary"},
                 {"token_dropout", true},
                 {"mask_token_id", 4}});
  return config;
}

// As the first checkpoints are configured.
inline nlohmann::json TinyNomicBert() {
  return {{"model_type", "nomic_bert"},
          {"vocab_size", 11},
          {"n_embd", 6},
          {"n_head", 3},
          {"n_inner", 8},
          {"n_layer", 2},
          {"n_positions", 5},
          {"type_vocab_size", 2},
          {"activation_function", "swiglu"},
          {"layer_norm_epsilon", 1e-12},
          {"qkv_proj_bias", false},
          {"mlp_fc1_bias", false},
          {"mlp_fc2_bias", false},
          {"rotary_emb_base", 1000},
          {"rotary_emb_fraction", 1.0}};
}

inline nlohmann::json TinyGte() {
  nlohmann::json config = TinyBert();
  config.update({{"model_type", "new"},
                 {"hidden_act", "gelu"},
                 {"layer_norm_eps", 1e-12},
                 {"rope_theta", 500000},
                 {"type_vocab_size", 0}});
  return config;
}

inline nlohmann::json TinyJinaBert() {
  nlohmann::json config = TinyBert();
  config.update({{"position_embedding_type", "alibi"}, {"feed_forward_type", "geglu"}});
  return config;
}

// Eight rows of relative positions, which the blocks' own matrices read.
inline nlohmann::json TinyDebertaV2() {
  nlohmann::json config = TinyBert();
  config.erase("type_vocab_size");
  config.update({{"model_type", "deberta-v2"},
                 {"relative_attention", true},
                 {"pos_att_type", {"p2c", "c2p"}},
                 {"position_buckets", 4},
                 {"norm_rel_ebd", "layer_norm"},
                 {"share_att_key", true},
                 {"position_biased_input", false}});
  return config;
}

inline nlohmann::json TinyTokenEncoder() {
  return {{"model_type", "token_encoder"},
          {"input_size", 7},
          {"hidden_size", 6},
          {"num_heads", 2},
          {"num_layers", 2}};
}

inline nlohmann::json TinySharedProjection() {
  return {{"model_type", "shared_projection_encoder"},
          {"embed_size", 6},
          {"heads", 3},
          {"forward_expansion", 2},
          {"num_layers", 2}};
}

inline nlohmann::json TinyAttention() {
  return {
      {"model_type", "fused_qkv_attention"}, {"input_dim", 5}, {"embed_dim", 6}, {"num_heads", 2}};
}

inline nlohmann::json TinyAttentionStack() {
  return {{"model_type", "fused_qkv_attention"},
          {"input_dim", 5},
          {"embed_dim", 6},
          {"num_heads", 2},
          {"num_layers", 2},
          {"ffn_dim", 9},
          {"max_len", 8},
          {"num_classes", 4},
          {"input_net", true},
          {"output_net", true}};
}

inline nlohmann::json TinyTorchEncoder() {
  return {{"model_type", "torch_transformer_encoder"},
          {"d_model", 6},
          {"nhead", 2},
          {"num_layers", 2},
          {"dim_feedforward", 8}};
}

inline std::vector<nlohmann::json> TinyModels() {
  return {TinyBert(),         TinyRoberta(),
          TinyDistilBert(),   TinyMpnet(),
          TinyElectra(),      TinyModernBert(),
          TinyEsm(),          TinyNomicBert(),
          TinyAlbert(),       TinyGte(),
          TinyJinaBert(),     TinyDebertaV2(),
          TinyTokenEncoder(), TinySharedProjection(),
          TinyAttention(),    TinyAttentionStack(),
          TinyTorchEncoder()};
}

inline TestTensor* FindTensor(std::vector<TestTensor>& tensors, std::string_view name) {
  for (TestTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

// Every tensor of the spec, optional parts among them, each with numbers of its own.
inline std::vector<TestTensor> TinyWeights(const EncoderSpec& spec) {
  std::vector<TestTensor> tensors;
  float next = 0;
  for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
    if (FindTensor(tensors, tensor.name) != nullptr) continue;  // two parts share it
    const int64_t elements =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<float> values(static_cast<size_t>(elements));
    for (float& value : values) value = next++ / 16;
    tensors.push_back(FloatTensor(tensor.name, tensor.shape, values));
  }
  return tensors;
}

// Replaces `from` at the end of every name that ends so.
inline void RenameEndings(std::vector<TestTensor>& tensors, std::string_view from,
                          std::string_view to) {
  for (TestTensor& tensor : tensors) {
    if (tensor.name.ends_with(from)) {
      tensor.name.replace(tensor.name.size() - from.size(), from.size(), to);
    }
  }
}

inline void AddPrefix(std::vector<TestTensor>& tensors, const std::string& prefix) {
  for (TestTensor& tensor : tensors) tensor.name = prefix + tensor.name;
}

}  // namespace encoderd
