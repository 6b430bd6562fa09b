// spec.h — the declarative description of one transformer encoder.
//
// Role:  the only thing the forward pass knows about a model. A family (fused_qkv_attention, bert,
//        …) is a function that reads its config.json into an EncoderSpec and names its tensors;
//        `custom` is this structure itself, written as JSON.
// Maths: Vaswani et al. 2017 (post-norm blocks), Xiong et al. 2020 (pre-norm blocks).
//
// One block, with x [tokens, hidden]:
//   post-norm:  a = x + Attention(x);        x = Norm1(a);   x = Norm2(x + FFN(x))
//   pre-norm:   x = x + Attention(Norm1(x)); x = x + FFN(Norm2(x))
//   without norms: x = x + Attention(x); x = x + FFN(x)
//   FFN(y) = W_out · act(W_in · y); gated: W_out · (act(W_gate · y) ⊙ (W_in · y)).
//   The FFN is left out where ffn_size is 0, "x +" where residual is false (attention alone).
//   Attention:  softmax over the visible keys of q·kᵀ · score_scale + position bias, times v, through
//   the output projection. A row that may see no key attends evenly to all keys of its sequence, in
//   every family; in a local block to those outside its window too.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ops/activation.h"
#include "engine/tensor/data_type.h"

namespace encoderd {

enum class InputKind {
  kTokenIds,  // ids index an embedding table
  kVectors,   // the caller brings [S, input_dim]
};

enum class PositionKind {
  kNone,
  kLearned,     // a table [position_rows, table_width]
  kSinusoidal,  // interleaved sine and cosine, base 10000 (Vaswani et al. 2017, 3.5)
};

// What joins the scores of a query and a key for how far apart they are in the sequence, whatever
// its position_ids (formulas: ops/position_bias.h, ops/distance_rows.h).
enum class PositionBiasKind {
  kNone,
  kBuckets,  // a table [bias_buckets, heads], the same for every block (Raffel et al. 2020, T5)
  kAlibi,    // a slope for each head, in both directions (Press et al. 2022)
  kDisentangled,  // a table of vectors, each distance's row being a key to the query and a query to
                  // the key: two more products before score_scale (He et al. 2021, DeBERTa)
};

enum class NormPlacement { kNone, kPost, kPre };

// How q, k and v come out of their projections. d = head_dim.
enum class QkvLayout {
  kSeparate,       // three matrices [hidden, in]
  kFused,          // one matrix [3·hidden, in]: all of q, all of k, all of v
  kFusedByHead,    // one matrix [3·hidden, in]: head i owns rows 3d·i … 3d·(i+1)-1, its q, k, v in
                   // that order
  kSharedByHeads,  // three matrices [d, d], each used for every head
};

// Where W_gate of a gated FFN is.
enum class Gate {
  kNone,      // the FFN has none
  kFirst,     // ffn_in is [2·ffn, hidden]: W_gate, then W_in
  kSecond,    // the same: W_in, then W_gate
  kSeparate,  // a tensor of its own, ffn_gate
};

enum class Pooling { kCls, kMean, kMax, kPooler };

// Tensor names in the checkpoint; "{layer}" stands for the index of the block, or of its group. An
// empty bias name: no bias.
struct TensorNames {
  std::string weight;
  std::string bias;

  bool operator==(const TensorNames&) const = default;
};

// Those of a PyTorch module with a weight and a bias.
inline TensorNames WithBias(const std::string& module, bool has_bias = true) {
  return {module + ".weight", has_bias ? module + ".bias" : ""};
}

// One step of a stack in front of or behind the blocks: y = activation(x · Wᵀ + b), or y =
// activation(LayerNorm(x)).
struct Step {
  enum class Kind { kLinear, kNorm };
  Kind kind = Kind::kLinear;
  TensorNames names;
  int64_t out = 0;  // width of y; a norm keeps its input's
  Activation activation = Activation::kNone;

  bool operator==(const Step&) const = default;
};

// Width of what comes out of `steps` when vectors of `width` go in.
inline int64_t WidthAfter(const std::vector<Step>& steps, int64_t width) {
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::kLinear) width = step.out;
  }
  return width;
}

// Two spellings of one tensor name: a name that ends in `from` may be saved as ending in `to`
// instead.
struct SuffixAlias {
  std::string from;
  std::string to;

