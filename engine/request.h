// request.h — what a call asks of the engine, and the answer it gets: plain data without gRPC or
// protobuf.
//
// Role:   built by the server from the wire (or by a program that uses the engine directly),
//         checked by validation.h, run by engine.h. Field names are those of
//         proto/encoderd/v1/encoder.proto, so that violations name what the caller wrote.
// Shapes: S = tokens of one sequence; slowest axis first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/spec.h"
#include "engine/ops/mask.h"
#include "engine/tensor/buffer.h"
#include "engine/tensor/data_type.h"

namespace encoderd {

// Rows [begin, end) of a sequence.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// A tensor as the caller sent it: `data` is little-endian, any alignment. Nothing about it has been
// checked.
struct InputTensor {
  DataType dtype = DataType::kFp32;
  std::span<const int64_t> shape;
  std::span<const std::byte> data;
};

// The spans are borrowed: they must stay valid until the call is answered.
struct Sequence {
  std::span<const int32_t> input_ids;  // exactly one of these two
  std::optional<InputTensor> inputs_embeds;
  std::span<const int32_t> token_type_ids;  // [S] or empty = all 0
  std::span<const int32_t> position_ids;    // [S] or empty = 0 … S-1
  Mask mask;
  std::vector<Span> spans;

  // S: the number of ids, or of rows of inputs_embeds (0 when its shape is not of rank 2 or its
  // first axis is negative).
  int64_t tokens() const {
    if (!inputs_embeds.has_value()) return static_cast<int64_t>(input_ids.size());
    return inputs_embeds->shape.size() == 2 && inputs_embeds->shape[0] > 0 ? inputs_embeds->shape[0]
                                                                           : 0;
  }
};

// Blocks 0 … num_layers-1, negative from the end; an empty list = all.
struct AttentionSpec {
  std::vector<int32_t> layers, heads, query_rows;
};

struct PoolingSpec {
  std::optional<Pooling> kind;    // absent = the model's default, with its projection if it has one
                                  // and no layer is named
  std::optional<bool> normalize;  // absent = the model's default
  std::optional<int32_t> layer;   // as in hidden_states; absent = the last
  uint32_t dimensions = 0;        // 0 = all
};

struct OutputSpec {
  DataType dtype = DataType::kFp32;
  bool last_hidden_state = false;
  std::vector<int32_t> hidden_states;  // 0 = embeddings, l = after block l, negative from the end
  bool all_hidden_states = false;
  std::optional<AttentionSpec> attentions;
  std::vector<PoolingSpec> pooled;
  bool logits = false;
  bool contacts = false;
};

struct Request {
  std::vector<Sequence> sequences;
  OutputSpec outputs;
};

// Rows and columns of the contacts of S tokens: the first and the last token have none.
inline int64_t ContactTokens(int64_t tokens) { return tokens > 2 ? tokens - 2 : 0; }

// ---- The plan: a validated request with every default and negative index resolved ---------------

struct PooledOutput {
  Pooling kind = Pooling::kMean;
  bool normalize = false;
  std::optional<int64_t> layer;  // 0 … num_layers; absent = last_hidden_state
  bool projected = false;        // through the spec's projection
  int64_t dimensions = 0;        // 1 … width of the vector
  size_t index = 0;              // in the caller's list
};

// Lists are in the caller's order without repetitions; the answer's tensors follow them.
struct Plan {
  DataType dtype = DataType::kFp32;
  bool last_hidden_state = false;
  std::vector<int32_t> hidden_layers;  // 0 … num_layers
  bool attentions = false;
  std::vector<int32_t> attention_layers;  // 0 … num_layers-1
  std::vector<int32_t> attention_heads;   // 0 … num_heads-1
  std::vector<int32_t> query_rows;        // empty = all rows of each sequence
  std::vector<PooledOutput> pooled;
  bool logits = false;
  bool logits_per_sequence = false;  // one row for each sequence, not for each token
  bool contacts = false;             // a pass from block 0 through the maps of all blocks

  // A part of a pass (parts.h) starts in front of this block, from BatchItem::hidden.
  int64_t first_block = 0;
  int64_t layers_run = 0;  // blocks below this one give an output that is needed: 0 … num_layers
  bool last_map_only = false;  // block `layers_run` runs as far as its attention map and no further
  bool final_norm_needed = false;  // anything reads last_hidden_state
  bool keeps_hidden = false;       // BatchItem::hidden gets the rows that a next part starts from

  // Sequences of the request that have their rows in the answer: one after the other from this one.
  size_t first_sequence = 0;
  std::vector<int64_t> token_offsets;  // [sequences + 1] rows of what is per token
  std::vector<int64_t>
      pooled_offsets;        // [sequences + 1] rows of pooled outputs: one per sequence or span
  int64_t answer_bytes = 0;  // bytes of all tensors of the answer

  // Index into the offsets of a sequence of the request.
  size_t PlaceOf(size_t sequence) const { return sequence - first_sequence; }
  // Row of the logits where those of the sequence at `place` begin.
  int64_t FirstLogitsRow(size_t place) const {
    return logits_per_sequence ? static_cast<int64_t>(place) : token_offsets[place];
  }
  int64_t LogitsRows() const { return FirstLogitsRow(token_offsets.size() - 1); }
};

// ---- The answer ---------------------------------------------------------------------------------

struct AnswerTensor {
  std::vector<int64_t> shape;
  Buffer data;  // little-endian, plan's dtype
};

struct AttentionMap {
  uint32_t sequence = 0;
  int32_t layer = 0;
  AnswerTensor tensor;  // [heads, query rows, S]
};

// All memory is allocated before the work starts; workers then write disjoint rows of it, one
// sequence each.
struct Answer {
  AnswerTensor last_hidden_state;           // [tokens, hidden]; empty shape: not asked for
  std::vector<AnswerTensor> hidden_states;  // one per plan.hidden_layers, [tokens, width]
  std::vector<AttentionMap> attentions;     // sequence-major, then plan.attention_layers
  std::vector<AnswerTensor> pooled;         // one per plan.pooled, [sequences or spans, dimensions]
  AnswerTensor logits;                      // [tokens, vocab or labels], or [sequences, labels]
  std::vector<AnswerTensor> contacts;       // one per sequence, [S - 2, S - 2], or [0, 0]
};

}  // namespace encoderd
