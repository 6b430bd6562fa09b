#include "engine/load_weights.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/faults.h"
#include "engine/operation_reader.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"
#include "engine/tensor/rounding.h"

namespace encoderd {
namespace {

// One model with one way of cutting rows.
class Loader {
 public:
  Loader(const EncoderSpec& spec, const Checkpoint& checkpoint, Precision precision,
         ops::RowBuckets buckets, Faults& faults)
      : spec_(spec),
        checkpoint_(checkpoint),
        precision_(precision),
        buckets_(buckets),
        reader_(spec, checkpoint, precision, buckets, faults) {}

  absl::StatusOr<EncoderWeights> ReadAll() {
    EncoderWeights weights;
    weights.buckets = buckets_;
    if (spec_.input == InputKind::kTokenIds) {
      ASSIGN_OR_RETURN(weights.words, checkpoint_.Read(spec_.word_embedding.weight));
    }
    ASSIGN_OR_RETURN(weights.positions, ReadPositions());
    if (spec_.type_vocab_size > 0) {
      ASSIGN_OR_RETURN(weights.types, checkpoint_.Read(spec_.type_embedding.weight));
    }
    ASSIGN_OR_RETURN(weights.input_steps, reader_.ReadSteps(spec_.input_steps, spec_.input_size()));
    if (!spec_.embedding_norm.weight.empty()) {
      ASSIGN_OR_RETURN(weights.embedding_norm, reader_.ReadNorm(spec_.embedding_norm));
    }
    ASSIGN_OR_RETURN(weights.embedding_steps,
                     reader_.ReadSteps(spec_.embedding_steps, spec_.table_width()));
    ASSIGN_OR_RETURN(weights.attention, BuildAttention());
    ASSIGN_OR_RETURN(const Buffer relative_table, ReadRelativeTable());
    // Where groups share tensors, every block has the same width, and a group its first block's.
    for (int64_t group = 0; group < spec_.num_groups(); ++group) {
      BlockWeights& block = weights.blocks.emplace_back();
      ASSIGN_OR_RETURN(block, ReadBlock(group));
      if (relative_table.size() == 0) continue;
      ASSIGN_OR_RETURN(block.relative,
                       ProjectRelativeTable(relative_table, group, block.qkv, weights.attention));
    }
    if (spec_.rotary_width > 0) {
      ASSIGN_OR_RETURN(weights.rotary, BuildRotary(spec_.rotary_base));
      if (spec_.local_window > 0) {
        ASSIGN_OR_RETURN(weights.rotary_local, BuildRotary(spec_.rotary_base_local));
      }
    }
    if (!spec_.final_norm.weight.empty()) {
      ASSIGN_OR_RETURN(weights.final_norm, reader_.ReadNorm(spec_.final_norm));
    }
    ASSIGN_OR_RETURN(weights.logits, reader_.ReadSteps(spec_.logits, spec_.hidden_size));
    ASSIGN_OR_RETURN(weights.classifier, reader_.ReadSteps(spec_.classifier, spec_.hidden_size));
    ASSIGN_OR_RETURN(weights.pooler, reader_.ReadSteps(spec_.pooler, spec_.hidden_size));
    ASSIGN_OR_RETURN(weights.projection, reader_.ReadSteps(spec_.projection, spec_.hidden_size));
    if (spec_.has_contacts()) {
      ASSIGN_OR_RETURN(weights.contact, ReadContact());
    }
    return weights;
  }

 private:
  absl::StatusOr<ops::Linear> ReadQkv(int64_t layer) const {
    const int64_t in = spec_.hidden_width(layer);
    auto named = [&](const TensorNames& pattern) { return AtLayer(pattern, layer); };
    const std::vector<TensorNames> separate = {named(spec_.query), named(spec_.key),
                                               named(spec_.value)};
    switch (spec_.qkv) {
      case QkvLayout::kSeparate:
        return reader_.ReadStacked(separate, in, 3 * spec_.hidden_size, reader_.InBlock());
      case QkvLayout::kSharedByHeads:
        return reader_.ReadStacked(separate, spec_.head_dim(), 3 * spec_.head_dim(),
                                   reader_.InBlock());
      case QkvLayout::kFused:
      case QkvLayout::kFusedByHead:
        break;
    }
    return reader_.ReadLinear(named(spec_.fused_qkv), in, 3 * spec_.hidden_size, reader_.InBlock());
  }

