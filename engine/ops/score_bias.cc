#include "engine/ops/score_bias.h"

#include <algorithm>
#include <limits>
#include <span>

namespace encoderd::ops {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

}  // namespace

ScoreBias::ScoreBias(const Mask& mask, const PositionBias& position_bias, int64_t window,
                     int64_t tokens, Keys keys, const Memory& memory)
    : mask_(mask),
      position_bias_(position_bias),
      window_(window),
      tokens_(tokens),
      memory_(memory) {
  if (mask.keys.empty()) return;
  for (int64_t key = keys.first; key < keys.end; ++key) {
    memory.of_keys[key] = mask.keys[static_cast<size_t>(key)] != 0 ? 0.0f : kHidden;
  }
}

ScoreBias::Block ScoreBias::Of(int64_t head, int64_t first_row, int64_t rows, Keys keys) const {
  if (!VariesByRow(first_row, rows, keys)) {
    return {.data = mask_.keys.empty() ? nullptr : memory_.of_keys + keys.first, .stride = 0};
  }
  for (int64_t i = 0; i < rows; ++i) {
    Fill(head, first_row + i, keys, memory_.rows + i * memory_.stride);
  }
  return {.data = memory_.rows, .stride = memory_.stride};
}

bool ScoreBias::VariesByRow(int64_t first_row, int64_t rows, Keys keys) const {
  const int64_t last_row = first_row + rows - 1;
  return !position_bias_.empty() || !mask_.pairs.empty() || !mask_.head_pairs.empty() ||
         !mask_.segment_ids.empty() || (mask_.causal && keys.end > first_row + 1) ||
         (window_ > 0 && (keys.first < last_row - window_ || keys.end > first_row + window_ + 1));
}

// Writes what is added to the scores of one row.
void ScoreBias::Fill(int64_t head, int64_t row, Keys keys, float* bias) const {
  if (mask_.keys.empty()) {
    std::fill_n(bias, keys.count(), 0.0f);
  } else {
    std::copy(memory_.of_keys + keys.first, memory_.of_keys + keys.end, bias);
  }
  float* const by_key = bias - keys.first;
  AddPositionBias(position_bias_, head, row, keys.first, keys.end, by_key);

  const auto hide_zeros = [&](std::span<const uint8_t> part, int64_t plane) {
    if (part.empty()) return;
    const uint8_t* const seen = part.data() + (plane * tokens_ + row) * tokens_;
    for (int64_t key = keys.first; key < keys.end; ++key) {
      if (seen[key] == 0) by_key[key] = kHidden;
    }
  };
  const auto hide = [&](int64_t first, int64_t end) {
    for (int64_t key = std::max(first, keys.first); key < std::min(end, keys.end); ++key) {
      by_key[key] = kHidden;
    }
  };
  hide_zeros(mask_.pairs, /*plane=*/0);
  hide_zeros(mask_.head_pairs, head);
  if (mask_.causal) hide(row + 1, keys.end);
  if (window_ > 0) {
    hide(keys.first, row - window_);
    hide(row + window_ + 1, keys.end);
  }
  if (!mask_.segment_ids.empty()) {
    const int32_t own = mask_.segment_ids[static_cast<size_t>(row)];
    for (int64_t key = keys.first; key < keys.end; ++key) {
      if (mask_.segment_ids[static_cast<size_t>(key)] != own) by_key[key] = kHidden;
    }
  }
}

}  // namespace encoderd::ops
