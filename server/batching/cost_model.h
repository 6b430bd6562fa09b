// cost_model.h — how long one worker needs for a batch, as a linear function of what is in it.
//
// Role: what admission, deadlines and the sizes of batches are decided by. Pure numbers: no clock,
//       no locks. Coefficients are measured at start-up (server/calibration.h); a correction
//       follows the batches that are run.
//
//   seconds = correction · (per_pass · passes + per_token · tokens + per_square · squares
//                           + per_answer_byte · answer_bytes)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "server/batching/call.h"

namespace encoderd {

// What costs time in a batch, or in one sequence of it.
struct Work {
  // Over the weights, which are read once for all sequences: blocks of the deepest ÷ those of the
  // model.
  double passes = 0;
  double tokens = 0;   // Σ S · blocks: matmuls and what else treats rows alone
  double squares = 0;  // Σ S² · blocks: attention
  double answer_bytes = 0;

  // The work of both in one batch.
  Work& operator+=(const Work& other);
};

Work WorkOf(const SequenceInfo& sequence);
Work WorkOf(std::span<const Slot> slots);

// Seconds per unit of each member of Work; none is negative. All zero: everything is predicted to
// take no time, so nothing is refused by a prediction.
struct CostCoefficients {
  double per_pass = 0;
  double per_token = 0;
  double per_square = 0;
  double per_answer_byte = 0;
};

// One measured batch.
struct CostSample {
  Work work;
  double seconds = 0;
};

// The non-negative coefficients with the least sum of squared relative errors. A coefficient that
// the samples do not determine is zero. Samples without time are ignored.
CostCoefficients FitCost(std::span<const CostSample> samples);

// The smallest multiple of kBatchTokensStep, at most `most`, with which a worker runs at least
// kEnoughOfBestRate of the tokens per second that it runs with `most`: larger batches only add to
// the latency of those in them.
int64_t EfficientBatchTokens(const CostCoefficients& cost, int64_t most);

inline constexpr int64_t kBatchTokensStep = 128;
inline constexpr double kEnoughOfBestRate = 0.97;

// Tokens of the sequences that a batch of a given size is imagined to have: near the mean of
// passages of text, and of little weight while attention is a small part of the work.
inline constexpr int64_t kTypicalSequenceTokens = 128;

class CostModel {
 public:
  CostModel() = default;
  explicit CostModel(const CostCoefficients& coefficients) : coefficients_(coefficients) {}

  // Of a batch, before the correction; exact sums of it can be kept while the correction moves.
  absl::Duration Base(const Work& work) const;

  // Of one sequence in a batch of `batch_tokens`: its own work, and its share of the pass.
  absl::Duration BaseShare(const SequenceInfo& sequence, int64_t batch_tokens) const;

  // Of a full batch of typical sequences; infinite when everything takes no time.
  absl::Duration BaseOfFullBatch(int64_t batch_tokens) const;

  // A base, or a sum of them, as it is predicted now.
  absl::Duration Predict(absl::Duration base) const { return base * correction_; }

  // Corrects later predictions by a batch that took `actual` where Predict(base) had been said.
  // A slow one counts as at most kMaxSurprise times slower, since a worker can lose its core for
  // any time; a fast one counts in full, since nothing makes work faster than it is. Up to `cores`
  // cores may have shared the work, as far as they were free: one alone would have needed between
  // `actual` and cores · actual, and a prediction in between is left as it is.
  void Observe(absl::Duration base, absl::Duration actual, int cores = 1);

  double correction() const { return correction_; }  // within 1/kMaxCorrection … kMaxCorrection
  const CostCoefficients& coefficients() const { return coefficients_; }

 private:
  CostCoefficients coefficients_;
  double correction_ = 1;
};

inline constexpr double kMaxSurprise = 2;
inline constexpr double kMaxCorrection = 16;
// A batch's weight in the correction: the latest seven or so count. One outlier raises predictions
// by kMaxSurprise^kObserveWeight, 11 %.
inline constexpr double kObserveWeight = 0.15;

}  // namespace encoderd