  absl::StatusOr<BlockWeights> ReadBlock(int64_t layer) const {
    BlockWeights block;
    auto named = [&](const TensorNames& pattern) { return AtLayer(pattern, layer); };
    const int64_t hidden = spec_.hidden_size;
    ASSIGN_OR_RETURN(block.qkv, ReadQkv(layer));
    const auto residual = spec_.residual ? ops::Combine::kAdd : ops::Combine::kNone;
    ASSIGN_OR_RETURN(block.attention_output,
                     reader_.ReadLinear(named(spec_.attention_output), hidden, hidden,
                                        reader_.InBlock(Activation::kNone, residual)));
    if (spec_.norm != NormPlacement::kNone && (layer > 0 || spec_.first_norm1)) {
      ASSIGN_OR_RETURN(block.norm1, reader_.ReadNorm(named(spec_.norm1)));
    }
    if (spec_.ffn_size == 0) return block;
    RETURN_IF_ERROR(ReadFfnIn(layer, block));
    ASSIGN_OR_RETURN(block.ffn_out, reader_.ReadLinear(named(spec_.ffn_out), spec_.ffn_size, hidden,
                                                       reader_.OutOfFfn(residual)));
    if (spec_.norm != NormPlacement::kNone) {
      ASSIGN_OR_RETURN(block.norm2, reader_.ReadNorm(named(spec_.norm2)));
    }
    return block;
  }

  // Room for rows that operations write, which is for as many as they round up to.
  static absl::StatusOr<Buffer> AllocateRows(int64_t rows, int64_t width, std::string_view what) {
    const int64_t rounded = RoundUp(rows, ops::RowBuckets::kFixedRows);
    return Buffer::AllocateZeroed(static_cast<size_t>(rounded * width) * sizeof(float), what);
  }

  // The table of relative positions as every block takes it; empty where there is none.
  absl::StatusOr<Buffer> ReadRelativeTable() const {
    if (spec_.position_bias != PositionBiasKind::kDisentangled) return Buffer();
    const std::string& name = spec_.relative_embedding.weight;
    const int64_t rows = spec_.relative_rows(), hidden = spec_.hidden_size;
    ASSIGN_OR_RETURN(Buffer table, AllocateRows(rows, hidden, name));
    RETURN_IF_ERROR(
        reader_.ReadFinite(name, table.floats().first(static_cast<size_t>(rows * hidden))));
    if (spec_.relative_embedding_norm.weight.empty()) return table;
    ASSIGN_OR_RETURN(const ops::LayerNorm norm, reader_.ReadNorm(spec_.relative_embedding_norm));
    norm.Run(table.floats().data(), rows, table.floats().data());
    return table;
  }

  // What a block makes of that table. It depends on nothing that is asked, so it is made once.
  absl::StatusOr<Buffer> ProjectRelativeTable(const Buffer& table, int64_t layer,
                                              const ops::Linear& block_qkv,
                                              const ops::Attention& attention) const {
    const int64_t rows = spec_.relative_rows(), hidden = spec_.hidden_size;
    ops::Linear qkv = block_qkv;
    if (!spec_.position_key.weight.empty() || !spec_.position_query.weight.empty()) {
      const auto own_or = [&](const TensorNames& own, const TensorNames& block) {
        return AtLayer(own.weight.empty() ? block : own, layer);
      };
      ASSIGN_OR_RETURN(qkv, reader_.ReadStacked({own_or(spec_.position_query, spec_.query),
                                                 own_or(spec_.position_key, spec_.key),
                                                 AtLayer(spec_.value, layer)},
                                                hidden, 3 * hidden, reader_.InBlock()));
    }
    ASSIGN_OR_RETURN(Buffer projected, AllocateRows(rows, 3 * hidden, "relative positions"));
    ASSIGN_OR_RETURN(Buffer scratchpad, Buffer::Allocate(qkv.scratchpad_bytes(), "scratchpad"));
    RETURN_IF_ERROR(qkv.Run(table.floats().data(), rows, /*other=*/nullptr,
                            projected.floats().data(), scratchpad.bytes()));
    for (int64_t row = 0; row < rows; ++row) {
      float* const query = projected.floats().data() + row * 3 * hidden;
      if (!spec_.position_to_content) std::fill_n(query, hidden, 0.0f);
      if (!spec_.content_to_position) std::fill_n(query + hidden, hidden, 0.0f);
    }
    return attention.PackPositions(projected.floats().data());
  }

