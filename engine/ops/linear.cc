#include "engine/ops/linear.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/ops/onednn.h"
#include "engine/ops/operand.h"
#include "engine/ops/panel.h"
#include "engine/ops/rounding.h"
#include "engine/ops/row_check.h"
#include "engine/ops/row_kernels.h"
#include "engine/ops/runtime.h"
#include "engine/ops/softmax.h"
#include "engine/status_macros.h"
#include "engine/tensor/buffer.h"

namespace encoderd::ops {
namespace {

// Rows that go through all panels together: in fp32, at a width of 1536, they are 1.5 MiB and stay
// in a 2 MiB L2 cache.
constexpr int64_t kChunkRows = 256;
// Of the sum over a row that one micro-kernel computes: beyond it, what the kernel reads of A and B
// no longer stays in L1 and L2.
constexpr int64_t kMaxDepthBlock = 768;
// A depth at which no sum of 8-bit products can leave 32 bits: 255 · 127 · 2¹⁶ < 2³¹.
constexpr int64_t kMaxInt8Depth = int64_t{1} << 16;
// What makes unsigned bytes of quantised activations, which is what the kernels want.
constexpr uint8_t kActivationBias = 128;

static_assert(kPanelColumns == kKeyBlock, "TransposeKeys makes panels");

// Where the rows of a chunk lie as the kernels read them.
struct Operand {
  const std::byte* rows = nullptr;
  const float* scales = nullptr;  // of 8-bit rows
};

}  // namespace

struct Linear::Impl {
  std::string name;
  int64_t in = 0;
  int64_t out = 0;
  Activation activation = Activation::kNone;
  Combine combine = Combine::kNone;
  Precision precision = Precision::kFp32;
  RowBuckets buckets;
  int64_t depth = 0;        // `in`, padded
  int64_t depth_block = 0;  // of all blocks but the last, which may be shorter
  std::vector<std::shared_ptr<const RowKernels>> kernels;  // by depth block
  Buffer weights;         // [panels][depth][kPanelColumns], rows interleaved as Ukernel says
  Buffer bias;            // [panels · kPanelColumns], as are the two below
  Buffer column_scales;   // of 8-bit weights
  Buffer column_offsets;  // int32: what kActivationBias adds to the sums

  int64_t panels() const { return CeilDiv(out, kPanelColumns); }
  size_t bytes_of(int64_t values) const {
    return static_cast<size_t>(values * OperandBytes(precision));
  }

  // Scratchpad: the rows of a chunk, their scales, the sums of a block.
  size_t operand_bytes() const {
    if (precision == Precision::kFp32) return 0;
    return bytes_of((kChunkRows + RowBuckets::kPaddingRows) * depth);
  }
  static constexpr size_t kScaleBytes = kChunkRows * sizeof(float);
  static constexpr size_t kSumBytes = RowBuckets::kMaxRows * kPanelColumns * sizeof(float);

  absl::Status Pack(const LinearOptions& options);
  void PackRow(std::span<const float> row, int64_t column, std::byte* packed);
  Operand Encode(const float* src, int64_t rows, std::span<std::byte> scratchpad) const;
  void RunChunk(const float* src, int64_t rows, const float* other, float* dst,
                std::span<std::byte> scratchpad) const;
};

// ---- Packing ------------------------------------------------------------------------------------

absl::StatusOr<Linear> Linear::Create(const LinearOptions& options, const RowBuckets& buckets) {
  const auto [in, out] = std::pair(options.in, options.out);
  if (in <= 0 || out <= 0 || static_cast<int64_t>(options.weights.size()) != in * out ||
      (!options.bias.empty() && static_cast<int64_t>(options.bias.size()) != out)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.name, ": expected weights [", out, ", ", in, "] and bias [", out, "] or none; got ",
        options.weights.size(), " and ", options.bias.size(), " elements"));
  }
  if (options.precision == Precision::kInt8 && in > kMaxInt8Depth) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": int8 sums at most ",
                                                   kMaxInt8Depth, " products exactly; got ", in));
  }
  auto impl = std::make_shared<Impl>();
  impl->name = options.name;
  impl->in = in;
  impl->out = out;
  impl->activation = options.activation;
  impl->combine = options.combine;
  impl->precision = options.precision;
  impl->buckets = buckets;
  impl->depth = PaddedDepth(options.precision, in);
  // Blocks of equal depth, as far as whole rows of tiles allow.
  constexpr int64_t kDepthStep = 64;
  impl->depth_block = std::min(
      impl->depth, RoundUp(CeilDiv(impl->depth, CeilDiv(impl->depth, kMaxDepthBlock)), kDepthStep));
  RETURN_IF_ERROR(CatchOneDnn(options.name, [&] {
    for (int64_t first = 0; first < impl->depth; first += impl->depth_block) {
      impl->kernels.push_back(
          RowKernels::Of({.precision = options.precision,
                          .depth = std::min(impl->depth_block, impl->depth - first),
                          .stride = impl->depth,
                          .accumulate = first > 0}));
    }
  }));
  RETURN_IF_ERROR(impl->Pack(options));
  Linear linear;
  linear.impl_ = std::move(impl);
  return linear;
}

