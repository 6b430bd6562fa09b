// encoder.h — the forward pass: from the sequences of a batch to their answers.
//
// Role: one Encoder belongs to one worker thread. It reads the spec and the shared weights, owns
//       the scratch memory, and never asks for a family's name.
//
// The sequences of a batch lie end to end, [tokens, hidden], and no token is padded to anything.
// They are sorted by how far they must run, so that a sequence which has all it asked for falls off
// the end and later blocks run on fewer rows:
//
//   Embed ─▶ hidden state 0 ─▶ block 0 ─▶ hidden state 1 ─▶ block 1 ─▶ … ─▶ final norm ─┐
//                                 └▶ map 0                    └▶ map 1                  │
//                                       last hidden state, pooled vectors, logits ◀─────┘
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/model/spec.h"
#include "engine/tensor/buffer.h"
#include "engine/weights.h"

namespace encoderd {

class Encoder final : public Worker {
 public:
  // The spec and the weights must outlive the encoder. REQUIRES: max_tokens > 0.
  static absl::StatusOr<std::unique_ptr<Encoder>> Create(const EncoderSpec& spec,
                                                         const EncoderWeights& weights,
                                                         int64_t max_tokens);

  // Scratch memory of an encoder for batches of up to max_tokens tokens.
  static int64_t ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights,
                              int64_t max_tokens);

  absl::Status Run(std::span<BatchItem> items, absl::FunctionRef<bool()> abandoned) override;

 private:
  // One sequence in its place in the batch.
  struct Placed {
    BatchItem* item;
    int64_t first_row;
    int64_t tokens;

    size_t place() const { return item->plan->PlaceOf(item->sequence); }
    const Sequence& sequence() const { return item->request->sequences[item->sequence]; }
    const Plan& plan() const { return *item->plan; }
  };

  // Buffers by name, allocated once at their largest. Each has padding rows behind the rows in use.
  struct Scratch {
    Buffer hidden;      // [tokens, width]: the residual stream
    Buffer inner;       // [tokens, hidden]: within a block: normed input, or sums before a norm
    Buffer qkv;         // [tokens, 3·hidden]
    Buffer context;     // [tokens, hidden]
    Buffer ffn;         // [chunk, ffn]
    Buffer input;       // [tokens, input_dim]: vectors in front of input_steps
    Buffer steps[2];    // [step rows, widest step]: ping-pong of RunSteps
    Buffer pooled;      // [step rows, widest hidden state]
    Buffer attention;   // of ops::Attention
    Buffer scratchpad;  // of oneDNN
  };

  Encoder(const EncoderSpec& spec, const EncoderWeights& weights, int64_t max_tokens)
      : spec_(spec), weights_(weights), max_tokens_(max_tokens) {}

  // A pass: items that start at the same block.
  absl::Status RunPass(std::span<BatchItem* const> items, absl::FunctionRef<bool()> abandoned);
  void Place(std::span<BatchItem* const> items);
  // Rows of the sequences that run further than so many half blocks: attention is the first half of
  // a block.
  int64_t RowsRunningBeyond(int64_t half_blocks) const;

  // The rows in front of `first_block`: made from the input, or those that the caller has kept.
  absl::Status Begin(int64_t first_block);
  absl::Status Embed();
  void EmbedTokens(const Placed& placed, float* rows) const;
  void AddPositionsAndTypes(const Placed& placed, float* rows) const;
  absl::Status RunBlock(int64_t layer);
  void RunAttention(int64_t layer);
  absl::Status RunRowWise(const BlockWeights& block, int64_t first_row, int64_t rows);
  absl::StatusOr<float*> RunSteps(const std::vector<StepWeights>& steps, const float* src,
                                  int64_t rows);

  void WriteHiddenState(int64_t layer);
  void KeepHidden(const Placed& placed) const;
  void CheckHeadInput(const Placed& placed, std::string_view head) const;
  absl::Status WriteFinal();
  void WritePooledVectors(const Placed& placed, size_t output, int64_t width);
  absl::Status WritePooler(const Placed& placed, size_t output);
  absl::Status WriteLogits(const Placed& placed);
  std::span<const float> HiddenRows(const Placed& placed, int64_t width) const;
  std::span<const Span> RangesOf(const Placed& placed);

  const EncoderSpec& spec_;
  const EncoderWeights& weights_;
  const int64_t max_tokens_;  // rows that scratch holds
  Scratch scratch_;
  std::vector<BatchItem*> items_;  // of the running batch, those that start first first
  std::vector<Placed> placed_;     // of the running pass, those that run furthest first
  Span whole_;                     // what RangesOf points to when a sequence has no spans
};

}  // namespace encoderd
