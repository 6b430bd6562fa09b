#include "engine/ops/linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/ops/onednn.h"
#include "engine/ops/operand.h"
#include "engine/ops/panel.h"
#include "engine/ops/panel_product.h"
#include "engine/ops/runtime.h"
#include "engine/ops/ukernel.h"
#include "engine/status_macros.h"
#include "engine/tensor/buffer.h"
#include "engine/tensor/rounding.h"

namespace encoderd::ops {
namespace {

// A depth at which no sum of 8-bit products can leave 32 bits: 255 · 127 · 2¹⁶ < 2³¹.
constexpr int64_t kMaxInt8Depth = int64_t{1} << 16;

constexpr int64_t kChunkRows = PanelProduct::kChunkRows;

// Where the rows of a chunk lie as the kernels read them.
struct Operand {
  const std::byte* rows = nullptr;
  const QuantizedRow* quantized = nullptr;  // of 8-bit rows
};

constexpr size_t RowTypeBytes(RowType type) { return type == RowType::kBf16 ? 2 : 4; }

// The values from `offset` on; null stays null.
template <typename Bytes>
Bytes* At(Bytes* rows, RowType type, int64_t offset) {
  return rows == nullptr ? nullptr : rows + static_cast<size_t>(offset) * RowTypeBytes(type);
}

}  // namespace

struct Linear::Impl {
  std::string name;
  int64_t in = 0;
  int64_t out = 0;
  Activation activation = Activation::kNone;
  Combine combine = Combine::kNone;
  Precision precision = Precision::kFp32;
  RowType src_type = RowType::kFp32;
  RowType dst_type = RowType::kFp32;
  RowBuckets buckets;
  PanelProduct product;
  Buffer weights;       // as the product packs them
  Buffer bias;          // [product.columns()], as are the two below
  Buffer column_steps;  // of 8-bit weights
  Buffer column_sums;   // of what these weights stand for

  int64_t depth() const { return product.depth(); }  // `in`, padded
  size_t bytes_of(int64_t values) const {
    return static_cast<size_t>(values * OperandBytes(precision));
  }

  // Whether rows can be read where they are.
  bool reads_in_place() const {
    const Precision own = src_type == RowType::kBf16 ? Precision::kBf16 : Precision::kFp32;
    return precision == own && depth() == in;
  }

  // Scratchpad: the rows of a chunk, how they are quantised, the sums of a block.
  size_t operand_bytes() const {
    if (reads_in_place()) return 0;
    return RoundUp(bytes_of((kChunkRows + RowBuckets::kPaddingRows) * depth()), Buffer::kAlignment);
  }
  static constexpr size_t kQuantizedBytes = kChunkRows * sizeof(QuantizedRow);

