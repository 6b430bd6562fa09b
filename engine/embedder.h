// embedder.h — the rows that enter the first block: words or vectors, input steps, positions,
// types, the embedding norm and embedding steps.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/batch_layout.h"
#include "engine/model/spec.h"
#include "engine/steps.h"
#include "engine/tensor/buffer.h"
#include "engine/weights.h"

namespace encoderd {

class Embedder {
 public:
  // The spec and the weights must outlive the embedder. Errors: kResourceExhausted.
  static absl::StatusOr<Embedder> Create(const EncoderSpec& spec, const EncoderWeights& weights);
  static int64_t ScratchBytes(const EncoderSpec& spec);

  // Writes hidden state 0 of the tile's rows, [rows, embedding_size]. `steps` is scratch.
  absl::Status Run(const BatchLayout& layout, const Tile& tile, StepRunner& steps, float* rows);

 private:
  Embedder(const EncoderSpec& spec, const EncoderWeights& weights)
      : spec_(&spec), weights_(&weights) {}

  void WriteInput(const Sequence& sequence, const Segment& segment, float* rows) const;
  void AddPositionsAndTypes(const Sequence& sequence, const Segment& segment, float* rows) const;

  const EncoderSpec* spec_;
  const EncoderWeights* weights_;
  Buffer input_;     // [rows of a tile, input_size]: in front of input_steps
  Buffer embedded_;  // [rows of a tile, table_width]: in front of embedding_steps
};

}  // namespace encoderd
