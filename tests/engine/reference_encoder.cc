#include "tests/engine/reference_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/log/check.h"
#include "engine/model/tensor_list.h"
#include "tests/engine/ops/reference_ops.h"

namespace encoderd::reference {
namespace {

using Floats = std::vector<float>;

class Runner {
 public:
  Runner(const EncoderSpec& spec, const Checkpoint& checkpoint, const Sequence& sequence)
      : spec_(spec), checkpoint_(checkpoint), sequence_(sequence), tokens_(sequence.tokens()) {}

  EncoderResult Run() {
    EncoderResult result;
    Floats x = Embed();
    result.hidden_states.push_back(x);
    for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
      x = Block(x, layer, result);
      result.hidden_states.push_back(x);
    }
    result.last_hidden_state = spec_.final_norm.weight.empty() ? x : Norm(x, spec_.final_norm, 0);
    const Floats& last = result.last_hidden_state;
    if (spec_.final_norm_in_hidden_states) result.hidden_states.back() = last;
    if (!spec_.logits.empty()) result.logits = Steps(last, spec_.logits, spec_.hidden_size);
    if (spec_.has_contacts()) result.contacts = Contacts(result.maps);
    if (!spec_.pooler.empty()) {
      result.pooler =
          Steps({last.begin(), last.begin() + spec_.hidden_size}, spec_.pooler, spec_.hidden_size);
    }
    return result;
  }

 private:
  Floats Tensor(const std::string& pattern, int64_t layer) const {
    if (pattern.empty()) return {};
    auto buffer = checkpoint_.Read(LayerName(pattern, spec_.group_of(layer)));
    CHECK(buffer.ok()) << buffer.status();
    return {buffer->floats().begin(), buffer->floats().end()};
  }

  static Floats Rounded(const std::vector<double>& values) {
    return {values.begin(), values.end()};
  }

  Floats Dense(const Floats& src, const TensorNames& names, int64_t layer, int64_t in, int64_t out,
               Activation activation = Activation::kNone, const Floats& residual = {}) const {
    return Rounded(Linear(src, Tensor(names.weight, layer), Tensor(names.bias, layer), residual,
                          activation, in, out));
  }

  Floats Norm(const Floats& src, const TensorNames& names, int64_t layer) const {
    const Floats weight = Tensor(names.weight, layer);
    const Floats bias =
        names.bias.empty() ? Floats(weight.size(), 0.0f) : Tensor(names.bias, layer);
    return Rounded(LayerNorm(src, weight, bias, spec_.norm_eps));
  }