  absl::Status Pack(const LinearOptions& options);
  void PackRow(std::span<const float> row, int64_t column, std::byte* packed);
  Operand Encode(const std::byte* src, int64_t rows, std::span<std::byte> scratchpad) const;
  template <typename T>
  QuantizedRow EncodeRow(const T* src, std::byte* encoded) const;
  void RunChunk(const std::byte* src, int64_t rows, const std::byte* other, std::byte* dst,
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
  impl->src_type = options.src_type;
  impl->dst_type = options.dst_type;
  impl->buckets = buckets;
  RETURN_IF_ERROR(CatchOneDnn(options.name, [&] {
    impl->product =
        PanelProduct(options.precision, PaddedDepth(options.precision, in), out, buckets);
  }));
  RETURN_IF_ERROR(impl->Pack(options));
  Linear linear;
  linear.impl_ = std::move(impl);
  return linear;
}

absl::Status Linear::Impl::Pack(const LinearOptions& options) {
  const auto column_bytes = static_cast<size_t>(product.columns()) * sizeof(float);
  ASSIGN_OR_RETURN(weights, Buffer::AllocateLasting(product.weight_bytes(), name));
  ASSIGN_OR_RETURN(bias, Buffer::AllocateLasting(column_bytes, name));
  std::ranges::copy(options.bias, bias.floats().begin());
  if (precision == Precision::kInt8) {
    ASSIGN_OR_RETURN(column_steps, Buffer::AllocateLasting(column_bytes, name));
    ASSIGN_OR_RETURN(column_sums, Buffer::AllocateLasting(column_bytes, name));
  }
  const size_t row_bytes = bytes_of(depth());
  ASSIGN_OR_RETURN(const Buffer panel, Buffer::Allocate(kPanelColumns * row_bytes, name));
  for (int64_t first = 0; first < out; first += kPanelColumns) {
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      std::byte* const row = panel.data() + static_cast<size_t>(i) * row_bytes;
      if (first + i < out) {
        PackRow(
            options.weights.subspan(static_cast<size_t>((first + i) * in), static_cast<size_t>(in)),
            first + i, row);
      } else {
        std::memset(row, 0, row_bytes);  // computed, too
      }
    }
    product.Pack(panel.data(), first, weights.data());
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
      RoundToBf16(row.data(), in, depth(), reinterpret_cast<uint16_t*>(packed));
      return;
    case Precision::kInt8:
      const auto at = static_cast<size_t>(column);
      auto* const bytes = reinterpret_cast<int8_t*>(packed);
      const float step = QuantizeWeights(row.data(), in, depth(), bytes);
      column_steps.floats()[at] = step;
      column_sums.floats()[at] = step * static_cast<float>(std::accumulate(bytes, bytes + in, 0));
      return;
  }
}

// ---- Running ------------------------------------------------------------------------------------

absl::Status Linear::Run(const void* src, int64_t rows, const void* other, void* dst,
                         std::span<std::byte> scratchpad) const {
  const Impl& impl = *impl_;
  ++ThreadOpCounts().executes;
  return CatchOneDnn(impl.name, [&] {
    const TileUse tiles;
    for (int64_t first = 0; first < rows; first += kChunkRows) {
      impl.RunChunk(At(static_cast<const std::byte*>(src), impl.src_type, first * impl.in),
                    std::min(kChunkRows, rows - first),
                    At(static_cast<const std::byte*>(other), impl.dst_type, first * impl.out),
                    At(static_cast<std::byte*>(dst), impl.dst_type, first * impl.out), scratchpad);
    }
  });
}

template <typename T>
QuantizedRow Linear::Impl::EncodeRow(const T* src, std::byte* encoded) const {
  constexpr bool kFromBf16 = std::is_same_v<T, uint16_t>;
  switch (precision) {
    case Precision::kFp32:
      if constexpr (kFromBf16) WidenBf16(src, in, reinterpret_cast<float*>(encoded));
      return {};
    case Precision::kBf16:
      if constexpr (kFromBf16) {
        std::memcpy(encoded, src, bytes_of(in));
        std::memset(encoded + bytes_of(in), 0, bytes_of(depth() - in));
      } else {
        RoundToBf16(src, in, depth(), reinterpret_cast<uint16_t*>(encoded));
      }
      return {};
    case Precision::kInt8:
      return QuantizeRow(src, in, depth(), reinterpret_cast<uint8_t*>(encoded));
  }
  return {};
}

Operand Linear::Impl::Encode(const std::byte* src, int64_t rows,
                             std::span<std::byte> scratchpad) const {
  if (reads_in_place()) return {.rows = src};
  std::byte* const encoded = scratchpad.data();
  auto* const quantized = reinterpret_cast<QuantizedRow*>(encoded + operand_bytes());
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* const from = At(src, src_type, row * in);
    std::byte* const to = encoded + bytes_of(row * depth());
    quantized[row] = src_type == RowType::kBf16
                         ? EncodeRow(reinterpret_cast<const uint16_t*>(from), to)
                         : EncodeRow(reinterpret_cast<const float*>(from), to);
  }
  return {.rows = encoded, .quantized = precision == Precision::kInt8 ? quantized : nullptr};
}