  bool operator==(const SuffixAlias&) const = default;
};

// Two tensors that are one: where the file lacks either, it is read from the other's place. By
// their whole names.
struct Tie {
  std::string tensor;
  std::string same_as;

  bool operator==(const Tie&) const = default;
};

struct EncoderSpec {
  std::string family;  // model_type, for people; the forward pass never reads it

  // Input: the word table or vectors, then input_steps, then + positions, + types, then the
  // embedding norm, then embedding_steps.
  InputKind input = InputKind::kTokenIds;
  int64_t vocab_size = 0;  // ids 0 … vocab_size-1; a larger table's further rows are unreachable
  int64_t type_vocab_size = 0;  // 0: the model has no token types
  int64_t input_dim = 0;        // width of input vectors; 0 for token models
  PositionKind positions = PositionKind::kNone;
  int64_t max_positions = 0;  // longest sequence the model can take; 0: no limit of its own
  // Of the token whose position is this row of the table, wherever it stands; the other tokens
  // count on from the row behind it, and so do input vectors. -1: there is none, and positions
  // count from 0.
  int64_t position_padding_id = -1;
  // Every embedding of mask_token_id is 0, and all others are multiplied with 0.88 / (1 − the share
  // of such ids among the ids that may be seen), as ESM-2's training left them.
  bool token_dropout = false;
  int64_t mask_token_id = 0;
  int64_t word_width = 0;  // of the word table's rows; 0: hidden_size
  std::vector<Step> input_steps;
  std::vector<Step> embedding_steps;
  TensorNames word_embedding, position_embedding, type_embedding;  // only .weight
  TensorNames embedding_norm;                                      // .weight empty: none

  // Blocks.
  int64_t num_layers = 0;
  // Equally many blocks in a row form a group and share all tensors, whose "{layer}" then stands
  // for the group's index. 0: each block has tensors of its own.
  int64_t layer_groups = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t ffn_size = 0;  // 0: blocks without FFN
  bool residual = true;
  NormPlacement norm = NormPlacement::kPost;
  double norm_eps = 1e-5;
  QkvLayout qkv = QkvLayout::kSeparate;
  double score_scale = 0;  // what q·kᵀ is multiplied with, e.g. 1/√d
  PositionBiasKind position_bias = PositionBiasKind::kNone;
  // kBuckets, kDisentangled: half for each direction. 0, for the latter: a bucket for each distance.
  int64_t bias_buckets = 0;
  int64_t bias_max_distance = 0;  // of both: tokens from which on the last bucket is meant
  TensorNames relative_bias;      // kBuckets; only .weight
  // kDisentangled: the table [relative_rows, hidden_size], the norm it goes through, and what a
  // block makes keys and queries of it with.
  TensorNames relative_embedding;            // only .weight
  TensorNames relative_embedding_norm;       // .weight empty: none
  TensorNames position_key, position_query;  // .weight empty: the block's own key and query
  bool content_to_position = true;           // whether the table's keys are used
  bool position_to_content = true;           // whether the table's queries are used
  // Tokens on either side that a row of a local block may see, beside itself, where the mask lets
  // it; counted in tokens of the sequence, whatever its position_ids. 0: there are no local blocks.
  int64_t local_window = 0;
  int64_t global_every = 1;  // block i is local unless i is a multiple of it; 1: none is
  Activation activation = Activation::kRelu;
  Gate gate = Gate::kNone;
  bool first_norm1 = true;  // false: block 0 has no norm1 (pre-norm blocks only)
  // Leading values of each head of q and k that are turned by the token's position (rotary.h): 0
  // none, else even. Positions count from 0 and end at max_positions.
  int64_t rotary_width = 0;
  double rotary_base = 10000;
  double rotary_base_local = 10000;  // of local blocks
  double rotary_divisor = 1;         // of all frequencies that a base gives
  TensorNames query, key, value;     // kSeparate, kSharedByHeads
  TensorNames fused_qkv;             // kFused, kFusedByHead
  TensorNames attention_output, norm1, ffn_in, ffn_gate, ffn_out, norm2;
  // Of a rotation, in place of the base's: only .weight; removed at load when the checkpoint lacks
  // it.
  TensorNames rotary_frequencies;
  TensorNames final_norm;  // after the last block; .weight empty: none. Removed at load when the
                           // checkpoint lacks it and final_norm_optional
  bool final_norm_optional = false;
  // Whether the last of the hidden states is taken behind the final norm, as most classes of
  // transformers give it; else it is what leaves the last block.
  bool final_norm_in_hidden_states = false;

