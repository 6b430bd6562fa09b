// reference_ops.h — each operation of engine/ops written out plainly in double precision: the judge
// of the fast ones.
//
// Role: used by tests alone and never optimised. Every function also returns or takes what a
//       tolerance is derived from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/activation.h"
#include "engine/ops/attention.h"
#include "engine/ops/mask.h"
#include "engine/ops/rotary.h"

namespace encoderd::reference {

double Activate(Activation activation, double x);

// [rows, out] of activation(src · Wᵀ + bias) + residual; bias and residual may be empty.
// `magnitudes`, if given, receives Σ |src · w| + |bias| per element: the scale of its rounding
// errors.
std::vector<double> Linear(std::span<const float> src, std::span<const float> weights,
                           std::span<const float> bias, std::span<const float> residual,
                           Activation activation, int64_t in, int64_t out,
                           std::vector<double>* magnitudes = nullptr);

std::vector<double> LayerNorm(std::span<const float> src, std::span<const float> weight,
                              std::span<const float> bias, double eps);

// One row of q, k and v, turned. Angles are rounded to single precision, as the operation says.
std::vector<double> Rotate(const ops::RotaryOptions& options, int64_t position,
                           std::span<const float> qkv);

struct AttentionResult {
  std::vector<double> context;  // [S, heads · head_dim]
  std::vector<double> map;      // [heads, S, S]
};

// window: as in ops::AttentionArgs. positions: what ops::Attention::PackPositions reads.
AttentionResult Attention(const ops::AttentionOptions& options, std::span<const float> qkv,
                          int64_t tokens, const Mask& mask, int64_t window = 0,
                          std::span<const float> positions = {});

}  // namespace encoderd::reference
