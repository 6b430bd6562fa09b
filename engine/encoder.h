// encoder.h — the forward pass: from the sequences of a batch to their answers.
//
// Role: one Encoder belongs to one worker thread: it is the owner of the worker's batches. It reads
//       the spec and the shared weights, and never asks for a family's name.
//
// The sequences of a pass lie end to end (batch_layout.h). They are sorted by how far they must
// run, so that a sequence which has all it asked for falls off the end and later blocks run on
// fewer rows. Each block is a phase (block_phase.h), whose tiles the owner computes one after the
// other; or helpers compute some of them, where cores are idle:
//
//   Embed ─▶ hidden state 0 ─▶ block 0 ─▶ hidden state 1 ─▶ block 1 ─▶ … ─▶ final norm ─┐
//                                 └▶ map 0                    └▶ map 1                  │
//                                       last hidden state, pooled vectors, logits ◀─────┘
//
// Contacts (contacts.h) gather the maps of all blocks on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/answer_writer.h"
#include "engine/block_phase.h"
#include "engine/block_runner.h"
#include "engine/contacts.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "engine/helpers.h"
#include "engine/model/spec.h"
#include "engine/phase_memory.h"
#include "engine/steps.h"
#include "engine/weights.h"

namespace encoderd {

class Encoder final : public Worker {
 public:
  // What the encoders of an engine share; all of it outlives them.
  struct Shared {
    const EncoderSpec& spec;
    const EncoderWeights& weights;
    const BatchLimits& limits;
    PhaseMemory& memory;
    Helpers* helpers;  // null: every batch runs on its own worker alone
  };

  // Errors: kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Encoder>> Create(const Shared& shared);
  ~Encoder() override { shared_.memory.Leave(seat_); }

  // Scratch memory of an encoder, apart from what is in PhaseMemory.
  static int64_t ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights,
                              const BatchLimits& limits);

  absl::Status Run(std::span<BatchItem> items, absl::FunctionRef<bool()> abandoned) override;

 private:
  Encoder(const Shared& shared, int seat, std::unique_ptr<BlockRunner> runner, Embedder embedder,
          AnswerWriter writer, StepRunner steps, std::optional<Contacts> contacts)
      : shared_(shared),
        spec_(shared.spec),
        seat_(seat),
        runner_(std::move(runner)),
        embedder_(std::move(embedder)),
        writer_(std::move(writer)),
        steps_(std::move(steps)),
        contacts_(std::move(contacts)) {}

  // A pass: items that start at the same block.
  absl::Status RunPass(std::span<BatchItem* const> items, absl::FunctionRef<bool()> abandoned);
  void Place(std::span<BatchItem* const> items);
  // The rows in front of `first_block`: made from the input, or those that the caller has kept.
  absl::Status Begin(int64_t first_block);
  // Runs block `attend`, from its attention on, and computes q, k and v of block `project`.
  absl::Status RunPhase(std::optional<int64_t> attend, std::optional<int64_t> project);
  void FillPhase(BlockPhase& phase, std::optional<int64_t> attend, std::optional<int64_t> project,
                 bool in_place);
  bool WritesInPlace(bool shared) const;
  // One for each sequence; none when no map is wanted. REQUIRES: `maps` is empty.
  void ListMaps(int64_t layer, std::vector<ops::MapOutput>& maps) const;
  bool Shares(int tiles, bool maps) const;
  absl::Status ComputeTiles(BlockPhase& phase);
  void TakeResults(const BlockPhase& phase, int tiles);

  HiddenRows RowsOf(const PlacedSequence& sequence, int64_t width);
  void WriteHiddenState(int64_t layer);
  absl::Status WriteFinal();

  const Shared shared_;
  const EncoderSpec& spec_;
  const int seat_;
  const std::unique_ptr<BlockRunner> runner_;
  Embedder embedder_;
  AnswerWriter writer_;
  StepRunner steps_;
  std::optional<Contacts> contacts_;  // where the model has them
  std::vector<BatchItem*> items_;     // of the running batch, those that start first first

  // Of the running pass.
  PoolRef<BatchLayout> layout_;
  PoolRef<Generation> rows_;
  std::vector<TileRows> results_;          // by tile; in rows_
  bool may_share_ = false;                 // helpers may see the layout
  bool shown_ = false;                     // and they have
  std::vector<HiddenRows::Piece> pieces_;  // what RowsOf points to
};

}  // namespace encoderd