  // Heads on top of the last hidden state. At most one of the first two gives the logits.
  std::vector<Step> logits;      // per token: [tokens, out of the last step]
  std::vector<Step> classifier;  // per sequence, on its first token or on the mean of its visible
                                 // ones: [sequences, out of the last step]
  Pooling classifier_pooling = Pooling::kCls;  // kCls (the first token, visible or not) or kMean
  std::vector<std::string> labels;  // names of the logits' columns; empty: they have none
  std::vector<Step> pooler;  // on each sequence's first token; removed at load when the checkpoint
                             // lacks it and pooler_optional
  bool pooler_optional = false;
  // Of the regression that tells which tokens are in contact from the attention maps of all blocks
  // (contacts.h): weight [1, layers · heads], bias [1]. Removed at load when the checkpoint lacks
  // it; .weight empty: none.
  TensorNames contact;
  int64_t contact_end_id = -1;  // of tokens that touch nothing, as an end does; -1: there is none

  // What the folder says about its vectors.
  Pooling default_pooling = Pooling::kMean;
  // Behind the default pooling of the last hidden state, before it is normalised; empty: none. Its
  // tensors carry no wrapper's prefix.
  std::vector<Step> projection;
  bool default_normalize = false;

  // Checkpoint habits of the family.
  std::vector<SuffixAlias> aliases;   // other spellings of tensor names
  std::vector<Tie> ties;              // tensors that a file may hold once for two uses
  std::vector<std::string> harmless;  // endings of names that may be in the file and mean nothing

  bool operator==(const EncoderSpec&) const = default;

  // Rows of the position table: those of a longest sequence lie behind the padding's.
  int64_t position_rows() const { return max_positions + position_padding_id + 1; }
  // Whether a token's position means anything, so that a caller may say which it is.
  bool has_positions() const { return positions != PositionKind::kNone || rotary_width > 0; }
  // Rows of ffn_in.
  int64_t ffn_in_size() const {
    return gate == Gate::kFirst || gate == Gate::kSecond ? 2 * ffn_size : ffn_size;
  }
  // Rows of relative_embedding.
  int64_t relative_rows() const { return bias_buckets > 0 ? bias_buckets : 2 * bias_max_distance; }
  int64_t head_dim() const { return hidden_size / num_heads; }
  // 1/√d, which most families have (Vaswani et al. 2017, 3.2.1).
  double usual_score_scale() const { return 1 / std::sqrt(static_cast<double>(head_dim())); }
  // Width of what enters input_steps: of the word table's rows, or of the caller's vectors.
  int64_t input_size() const {
    if (input == InputKind::kVectors) return input_dim;
    return word_width > 0 ? word_width : hidden_size;
  }
  // Width of the position and type tables and of the embedding norm.
  int64_t table_width() const { return WidthAfter(input_steps, input_size()); }
  // Width of what enters block 0.
  int64_t embedding_size() const { return WidthAfter(embedding_steps, table_width()); }
  // Sets of block tensors, and the one that a block uses.
  int64_t num_groups() const { return layer_groups > 0 ? layer_groups : num_layers; }
  int64_t group_of(int64_t layer) const { return layer / (num_layers / num_groups()); }
  // Of a local block; 0 for the others.
  int64_t window_of(int64_t layer) const { return layer % global_every == 0 ? 0 : local_window; }
  // Of hidden_states.
  int64_t widest_hidden() const { return std::max(embedding_size(), hidden_size); }
  bool has_logits() const { return !logits.empty() || !classifier.empty(); }
  // Columns of the logits. REQUIRES: has_logits().
  int64_t logits_width() const {
    return WidthAfter(logits.empty() ? classifier : logits, hidden_size);
  }
  bool has_contacts() const { return !contact.weight.empty(); }
  // Whether hidden_states[layer] is the last hidden state, behind the final norm.
  bool is_behind_final_norm(int64_t layer) const {
    return final_norm_in_hidden_states && layer == num_layers;
  }
  // Width of hidden_states[layer], layer 0 … num_layers.
  int64_t hidden_width(int64_t layer) const { return layer == 0 ? embedding_size() : hidden_size; }
};

}  // namespace encoderd