absl::Status Linear::Impl::Pack(const LinearOptions& options) {
  const int64_t columns = panels() * kPanelColumns;
  const auto column_bytes = static_cast<size_t>(columns) * sizeof(float);
  // Zeroed: the columns behind the last one are computed, too.
  ASSIGN_OR_RETURN(weights, Buffer::AllocateZeroed(bytes_of(columns * depth), name));
  ASSIGN_OR_RETURN(bias, Buffer::AllocateZeroed(column_bytes, name));
  std::ranges::copy(options.bias, bias.floats().begin());
  if (precision == Precision::kInt8) {
    ASSIGN_OR_RETURN(column_scales, Buffer::AllocateZeroed(column_bytes, name));
    ASSIGN_OR_RETURN(column_offsets, Buffer::AllocateZeroed(column_bytes, name));
  }
  ASSIGN_OR_RETURN(const Buffer rows, Buffer::Allocate(bytes_of(kPanelColumns * depth), name));
  const auto row_bytes = bytes_of(depth);
  for (int64_t first = 0; first < out; first += kPanelColumns) {
    const int64_t count = std::min(kPanelColumns, out - first);
    for (int64_t i = 0; i < count; ++i) {
      PackRow(
          options.weights.subspan(static_cast<size_t>((first + i) * in), static_cast<size_t>(in)),
          first + i, rows.data() + static_cast<size_t>(i) * row_bytes);
    }
    // torch keeps [out, in]: columns are to be rows. What is interleaved moves as one.
    TransposeKeys(rows.floats().data(), static_cast<int64_t>(row_bytes / sizeof(float)), count,
                  static_cast<int64_t>(row_bytes / sizeof(float)),
                  reinterpret_cast<float*>(weights.data() + bytes_of(first * depth)));
  }
  ++ThreadOpCounts().packings;
  return absl::OkStatus();
}

// Writes a row of weights as an operand, and what is needed to take its sums back.
void Linear::Impl::PackRow(std::span<const float> row, int64_t column, std::byte* packed) {
  switch (precision) {
    case Precision::kFp32:
      std::memcpy(packed, row.data(), row.size_bytes());
      return;
    case Precision::kBf16:
      RoundToBf16(row.data(), in, depth, reinterpret_cast<uint16_t*>(packed));
      return;
    case Precision::kInt8:
      const auto at = static_cast<size_t>(column);
      auto* const bytes = reinterpret_cast<uint8_t*>(packed);
      column_scales.floats()[at] = QuantizeRow(row.data(), in, depth, /*bias=*/0, bytes);
      int32_t sum = 0;
      for (int64_t i = 0; i < in; ++i) sum += static_cast<int8_t>(bytes[i]);
      reinterpret_cast<int32_t*>(column_offsets.data())[at] = kActivationBias * sum;
      return;
  }
}

// ---- Running ------------------------------------------------------------------------------------

absl::Status Linear::Run(const float* src, int64_t rows, const float* other, float* dst,
                         std::span<std::byte> scratchpad) const {
  const Impl& impl = *impl_;
  ++ThreadOpCounts().executes;
  return CatchOneDnn(impl.name, [&] {
    const TileUse tiles;
    for (int64_t first = 0; first < rows; first += kChunkRows) {
      impl.RunChunk(src + first * impl.in, std::min(kChunkRows, rows - first),
                    other == nullptr ? nullptr : other + first * impl.out, dst + first * impl.out,
                    scratchpad);
    }
  });
}

