// weights.h — a model's weights as the forward pass uses them: packed, fused and ready to run.
//
// Role: built once at load from a spec and a checkpoint (load_weights.h), then shared read-only by
//       all workers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/ops/attention.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/rotary.h"
#include "engine/ops/row_buckets.h"
#include "engine/tensor/buffer.h"

namespace encoderd {

// One step of a stack in front of or behind the blocks; exactly one of the two is set.
struct StepWeights {
  std::optional<ops::Linear> linear;
  std::optional<ops::LayerNorm> norm;
};

// What the spec leaves out stays empty.
struct BlockWeights {
  ops::Linear qkv;  // q, k and v in one product, in the layout that `attention` reads
  Buffer relative;  // the table of relative positions as keys and queries: Attention::PackPositions
  ops::Linear attention_output;
  std::optional<ops::LayerNorm> norm1;
  // Where there is a gate, ffn_in multiplies what it gives, and the activation is the gate's.
  std::optional<ops::Linear> ffn_gate;
  std::optional<ops::Linear> ffn_in;
  std::optional<ops::Linear> ffn_out;
  std::optional<ops::LayerNorm> norm2;
};

// Of the regression over the attention maps.
struct ContactWeights {
  Buffer weight;  // [layers, heads]
  float bias = 0;
};

struct EncoderWeights {
  ops::RowBuckets buckets;
  Buffer words;      // [vocab, input_size]
  Buffer positions;  // [position_rows, table_width]
  Buffer types;      // [type_vocab, table_width]
  std::vector<StepWeights> input_steps;
  std::optional<ops::LayerNorm> embedding_norm;
  std::vector<StepWeights> embedding_steps;
  std::vector<BlockWeights> blocks;                 // by EncoderSpec::group_of(layer)
  ops::Attention attention;                         // the same kernels serve every block
  std::optional<ops::Rotary> rotary, rotary_local;  // of global blocks, and of local ones
  std::optional<ops::LayerNorm> final_norm;
  std::vector<StepWeights> logits;
  std::vector<StepWeights> classifier;
  std::vector<StepWeights> pooler;
  std::vector<StepWeights> projection;
  std::optional<ContactWeights> contact;
  std::vector<std::string> nonfinite;  // of each tensor with such numbers, what is wrong

  size_t bytes() const;             // all of the above in memory
  size_t scratchpad_bytes() const;  // the largest that any product wants
  void ForEachOperation(const std::function<void(const ops::Linear&)>& linear,
                        const std::function<void(const ops::LayerNorm&)>& norm) const;
};

}  // namespace encoderd
