#include "server/batching/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace encoderd {
namespace {

constexpr size_t kTerms = 4;
using Vector = std::array<double, kTerms>;
using Matrix = std::array<Vector, kTerms>;

Vector Terms(const Work& work) {
  return {work.passes, work.tokens, work.squares, work.answer_bytes};
}

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < kTerms; ++i) sum += a[i] * b[i];
  return sum;
}

// The least-squares problem with every term scaled to the same size, so that pivots can be compared
// with 1: `a` the normal matrix, `b` the right-hand side.
struct Normal {
  Matrix a = {};
  Vector b = {};
  Vector scale = {};
};

Normal NormalEquations(std::span<const CostSample> samples) {
  Normal normal;
  for (const CostSample& sample : samples) {
    if (sample.seconds <= 0) continue;
    Vector terms = Terms(sample.work);
    for (double& term : terms) term /= sample.seconds;  // each equation says: relative cost = 1
    for (size_t i = 0; i < kTerms; ++i) {
      normal.b[i] += terms[i];
      for (size_t j = 0; j < kTerms; ++j) normal.a[i][j] += terms[i] * terms[j];
    }
  }
  for (size_t i = 0; i < kTerms; ++i) {
    normal.scale[i] = normal.a[i][i] > 0 ? 1 / std::sqrt(normal.a[i][i]) : 0;
  }
  for (size_t i = 0; i < kTerms; ++i) {
    normal.b[i] *= normal.scale[i];
    for (size_t j = 0; j < kTerms; ++j) normal.a[i][j] *= normal.scale[i] * normal.scale[j];
  }
  return normal;
}

// Gaussian elimination over the terms of `active`; the others are zero. Nothing when the samples do
// not tell these terms apart.
std::optional<Vector> Solve(Normal normal, unsigned active) {
  constexpr double kSmallestPivot = 1e-9;
  const auto is_active = [active](size_t i) { return (active >> i & 1) != 0; };
  for (size_t p = 0; p < kTerms; ++p) {
    if (!is_active(p)) continue;
    if (normal.a[p][p] < kSmallestPivot) return std::nullopt;
    for (size_t row = 0; row < kTerms; ++row) {
      if (row == p || !is_active(row)) continue;
      const double factor = normal.a[row][p] / normal.a[p][p];
      for (size_t column = 0; column < kTerms; ++column) {
        normal.a[row][column] -= factor * normal.a[p][column];
      }
      normal.b[row] -= factor * normal.b[p];
    }
  }
  Vector solution = {};
  for (size_t i = 0; i < kTerms; ++i) {
    if (is_active(i)) solution[i] = normal.b[i] / normal.a[i][i];
  }
  return solution;
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  passes = std::max(passes, other.passes);
  tokens += other.tokens;
  squares += other.squares;
  answer_bytes += other.answer_bytes;
  return *this;
}

Work WorkOf(const SequenceInfo& sequence) {
  const auto tokens = static_cast<double>(sequence.tokens);
  return {.passes = sequence.blocks,
          .tokens = tokens * sequence.blocks,
          .squares = tokens * tokens * sequence.blocks,
          .answer_bytes = static_cast<double>(sequence.answer_bytes)};
}

Work WorkOf(std::span<const Slot> slots) {
  Work work;
  for (const Slot& slot : slots) work += WorkOf(slot.info());
  return work;
}

CostCoefficients FitCost(std::span<const CostSample> samples) {
  const Normal normal = NormalEquations(samples);
  Vector best = {};
  double least_error = 0;  // up to a constant, the squared error: xᵀAx - 2bᵀx
  // Four terms have sixteen sets of those that are not zero: the least error among them is exact.
  for (unsigned active = 1; active < 1u << kTerms; ++active) {
    const std::optional<Vector> solution = Solve(normal, active);
    if (!solution.has_value()) continue;
    if (std::ranges::any_of(*solution, [](double x) { return !(x >= 0); })) continue;
    double error = -2 * Dot(normal.b, *solution);
    for (size_t i = 0; i < kTerms; ++i) error += (*solution)[i] * Dot(normal.a[i], *solution);
    if (error < least_error) {
      least_error = error;
      best = *solution;
    }
  }
  for (size_t i = 0; i < kTerms; ++i) best[i] *= normal.scale[i];
  return {
      .per_pass = best[0], .per_token = best[1], .per_square = best[2], .per_answer_byte = best[3]};
}

int64_t EfficientBatchTokens(const CostCoefficients& cost, int64_t most) {
  const double per_token = cost.per_token + cost.per_square * kTypicalSequenceTokens;
  const auto rate = [&](int64_t tokens) {
    return static_cast<double>(tokens) / (cost.per_pass + per_token * static_cast<double>(tokens));
  };
  if (cost.per_pass + per_token <= 0) return most;
  for (int64_t tokens = kBatchTokensStep; tokens < most; tokens += kBatchTokensStep) {
    if (rate(tokens) >= kEnoughOfBestRate * rate(most)) return tokens;
  }
  return most;
}

absl::Duration CostModel::Base(const Work& work) const {
  const CostCoefficients& c = coefficients_;
  return absl::Seconds(
      Dot({c.per_pass, c.per_token, c.per_square, c.per_answer_byte}, Terms(work)));
}

absl::Duration CostModel::BaseShare(const SequenceInfo& sequence, int64_t batch_tokens) const {
  Work work = WorkOf(sequence);
  work.passes *=
      std::min(1.0, static_cast<double>(sequence.tokens) / static_cast<double>(batch_tokens));
  return Base(work);
}

absl::Duration CostModel::BaseOfFullBatch(int64_t batch_tokens) const {
  const auto tokens = static_cast<double>(batch_tokens);
  const absl::Duration cost =
      Base({.passes = 1,
            .tokens = tokens,
            .squares = tokens * std::min<double>(tokens, kTypicalSequenceTokens)});
  return cost > absl::ZeroDuration() ? cost : absl::InfiniteDuration();
}

void CostModel::Observe(absl::Duration base, absl::Duration actual, int cores) {
  const absl::Duration predicted = Predict(base);
  if (predicted <= absl::ZeroDuration()) return;
  const absl::Duration alone = std::clamp(predicted, actual, cores * actual);
  const double ratio = std::clamp(absl::FDivDuration(alone, predicted),
                                  1 / (kMaxCorrection * kMaxCorrection), kMaxSurprise);
  correction_ =
      std::clamp(correction_ * std::pow(ratio, kObserveWeight), 1 / kMaxCorrection, kMaxCorrection);
}

}  // namespace encoderd
