// accuracy.h — how far what two precisions make of the same sequence lies apart.
//
// Role:   under every choice of precisions, the shadow of a server, and what other engines are held
//         against. The measure is 1 − cosine of two rows of last_hidden_state: it does not depend on
//         the scale of a model's numbers, and similarities of sentences, which are cosines
//         themselves, move by as much.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace encoderd {

// The largest 1 − cosine over the rows of two matrices [rows, width], 0 to 2: of two rows of zeros 0,
// of one beside another row 1, and 2 where a number is not finite. REQUIRES: both have the same
// number of elements, a multiple of width.
double LargestError(std::span<const float> expected, std::span<const float> got, int64_t width);

// The sum over the rows. REQUIRES: as above.
double SumOfErrors(std::span<const float> expected, std::span<const float> got, int64_t width);

// last_hidden_state [S, hidden] of the sequence, run as a batch of its own. Errors: those of
// Worker::Run; kResourceExhausted; kInternal when it is not finite; kInvalidArgument when the model
// does not take the sequence; kCancelled once `abandoned` has said so.
absl::StatusOr<AnswerTensor> LastHiddenState(const EncoderSpec& spec, Worker& worker,
                                             const Sequence& sequence,
                                             absl::FunctionRef<bool()> abandoned = NeverAbandoned);

// Made-up sequences of several lengths, the same in every process: of random ids of the whole
// vocabulary, or of vectors of normal numbers.
class FixedSequences {
 public:
  // Of a lone token to 160, or to `max_tokens` if that is less.
  FixedSequences(const EncoderSpec& spec, int64_t max_tokens);
  FixedSequences(const FixedSequences&) = delete;
  FixedSequences& operator=(const FixedSequences&) = delete;

  const std::vector<Sequence>& sequences() const { return sequences_; }

 private:
  void Add(const EncoderSpec& spec, int64_t tokens, std::mt19937& random);

  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<float>> vectors_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<Sequence> sequences_;  // of these
};

}  // namespace encoderd