void Linear::Impl::RunChunk(const std::byte* src, int64_t rows, const std::byte* other,
                            std::byte* dst, std::span<std::byte> scratchpad) const {
  const Operand operand = Encode(src, rows, scratchpad);
  std::byte* const sums = scratchpad.data() + operand_bytes() + kQuantizedBytes;
  product.Run({operand.rows, rows, weights.data(), sums}, [&](const PanelProduct::Part& part) {
    const auto at = static_cast<size_t>(part.column);
    const int64_t offset = part.row * out + part.column;
    FinishPanel({.sums = part.sums,
                 .rows = part.rows,
                 .columns = std::min(kPanelColumns, out - part.column),
                 .bias = bias.floats().data() + at,
                 .quantized = operand.quantized == nullptr ? nullptr : operand.quantized + part.row,
                 .column_steps = column_steps.floats().data() + at,
                 .column_sums = column_sums.floats().data() + at,
                 .activation = activation,
                 .combine = combine,
                 .type = dst_type,
                 .other = At(other, dst_type, offset),
                 .dst = At(dst, dst_type, offset),
                 .stride = out});
  });
}

// ---- What it is ---------------------------------------------------------------------------------

int64_t Linear::in() const { return impl_->in; }
int64_t Linear::out() const { return impl_->out; }
size_t Linear::weights_bytes() const {
  return impl_->weights.size() + impl_->bias.size() + impl_->column_steps.size() +
         impl_->column_sums.size();
}
size_t Linear::scratchpad_bytes() const {
  return impl_->operand_bytes() + Impl::kQuantizedBytes + impl_->product.sum_bytes();
}

std::string Linear::Implementation() const { return impl_->product.Implementation(); }

std::string Linear::Kind() const {
  return absl::StrCat("linear ", std::string(PrecisionName(impl_->precision)), " ", impl_->in, " ",
                      impl_->out, " ", static_cast<int>(impl_->src_type), " ",
                      static_cast<int>(impl_->dst_type), " ", static_cast<int>(impl_->activation),
                      " ", static_cast<int>(impl_->combine));
}

// Fills a block with three rows in turn, runs it at every size, and compares every row of the result
// with the first of its kind: a row's bits must depend neither on the block, nor on its place, nor
// on what lies beside it.
absl::StatusOr<bool> Linear::RowsAgree() const {
  const Impl& impl = *impl_;
  constexpr int64_t kKinds = 3;
  constexpr int64_t kRows = RowBuckets::kMaxRows;
  const size_t src_bytes = static_cast<size_t>(impl.in) * RowTypeBytes(impl.src_type);
  const size_t dst_bytes = static_cast<size_t>(impl.out) * RowTypeBytes(impl.dst_type);
  ASSIGN_OR_RETURN(const Buffer src, Buffer::Allocate(kRows * src_bytes, impl.name));
  ASSIGN_OR_RETURN(const Buffer other, Buffer::AllocateZeroed(kRows * dst_bytes, impl.name));
  ASSIGN_OR_RETURN(const Buffer dst, Buffer::Allocate(kRows * dst_bytes, impl.name));
  ASSIGN_OR_RETURN(const Buffer first, Buffer::Allocate(kKinds * dst_bytes, impl.name));
  ASSIGN_OR_RETURN(const Buffer scratchpad, Buffer::Allocate(scratchpad_bytes(), impl.name));
  std::vector<float> values(static_cast<size_t>(impl.in));
  for (int64_t row = 0; row < kRows; ++row) {
    // Irregular values of either sign and of very different size from row to row, so that another
    // order of summation, or a value from a neighbour, shows in the last bits.
    const auto kind = static_cast<float>(row % kKinds);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(i * i + 1) + kind) * std::pow(100.0f, kind - 1);
    }
    std::byte* const to = src.data() + static_cast<size_t>(row) * src_bytes;
    if (impl.src_type == RowType::kBf16) {
      RoundToBf16(values.data(), impl.in, impl.in, reinterpret_cast<uint16_t*>(to));
    } else {
      std::memcpy(to, values.data(), src_bytes);
    }
  }
  for (int64_t index = 0; index < impl.buckets.count(); ++index) {
    const int64_t rows = impl.buckets.rows(index);
    RETURN_IF_ERROR(Run(src.data(), rows, other.data(), dst.data(), scratchpad.bytes()));
    if (index == 0) std::memcpy(first.data(), dst.data(), first.size());
    for (int64_t row = 0; row < rows; ++row) {
      if (std::memcmp(dst.data() + static_cast<size_t>(row) * dst_bytes,
                      first.data() + static_cast<size_t>(row % kKinds) * dst_bytes,
                      dst_bytes) != 0) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace encoderd::ops