  Floats Steps(Floats x, const std::vector<Step>& steps, int64_t width) const {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::kNorm) {
        x = Norm(x, step.names, 0);
        for (float& value : x) value = static_cast<float>(Activate(step.activation, value));
      } else {
        x = Dense(x, step.names, 0, width, step.out, step.activation);
        width = step.out;
      }
    }
    return x;
  }

  Floats Embed() const {
    Floats x;
    if (sequence_.inputs_embeds.has_value()) {
      x.resize(sequence_.inputs_embeds->data.size() / sizeof(float));
      std::memcpy(x.data(), sequence_.inputs_embeds->data.data(),
                  sequence_.inputs_embeds->data.size());
    } else {
      const Floats words = Tensor(spec_.word_embedding.weight, 0);
      for (const int32_t id : sequence_.input_ids) {
        x.insert(x.end(), words.begin() + id * spec_.input_size(),
                 words.begin() + (id + 1) * spec_.input_size());
      }
      if (spec_.token_dropout) DropMaskTokens(x);
    }
    x = Steps(x, spec_.input_steps, spec_.input_size());
    const int64_t width = spec_.table_width();
    const Floats types = Tensor(spec_.type_embedding.weight, 0);
    const Floats positions = Tensor(spec_.position_embedding.weight, 0);
    const std::vector<int64_t> rows = PositionRows();
    for (int64_t token = 0; token < tokens_; ++token) {
      const auto at = static_cast<size_t>(token);
      const int64_t type = sequence_.token_type_ids.empty() ? 0 : sequence_.token_type_ids[at];
      const int64_t position = rows[at];
      for (int64_t i = 0; i < width; ++i) {
        float& value = x[static_cast<size_t>(token * width + i)];
        if (!types.empty()) value += types[static_cast<size_t>(type * width + i)];
        if (!positions.empty()) value += positions[static_cast<size_t>(position * width + i)];
        if (spec_.positions == PositionKind::kSinusoidal) {
          const double angle =
              static_cast<double>(position) /
              std::pow(10000.0, static_cast<double>(i - i % 2) / static_cast<double>(width));
          value += static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
        }
      }
    }
    if (!spec_.embedding_norm.weight.empty()) x = Norm(x, spec_.embedding_norm, 0);
    return Steps(x, spec_.embedding_steps, width);
  }

  // 0 for mask tokens, the others scaled by how many of those that can be seen are mask tokens.
  void DropMaskTokens(Floats& x) const {
    double seen = 0, masks = 0;
    for (size_t i = 0; i < sequence_.input_ids.size(); ++i) {
      if (!sequence_.mask.keys.empty() && sequence_.mask.keys[i] == 0) continue;
      seen += 1;
      masks += sequence_.input_ids[i] == spec_.mask_token_id ? 1 : 0;
    }
    const double scale = seen == masks ? 0.88 : 0.88 / (1 - masks / seen);
    for (size_t i = 0; i < x.size(); ++i) {
      const int32_t id = sequence_.input_ids[i / static_cast<size_t>(spec_.input_size())];
      x[i] = id == spec_.mask_token_id ? 0.0f : static_cast<float>(x[i] * scale);
    }
  }

  // The row of the position table that each token is given.
  std::vector<int64_t> PositionRows() const {
    if (!sequence_.position_ids.empty()) {
      return {sequence_.position_ids.begin(), sequence_.position_ids.end()};
    }
    std::vector<int64_t> rows(static_cast<size_t>(tokens_));
    int64_t last = spec_.position_padding_id;
    for (size_t at = 0; at < rows.size(); ++at) {
      const bool padding = spec_.position_padding_id >= 0 && !sequence_.input_ids.empty() &&
                           sequence_.input_ids[at] == spec_.position_padding_id;
      rows[at] = padding ? spec_.position_padding_id : ++last;
    }
    return rows;
  }

  // [S, 3 · hidden]: all of q, all of k, all of v, turned by their positions.
  Floats TurnedQkv(const Floats& x, int64_t layer) const {
    Floats qkv = Qkv(x, layer);
    if (spec_.rotary_width == 0) return qkv;
    const int64_t h = spec_.hidden_size;
    const Floats frequencies = Tensor(spec_.rotary_frequencies.weight, 0);
    const ops::RotaryOptions options = {
        .heads = spec_.num_heads,
        .strides = {.head_stride = spec_.head_dim(), .q_offset = 0, .k_offset = h},
        .width = spec_.rotary_width,
        .base = spec_.window_of(layer) > 0 ? spec_.rotary_base_local : spec_.rotary_base,
        .divisor = spec_.rotary_divisor,
        .frequencies = frequencies};
    for (int64_t token = 0; token < tokens_; ++token) {
      const std::span<float> row =
          std::span(qkv).subspan(static_cast<size_t>(token * 3 * h), static_cast<size_t>(3 * h));
      const int64_t position = sequence_.position_ids.empty()
                                   ? token
                                   : sequence_.position_ids[static_cast<size_t>(token)];
      std::ranges::copy(Rounded(Rotate(options, position, row)), row.begin());
    }
    return qkv;
  }

  // The same before they are turned, whatever the checkpoint's layout.
  Floats Qkv(const Floats& x, int64_t layer) const {
    const int64_t h = spec_.hidden_size, d = spec_.head_dim(), in = spec_.hidden_width(layer);
    const bool shared = spec_.qkv == QkvLayout::kSharedByHeads;
    Floats qkv(static_cast<size_t>(tokens_ * 3 * h));
    auto put = [&](int64_t token, int64_t column, float value) {
      qkv[static_cast<size_t>(token * 3 * h + column)] = value;
    };
    if (spec_.qkv == QkvLayout::kFused || spec_.qkv == QkvLayout::kFusedByHead) {
      const Floats fused = Dense(x, spec_.fused_qkv, layer, in, 3 * h);
      for (int64_t token = 0; token < tokens_; ++token) {
        for (int64_t c = 0; c < 3 * h; ++c) {
          const int64_t head = c / (3 * d), part = c % (3 * d) / d;
          const int64_t column = spec_.qkv == QkvLayout::kFused ? c : part * h + head * d + c % d;
          put(token, column, fused[static_cast<size_t>(token * 3 * h + c)]);
        }
      }
      return qkv;
    }
    int64_t part = 0;
    for (const TensorNames* names : {&spec_.query, &spec_.key, &spec_.value}) {
      const Floats rows = shared ? Dense(x, *names, layer, d, d) : Dense(x, *names, layer, in, h);
      for (int64_t i = 0; i < tokens_ * h; ++i)
        put(i / h, part * h + i % h, rows[static_cast<size_t>(i)]);
      ++part;
    }
    return qkv;
  }

  ops::PositionBias PositionBias() const {
    if (spec_.position_bias == PositionBiasKind::kAlibi) return ops::AlibiBias(spec_.num_heads);
    if (spec_.position_bias != PositionBiasKind::kBuckets) return {};
    return ops::BucketBias(Tensor(spec_.relative_bias.weight, 0), spec_.bias_buckets,
                           spec_.bias_max_distance);
  }

  // What the second product of the FFN is given.
  Floats FfnInner(const Floats& x, int64_t layer) const {
    const int64_t h = spec_.hidden_size, ffn = spec_.ffn_size;
    if (spec_.gate == Gate::kNone) return Dense(x, spec_.ffn_in, layer, h, ffn, spec_.activation);
    Floats both = Dense(x, spec_.ffn_in, layer, h, spec_.ffn_in_size());
    const bool separate = spec_.gate == Gate::kSeparate;
    const Floats gate = separate ? Dense(x, spec_.ffn_gate, layer, h, ffn) : Floats();
    Floats inner;
    for (int64_t token = 0; token < tokens_; ++token) {
      for (int64_t i = 0; i < ffn; ++i) {
        const auto first = static_cast<size_t>(token * spec_.ffn_in_size() + i);
        const auto second = first + static_cast<size_t>(ffn);
        const double gated =
            separate ? gate[first] : both[spec_.gate == Gate::kFirst ? first : second];
        const double other =
            separate ? both[first] : both[spec_.gate == Gate::kFirst ? second : first];
        inner.push_back(static_cast<float>(Activate(spec_.activation, gated) * other));
      }
    }
    return inner;
  }

  ops::DistanceRows RelativeRows() const {
    if (spec_.position_bias != PositionBiasKind::kDisentangled) return {};
    return ops::RowsOfDistances(spec_.bias_buckets, spec_.bias_max_distance);
  }

  // [relative_rows, 3 · hidden]: queries and keys of relative positions, where Qkv has those of
  // tokens.
  Floats RelativePositions(int64_t layer) const {
    if (spec_.position_bias != PositionBiasKind::kDisentangled) return {};
    const int64_t h = spec_.hidden_size;
    Floats table = Tensor(spec_.relative_embedding.weight, 0);
    if (!spec_.relative_embedding_norm.weight.empty()) {
      table = Norm(table, spec_.relative_embedding_norm, 0);
    }
    Floats result(static_cast<size_t>(spec_.relative_rows() * 3 * h), 0.0f);
    auto put = [&](const TensorNames& own, const TensorNames& block, int64_t part) {
      const Floats rows = Dense(table, own.weight.empty() ? block : own, layer, h, h);
      for (int64_t i = 0; i < spec_.relative_rows() * h; ++i) {
        result[static_cast<size_t>(i / h * 3 * h + part * h + i % h)] =
            rows[static_cast<size_t>(i)];
      }
    };
    if (spec_.position_to_content) put(spec_.position_query, spec_.query, 0);
    if (spec_.content_to_position) put(spec_.position_key, spec_.key, 1);
    return result;
  }

  Floats Block(const Floats& x, int64_t layer, EncoderResult& result) const {
    const int64_t h = spec_.hidden_size, d = spec_.head_dim();
    const bool pre = spec_.norm == NormPlacement::kPre, post = spec_.norm == NormPlacement::kPost;
    const ops::AttentionOptions options = {.heads = spec_.num_heads,
                                           .head_dim = d,
                                           .strides = {.row_stride = 3 * h,
                                                       .head_stride = d,
                                                       .q_offset = 0,
                                                       .k_offset = h,
                                                       .v_offset = 2 * h},
                                           .scale = static_cast<float>(spec_.score_scale),
                                           .position_bias = PositionBias(),
                                           .positions = RelativeRows()};
    const bool norm1 = layer > 0 || spec_.first_norm1;
    AttentionResult attention =
        Attention(options, TurnedQkv(pre && norm1 ? Norm(x, spec_.norm1, layer) : x, layer),
                  tokens_, sequence_.mask, spec_.window_of(layer), RelativePositions(layer));
    result.maps.push_back(std::move(attention.map));
    Floats a = Dense(Rounded(attention.context), spec_.attention_output, layer, h, h,
                     Activation::kNone, spec_.residual ? x : Floats());
    if (post) a = Norm(a, spec_.norm1, layer);
    if (spec_.ffn_size == 0) return a;
    const Floats inner = FfnInner(pre ? Norm(a, spec_.norm2, layer) : a, layer);
    const Floats out = Dense(inner, spec_.ffn_out, layer, spec_.ffn_size, h, Activation::kNone, a);
    return post ? Norm(out, spec_.norm2, layer) : out;
  }

  bool CountsForContacts(int64_t token) const {
    const auto at = static_cast<size_t>(token);
    const bool hidden = !sequence_.mask.keys.empty() && sequence_.mask.keys[at] == 0;
    const bool end =
        !sequence_.input_ids.empty() && sequence_.input_ids[at] == spec_.contact_end_id;
    return !hidden && !end;
  }

  // Map by map, as Rao et al. 2020 have it.
  Floats Contacts(const std::vector<std::vector<double>>& maps) const {
    const Floats weight = Tensor(spec_.contact.weight, 0), bias = Tensor(spec_.contact.bias, 0);
    const auto inner = static_cast<size_t>(ContactTokens(tokens_));
    std::vector<double> logits(inner * inner, bias.empty() ? 0 : bias[0]);
    for (size_t i = 0; i < weight.size(); ++i) {
      const auto heads = static_cast<size_t>(spec_.num_heads);
      const auto map_size = static_cast<size_t>(tokens_ * tokens_);
      const double* const map = maps[i / heads].data() + i % heads * map_size;
      const std::vector<double> corrected = Corrected(Symmetric(map), inner);
      for (size_t pair = 0; pair < logits.size(); ++pair) {
        logits[pair] += weight[i] * corrected[pair];
      }
    }
    for (double& logit : logits) logit = 1 / (1 + std::exp(-logit));
    return Rounded(logits);
  }

  // [S - 2, S - 2], of the tokens that count.
  std::vector<double> Symmetric(const double* map) const {
    std::vector<double> symmetric;
    for (int64_t i = 1; i + 1 < tokens_; ++i) {
      for (int64_t j = 1; j + 1 < tokens_; ++j) {
        const bool count = CountsForContacts(i) && CountsForContacts(j);
        symmetric.push_back(count ? map[i * tokens_ + j] + map[j * tokens_ + i] : 0);
      }
    }
    return symmetric;
  }

  // Average product correction.
  static std::vector<double> Corrected(std::vector<double> matrix, size_t size) {
    std::vector<double> sums(size);
    for (size_t i = 0; i < matrix.size(); ++i) sums[i / size] += matrix[i];
    const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
    if (total == 0) return matrix;
    for (size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] -= sums[i / size] * sums[i % size] / total;
    }
    return matrix;
  }

  const EncoderSpec& spec_;
  const Checkpoint& checkpoint_;
  const Sequence& sequence_;
  const int64_t tokens_;
};

}  // namespace

EncoderResult RunEncoder(const EncoderSpec& spec, const Checkpoint& checkpoint,
                         const Sequence& sequence) {
  return Runner(spec, checkpoint, sequence).Run();
}

}  // namespace encoderd::reference
