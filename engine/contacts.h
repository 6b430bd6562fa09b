// contacts.h — which tokens of a sequence are in contact, told from its attention maps.
//
// Role:   belongs to one Encoder, which hands it the rows of the maps as attention has them.
// Source: Rao et al. 2020, Transformer protein language models are unsupervised structure learners;
//         transformers 5, EsmContactPredictionHead and EsmModel.predict_contacts.
// Maths:  with B a head's map without the first and last token's row and column, 0 where either
//         token is hidden by mask.keys or has the id contact_end_id; X = B + Bᵀ; a = the sums of
//         X's rows and t = their sum (average product correction):
//
//           contacts [S-2, S-2] = sigmoid(bias + Σ weight · (X - a·aᵀ / t))   over all heads
//
//         Where t is 0 there is nothing to correct. (transformers gives NaN there.)
// Memory: no map is kept. With W = Σ weight · B, the sum over X is W + Wᵀ, so a row goes into W
//         and into the sums of its block as it comes: (S-2)² floats for a sequence, and a few for
//         each head and token.
// Bits:   rows come by head and then by token, however a sequence is cut, and belong to one
//         sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/batch_layout.h"
#include "engine/engine.h"
#include "engine/model/spec.h"
#include "engine/tensor/buffer.h"
#include "engine/weights.h"

namespace encoderd {

// A row of a map: what `token` of a sequence of the pass gives to each of its tokens, [S].
struct MapRow {
  size_t sequence = 0;
  int64_t head = 0;
  int64_t token = 0;
  std::span<const float> weights;
};

class Contacts {
 public:
  // For passes of so many tokens at most. The spec and the weights must outlive it. REQUIRES:
  // spec.has_contacts(). Errors: kResourceExhausted.
  static absl::StatusOr<Contacts> Create(const EncoderSpec& spec, const EncoderWeights& weights,
                                         int64_t max_tokens);
  static int64_t ScratchBytes(const EncoderSpec& spec, int64_t max_tokens);

  // A pass begins: forgets all there was.
  void Begin(std::span<const PlacedSequence> sequences);
  // Whether any sequence of the pass, or this one, wants contacts.
  bool wanted() const { return wanted_; }
  bool wanted(size_t sequence) const { return sequences_[sequence].inner > 0; }

  // A row of block `layer`'s maps. REQUIRES: the sequence wants them.
  void AddRow(int64_t layer, const MapRow& row);
  // All rows of the block have been added.
  void EndBlock(int64_t layer);

  // The rows of all blocks have been added: writes the answers.
  void Write();

 private:
  // Of a sequence that wants contacts; `inner` is 0 for the others.
  struct Sums {
    BatchItem* item = nullptr;
    int64_t inner = 0;          // S-2
    float* logits = nullptr;    // [inner, inner]: W, less half of each correction
    float* rows = nullptr;      // [heads, inner]: of B of the running block
    float* columns = nullptr;   // [heads, inner]
    uint8_t* counts = nullptr;  // [inner]: whether the token is neither hidden nor an end
  };

  Contacts(const EncoderSpec& spec, const ContactWeights& weights)
      : spec_(&spec), weights_(&weights) {}

  float WeightOf(int64_t layer, int64_t head) const {
    return weights_->weight.floats()[static_cast<size_t>(layer * spec_->num_heads + head)];
  }
  void Clear(const Sums& sums) const;
  void Correct(const Sums& sums, int64_t layer, int64_t head) const;
  void WriteSequence(const Sums& sums) const;

  const EncoderSpec* spec_;
  const ContactWeights* weights_;
  bool wanted_ = false;
  std::vector<Sums> sequences_;  // of the pass
  Buffer logits_;                // [max_tokens, max_tokens]
  Buffer rows_, columns_;        // [heads, max_tokens]
  Buffer counts_;                // [max_tokens]
};

}  // namespace encoderd
