#include "tests/engine/ops/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace encoderd::reference {

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> Linear(std::span<const float> src, std::span<const float> weights,
                           std::span<const float> bias, std::span<const float> residual,
                           Activation activation, int64_t in, int64_t out,
                           std::vector<double>* magnitudes) {
  const auto rows = static_cast<int64_t>(src.size()) / in;
  std::vector<double> dst;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[static_cast<size_t>(o)];
      double magnitude = std::abs(sum);
      for (int64_t i = 0; i < in; ++i) {
        const double product = static_cast<double>(src[static_cast<size_t>(r * in + i)]) *
                               weights[static_cast<size_t>(o * in + i)];
        sum += product;
        magnitude += std::abs(product);
      }
      const double added = residual.empty() ? 0 : residual[static_cast<size_t>(r * out + o)];
      dst.push_back(Activate(activation, sum) + added);
      if (magnitudes != nullptr) magnitudes->push_back(magnitude + std::abs(added));
    }
  }
  return dst;
}

std::vector<double> LayerNorm(std::span<const float> src, std::span<const float> weight,
                              std::span<const float> bias, double eps) {
  const size_t width = weight.size();
  std::vector<double> dst;
  for (size_t row = 0; row < src.size(); row += width) {
    double mean = 0;
    for (size_t i = 0; i < width; ++i) mean += src[row + i];
    mean /= static_cast<double>(width);
    double variance = 0;
    for (size_t i = 0; i < width; ++i) variance += (src[row + i] - mean) * (src[row + i] - mean);
    variance /= static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) {
      dst.push_back((src[row + i] - mean) / std::sqrt(variance + eps) * weight[i] + bias[i]);
    }
  }
  return dst;
}

std::vector<double> Rotate(const ops::RotaryOptions& options, int64_t position,
                           std::span<const float> qkv) {
  std::vector<double> dst(qkv.begin(), qkv.end());
  const int64_t pairs = options.width / 2;
  for (int64_t head = 0; head < options.heads; ++head) {
    for (const int64_t offset : {options.strides.q_offset, options.strides.k_offset}) {
      for (int64_t i = 0; i < pairs; ++i) {
        const auto low = static_cast<size_t>(head * options.strides.head_stride + offset + i);
        const size_t high = low + static_cast<size_t>(pairs);
        const float frequency =
            options.frequencies.empty()
                ? static_cast<float>(
                      std::pow(options.base,
                               -2.0 * static_cast<double>(i) / static_cast<double>(options.width)) /
                      options.divisor)
                : options.frequencies[static_cast<size_t>(i)];
        const double angle = static_cast<float>(position) * frequency;
        dst[low] = qkv[low] * std::cos(angle) - qkv[high] * std::sin(angle);
        dst[high] = qkv[high] * std::cos(angle) + qkv[low] * std::sin(angle);
      }
    }
  }
  return dst;
}

namespace {

bool Visible(const Mask& mask, int64_t window, int64_t tokens, int64_t head, int64_t row,
             int64_t key) {
  auto at = [](std::span<const uint8_t> part, int64_t i) {
    return part.empty() || part[static_cast<size_t>(i)] == 1;
  };
  const bool same_segment =
      mask.segment_ids.empty() ||
      mask.segment_ids[static_cast<size_t>(row)] == mask.segment_ids[static_cast<size_t>(key)];
  return at(mask.keys, key) && at(mask.pairs, row * tokens + key) &&
         at(mask.head_pairs, (head * tokens + row) * tokens + key) &&
         (!mask.causal || key <= row) && same_segment &&
         (window == 0 || std::abs(row - key) <= window);
}

double BiasOf(const ops::PositionBias& bias, int64_t head, int64_t distance) {
  double sum = 0;
  if (!bias.by_distance.empty()) {
    const int64_t column = bias.reach + std::clamp(distance, -bias.reach, bias.reach);
    sum += bias.by_distance[static_cast<size_t>(head * (2 * bias.reach + 1) + column)];
  }
  if (!bias.slopes.empty()) {
    sum -= static_cast<double>(bias.slopes[static_cast<size_t>(head)]) *
           static_cast<double>(std::abs(distance));
  }
  return sum;
}

}  // namespace

AttentionResult Attention(const ops::AttentionOptions& options, std::span<const float> qkv,
                          int64_t tokens, const Mask& mask, int64_t window,
                          std::span<const float> positions) {
  const auto& layout = options.strides;
  auto value_of = [&](std::span<const float> rows, int64_t row, int64_t head, int64_t offset,
                      int64_t i) {
    return static_cast<double>(rows[static_cast<size_t>(row * layout.row_stride +
                                                        head * layout.head_stride + offset + i)]);
  };
  auto value = [&](int64_t token, int64_t head, int64_t offset, int64_t i) {
    return value_of(qkv, token, head, offset, i);
  };
  AttentionResult result;
  result.context.resize(static_cast<size_t>(tokens * options.heads * options.head_dim));
  for (int64_t head = 0; head < options.heads; ++head) {
    for (int64_t row = 0; row < tokens; ++row) {
      // Scores of the visible keys; with none visible all keys count alike.
      std::vector<double> weights(static_cast<size_t>(tokens), 0);
      double max = -std::numeric_limits<double>::infinity();
      for (int64_t key = 0; key < tokens; ++key) {
        double score = 0;
        for (int64_t i = 0; i < options.head_dim; ++i) {
          const double q = value(row, head, layout.q_offset, i);
          const double k = value(key, head, layout.k_offset, i);
          score += q * k;
          if (positions.empty()) continue;
          const int64_t position = options.positions.of(key - row);
          score += q * value_of(positions, position, head, layout.k_offset, i) +
                   value_of(positions, position, head, layout.q_offset, i) * k;
        }
        weights[static_cast<size_t>(key)] =
            score * options.scale + BiasOf(options.position_bias, head, key - row);
        if (Visible(mask, window, tokens, head, row, key)) {
          max = std::max(max, weights[static_cast<size_t>(key)]);
        }
      }
      double sum = 0;
      for (int64_t key = 0; key < tokens; ++key) {
        double& weight = weights[static_cast<size_t>(key)];
        weight = std::isinf(max)                                 ? 1.0
                 : Visible(mask, window, tokens, head, row, key) ? std::exp(weight - max)
                                                                 : 0.0;
        sum += weight;
      }
      for (int64_t key = 0; key < tokens; ++key) {
        const double weight = weights[static_cast<size_t>(key)] / sum;
        result.map.push_back(weight);
        for (int64_t i = 0; i < options.head_dim; ++i) {
          result
              .context[static_cast<size_t>((row * options.heads + head) * options.head_dim + i)] +=
              weight * value(key, head, layout.v_offset, i);
        }
      }
    }
  }
  return result;
}

}  // namespace encoderd::reference