  absl::StatusOr<ops::PositionBias> ReadPositionBias() const {
    switch (spec_.position_bias) {
      case PositionBiasKind::kNone:
      case PositionBiasKind::kDisentangled:
        return ops::PositionBias();
      case PositionBiasKind::kAlibi:
        return ops::AlibiBias(spec_.num_heads);
      case PositionBiasKind::kBuckets:
        break;
    }
    ASSIGN_OR_RETURN(const Buffer table, reader_.ReadFinite(spec_.relative_bias.weight));
    return ops::BucketBias(table.floats(), spec_.bias_buckets, spec_.bias_max_distance);
  }

  // The two products of a gated FFN are told apart here, however the file holds them.
  absl::Status ReadFfnIn(int64_t layer, BlockWeights& block) const {
    const int64_t hidden = spec_.hidden_size, ffn = spec_.ffn_size;
    const TensorNames in = AtLayer(spec_.ffn_in, layer);
    if (spec_.gate == Gate::kNone) {
      ASSIGN_OR_RETURN(block.ffn_in,
                       reader_.ReadLinear(in, hidden, ffn, reader_.IntoFfn(spec_.activation)));
      return absl::OkStatus();
    }
    if (spec_.gate == Gate::kSeparate) {
      ASSIGN_OR_RETURN(block.ffn_gate, reader_.ReadLinear(AtLayer(spec_.ffn_gate, layer), hidden,
                                                          ffn, reader_.IntoFfn(spec_.activation)));
      ASSIGN_OR_RETURN(block.ffn_in, reader_.ReadLinear(in, hidden, ffn,
                                                        reader_.IntoFfn(Activation::kNone,
                                                                        ops::Combine::kMultiply)));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const OperationReader::Matrix both, reader_.ReadMatrix({in}, hidden, 2 * ffn));
    const bool first = spec_.gate == Gate::kFirst;
    ASSIGN_OR_RETURN(block.ffn_gate,
                     reader_.Build(both, first ? 0 : ffn, ffn, reader_.IntoFfn(spec_.activation)));
    ASSIGN_OR_RETURN(block.ffn_in,
                     reader_.Build(both, first ? ffn : 0, ffn,
                                   reader_.IntoFfn(Activation::kNone, ops::Combine::kMultiply)));
    return absl::OkStatus();
  }

  ops::QkvStrides Strides() const {
    const int64_t d = spec_.head_dim();
    const int64_t hidden = spec_.hidden_size;
    // The shared matrices see each head as a row of its own, which leaves q, k and v grouped by
    // head.
    const bool by_head =
        spec_.qkv == QkvLayout::kFusedByHead || spec_.qkv == QkvLayout::kSharedByHeads;
    return {.row_stride = 3 * hidden,
            .head_stride = by_head ? 3 * d : d,
            .q_offset = 0,
            .k_offset = by_head ? d : hidden,
            .v_offset = by_head ? 2 * d : 2 * hidden};
  }

  // Attention has no weights to keep in 8 bits. Where there are matrix tiles, it is many times
  // faster in bf16, and its part of the error small.
  Precision AttentionPrecision() const {
    if (precision_ != Precision::kInt8) return precision_;
    return ops::HasTiles() ? Precision::kBf16 : Precision::kFp32;
  }