Operand Linear::Impl::Encode(const float* src, int64_t rows,
                             std::span<std::byte> scratchpad) const {
  std::byte* const encoded = scratchpad.data();
  auto* const scales = reinterpret_cast<float*>(encoded + operand_bytes());
  switch (precision) {
    case Precision::kFp32:
      return {.rows = reinterpret_cast<const std::byte*>(src)};
    case Precision::kBf16:
      for (int64_t row = 0; row < rows; ++row) {
        RoundToBf16(src + row * in, in, depth,
                    reinterpret_cast<uint16_t*>(encoded + bytes_of(row * depth)));
      }
      return {.rows = encoded};
    case Precision::kInt8:
      for (int64_t row = 0; row < rows; ++row) {
        scales[row] = QuantizeRow(src + row * in, in, depth, kActivationBias,
                                  reinterpret_cast<uint8_t*>(encoded + bytes_of(row * depth)));
      }
      return {.rows = encoded, .scales = scales};
  }
  return {};
}

// Panel by panel, so that weights are read once for all rows of the chunk.
void Linear::Impl::RunChunk(const float* src, int64_t rows, const float* other, float* dst,
                            std::span<std::byte> scratchpad) const {
  const Operand operand = Encode(src, rows, scratchpad);
  std::byte* const sums = scratchpad.data() + operand_bytes() + kScaleBytes;
  for (int64_t column = 0; column < out; column += kPanelColumns) {
    const auto at = static_cast<size_t>(column);
    const std::byte* const panel = weights.data() + bytes_of(column * depth);
    buckets.ForEachChunk(rows, [&](int64_t first, int64_t bucket_rows) {
      for (size_t block = 0; block < kernels.size(); ++block) {
        const auto skipped = static_cast<int64_t>(block) * depth_block;
        kernels[block]
            ->For(bucket_rows)
            .Run(operand.rows + bytes_of(first * depth + skipped),
                 panel + bytes_of(skipped * kPanelColumns), sums);
      }
      FinishPanel({.sums = sums,
                   .rows = std::min(bucket_rows, rows - first),
                   .columns = std::min(kPanelColumns, out - column),
                   .bias = bias.floats().data() + at,
                   .row_scales = operand.scales == nullptr ? nullptr : operand.scales + first,
                   .column_scales = column_scales.floats().data() + at,
                   .column_offsets = reinterpret_cast<const int32_t*>(column_offsets.data()) + at,
                   .activation = activation,
                   .combine = combine,
                   .other = other == nullptr ? nullptr : other + first * out + column,
                   .dst = dst + first * out + column,
                   .stride = out});
    });
  }
}

// ---- What it is ---------------------------------------------------------------------------------

int64_t Linear::in() const { return impl_->in; }
int64_t Linear::out() const { return impl_->out; }
size_t Linear::weights_bytes() const {
  return impl_->weights.size() + impl_->bias.size() + impl_->column_scales.size() +
         impl_->column_offsets.size();
}
size_t Linear::scratchpad_bytes() const {
  return impl_->operand_bytes() + Impl::kScaleBytes + Impl::kSumBytes;
}

std::string Linear::Kind() const {
  return absl::StrCat("linear ", std::string(PrecisionName(impl_->precision)), " ", impl_->in, " ",
                      impl_->out, " ", static_cast<int>(impl_->activation), " ",
                      static_cast<int>(impl_->combine));
}

absl::StatusOr<bool> Linear::RowsAgree() const {
  ASSIGN_OR_RETURN(Buffer scratchpad, Buffer::Allocate(scratchpad_bytes(), impl_->name));
  const int64_t rows = impl_->buckets.rows(impl_->buckets.count() - 1);
  ASSIGN_OR_RETURN(
      Buffer other,
      Buffer::Allocate(
          impl_->combine == Combine::kNone ? 0 : static_cast<size_t>(rows * out()) * sizeof(float),
          impl_->name));
  std::fill(other.floats().begin(), other.floats().end(), 1.0f);
  return RowsAgreeInEveryBucket(
      impl_->buckets, in(), out(), [&](const float* src, int64_t count, float* dst) {
        return Run(src, count, other.floats().data(), dst, scratchpad.bytes());
      });
}

}  // namespace encoderd::ops
