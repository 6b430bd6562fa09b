// passages.h — a standard load for simulations: passages of text on two cores of a common machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>

#include "absl/time/time.h"
#include "server/batching/cost_model.h"
#include "tests/server/batching/load_simulation.h"

namespace encoderd {

// About MiniLM-L6 on a core: 7,500 tokens a second.
inline constexpr CostCoefficients kMiniLmCost = {
    .per_pass = 2e-3, .per_token = 120e-6, .per_square = 95e-9};

// Passages of text, as those of SQuAD with their questions: 177 tokens in the mean, at most 384.
inline int64_t PassageTokens(Random& random) {
  std::gamma_distribution<double> tokens(5, 36);
  return std::clamp<int64_t>(static_cast<int64_t>(tokens(random)), 16, 384);
}

inline BatcherOptions PassageOptions() {
  return {
      .workers = 2, .max_batch_tokens = 256, .cost = kMiniLmCost, .max_queue_time = absl::Hours(1)};
}

// Calls of such lengths that two workers run in a second, batches filled up.
inline double Capacity(const std::function<int64_t(Random&)>& tokens) {
  Random random(1);
  const CostModel model(kMiniLmCost);
  absl::Duration cost;
  constexpr int kSamples = 20000;
  for (int i = 0; i < kSamples; ++i) {
    cost += model.BaseShare({.tokens = tokens(random)}, PassageOptions().max_batch_tokens);
  }
  return PassageOptions().workers * kSamples / absl::ToDoubleSeconds(cost);
}

}  // namespace encoderd