  absl::StatusOr<ops::Attention> BuildAttention() const {
    ASSIGN_OR_RETURN(ops::PositionBias position_bias, ReadPositionBias());
    ops::DistanceRows positions;
    if (spec_.position_bias == PositionBiasKind::kDisentangled) {
      positions = ops::RowsOfDistances(spec_.bias_buckets, spec_.bias_max_distance);
    }
    return ops::Attention::Create({.precision = AttentionPrecision(),
                                   .heads = spec_.num_heads,
                                   .head_dim = spec_.head_dim(),
                                   .strides = Strides(),
                                   .scale = static_cast<float>(spec_.score_scale),
                                   .position_bias = std::move(position_bias),
                                   .positions = std::move(positions)});
  }

  absl::StatusOr<ops::Rotary> BuildRotary(double base) const {
    Buffer frequencies;
    if (!spec_.rotary_frequencies.weight.empty()) {
      ASSIGN_OR_RETURN(frequencies, reader_.ReadFinite(spec_.rotary_frequencies.weight));
    }
    return ops::Rotary::Create({.heads = spec_.num_heads,
                                .strides = Strides(),
                                .width = spec_.rotary_width,
                                .positions = spec_.max_positions,
                                .base = base,
                                .divisor = spec_.rotary_divisor,
                                .frequencies = frequencies.floats()});
  }

  absl::StatusOr<ContactWeights> ReadContact() const {
    ASSIGN_OR_RETURN(
        OperationReader::Matrix matrix,
        reader_.ReadMatrix({spec_.contact}, spec_.num_layers * spec_.num_heads, /*out=*/1));
    const float bias = matrix.bias.size() > 0 ? matrix.bias.floats()[0] : 0;
    return ContactWeights{.weight = std::move(matrix.weights), .bias = bias};
  }

  absl::StatusOr<Buffer> ReadPositions() const {
    if (spec_.positions == PositionKind::kLearned) {
      return checkpoint_.Read(spec_.position_embedding.weight);
    }
    if (spec_.positions == PositionKind::kNone) return Buffer();
    // Vaswani et al. 2017, 3.5, in single precision as PyTorch code computes it: at position 5000
    // the rounding of the angle is 10⁻⁴, and trained models have it built in.
    const auto width = static_cast<size_t>(spec_.table_width());
    ASSIGN_OR_RETURN(Buffer table, Buffer::Allocate(static_cast<size_t>(spec_.position_rows()) *
                                                        width * sizeof(float),
                                                    "sinusoidal positions"));
    for (size_t i = 0; i < width; i += 2) {
      const float exponent =
          static_cast<float>(i) * (-std::log(10000.0f) / static_cast<float>(width));
      const float frequency = std::exp(exponent);
      for (size_t position = 0; position < static_cast<size_t>(spec_.position_rows()); ++position) {
        const float angle = static_cast<float>(position) * frequency;
        table.floats()[position * width + i] = std::sin(angle);
        if (i + 1 < width) table.floats()[position * width + i + 1] = std::cos(angle);
      }
    }
    return table;
  }

  static TensorNames AtLayer(const TensorNames& pattern, int64_t layer) {
    return {LayerName(pattern.weight, layer), LayerName(pattern.bias, layer)};
  }

  const EncoderSpec& spec_;
  const Checkpoint& checkpoint_;
  const Precision precision_;  // of the blocks' products
  const ops::RowBuckets buckets_;
  OperationReader reader_;
};

}  // namespace

absl::StatusOr<EncoderWeights> LoadWeights(const EncoderSpec& spec, const Checkpoint& checkpoint,
                                           Precision precision, bool allow_nonfinite,
                                           RowCheck& check) {
  const ops::RowBuckets steps(ops::RowBuckets::Mode::kSteps);
  Faults faults;
  ASSIGN_OR_RETURN(EncoderWeights weights,
                   Loader(spec, checkpoint, precision, steps, faults).ReadAll());
  if (!allow_nonfinite) RETURN_IF_ERROR(faults.ToStatus(checkpoint.files().path()));
  ASSIGN_OR_RETURN(const bool agree, check.Agree(weights));
  if (!agree) {
    weights = EncoderWeights();  // frees the packed weights before they are read again
    const ops::RowBuckets fixed(ops::RowBuckets::Mode::kFixed);
    ASSIGN_OR_RETURN(weights, Loader(spec, checkpoint, precision, fixed, faults).ReadAll());
  }
  weights.nonfinite = faults.all();
  return weights;
}

}  // namespace encoderd
