// block_runner.h — computes one tile of a phase: attention, projections, norms and FFN of its rows.
//
// Role: each thread that computes tiles has one, with scratch memory of its own. It reads the spec
//       and the shared weights, and never asks for a family's name.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/block_phase.h"
#include "engine/model/spec.h"
#include "engine/profile.h"
#include "engine/tensor/buffer.h"
#include "engine/weights.h"

namespace encoderd {

class BlockRunner {
 public:
  // The spec and the weights must outlive the runner. Errors: kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<BlockRunner>> Create(const EncoderSpec& spec,
                                                             const EncoderWeights& weights,
                                                             int64_t max_sequence_tokens);

  static int64_t ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights,
                              int64_t max_sequence_tokens);

  // Computes a tile of the phase into `dst`. `stop` is asked between operations, each head's
  // attention being one. Errors: kCancelled when it said so, kInternal; `dst` is then unspecified.
  absl::Status Run(const BlockPhase& phase, int tile, const TileRows& dst,
                   absl::FunctionRef<bool()> stop);

 private:
  using Stop = absl::FunctionRef<bool()>;

  // Buffers by name, for the rows of one tile.
  struct Scratch {
    Buffer inner;       // [rows, hidden]: normed input of a block, or sums in front of a norm
    Buffer qkv;         // [rows, 3 · hidden]: before they are packed
    Buffer context;     // [rows, hidden]
    Buffer ffn;         // [rows, ffn], fp32 or bf16
    Buffer gate;        // [rows, ffn], where there is one
    Buffer attention;   // of ops::Attention
    Buffer scratchpad;  // of products
  };

  BlockRunner(const EncoderSpec& spec, const EncoderWeights& weights)
      : spec_(spec), weights_(weights) {}

  const BlockWeights& BlockOf(int64_t layer) const {
    return weights_.blocks[static_cast<size_t>(spec_.group_of(layer))];
  }
  absl::Status Attend(const BlockPhase& phase, const Tile& tile, Stop stop);
  absl::Status AttendSegment(const BlockPhase& phase, const Tile& tile, const Segment& segment,
                             Stop stop);
  absl::Status Multiply(OpKind kind, const ops::Linear& product, const void* src, int64_t rows,
                        const void* other, void* dst);
  void Normalize(const ops::LayerNorm& norm, const float* src, int64_t rows, float* dst);
  absl::Status RunRowWise(const BlockWeights& block, int64_t rows, const float* x, float* dst,
                          Stop stop);
  absl::Status RunFfnIn(const BlockWeights& block, int64_t rows, const float* x, std::byte* dst,
                        Stop stop);
  absl::Status Project(const BlockPhase& phase, const Tile& tile, int64_t rows, const float* x,
                       float* qkv, Stop stop);

  const EncoderSpec& spec_;
  const EncoderWeights& weights_;
  Scratch scratch_;
  std::vector<ops::PackedTokens> pieces_;  // of the segment being attended
};

}  // namespace encoderd
