#include "engine/outputs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/tensor/convert.h"

namespace encoderd {
namespace {

// The largest magnitude that stays finite when it is rounded to the type.
float LargestFinite(DataType type) {
  switch (type) {
    case DataType::kFp16:
      return 65519.996f;  // the float before 65520, from where rounding to nearest gives infinity
    case DataType::kBf16:
      return std::bit_cast<float>(
          0x7F7F7FFFu);  // the float before the midpoint above the largest bfloat16
    case DataType::kFp32:
    case DataType::kFp64:
      break;
  }
  return std::numeric_limits<float>::max();
}

bool AllWithin(std::span<const float> values, float limit) {
  // Without their sign, floats sort like their bits, and NaN lies above all.
  uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu);
  }
  return largest <= std::bit_cast<uint32_t>(limit);
}

}  // namespace

const float* HiddenRows::Row(int64_t token) const {
  auto piece = pieces.begin();
  for (; token >= piece->tokens; ++piece) token -= piece->tokens;
  return piece->rows + token * width;
}

bool AllFinite(const HiddenRows& hidden) {
  return std::ranges::all_of(hidden.pieces, [&](const HiddenRows::Piece& piece) {
    return AllWithin(hidden.Floats(piece), LargestFinite(DataType::kFp32));
  });
}

bool WriteRows(std::span<const float> rows, int64_t first_row, DataType type,
               AnswerTensor& tensor) {
  const size_t row_bytes = static_cast<size_t>(tensor.shape.back()) * DataTypeBytes(type);
  const size_t bytes = rows.size() * DataTypeBytes(type);
  NarrowFromFp32(type, rows,
                 tensor.data.bytes().subspan(static_cast<size_t>(first_row) * row_bytes, bytes));
  return AllWithin(rows, LargestFinite(type));
}

bool WriteRows(const HiddenRows& hidden, int64_t first_row, DataType type, AnswerTensor& tensor) {
  bool finite = true;
  for (const HiddenRows::Piece& piece : hidden.pieces) {
    finite = WriteRows(hidden.Floats(piece), first_row, type, tensor) && finite;
    first_row += piece.tokens;
  }
  return finite;
}

void Pool(Pooling kind, const PooledRows& rows, std::span<float> dst) {
  int64_t count = 0;
  for (uint32_t row = rows.range.begin; row < rows.range.end; ++row) {
    if (!rows.keys.empty() && rows.keys[row] == 0) continue;
    const float* const hidden = rows.hidden.Row(row);
    if (count++ == 0) {
      std::copy(hidden, hidden + rows.hidden.width, dst.begin());
      if (kind == Pooling::kCls) return;
    } else if (kind == Pooling::kMax) {
      for (size_t i = 0; i < dst.size(); ++i) {
        // A NaN stays: max must not hide it.
        dst[i] = dst[i] < hidden[i] || std::isnan(hidden[i]) ? hidden[i] : dst[i];
      }
    } else {
      for (size_t i = 0; i < dst.size(); ++i) dst[i] += hidden[i];
    }
  }
  if (kind != Pooling::kMean) return;
  for (float& value : dst) value /= static_cast<float>(count);
}

bool WritePooled(std::span<float> vector, const PooledOutput& output, int64_t row, DataType type,
                 AnswerTensor& tensor) {
  const std::span<float> kept = vector.first(static_cast<size_t>(output.dimensions));
  if (output.normalize) {
    double squares = 0;
    for (const float value : kept) squares += static_cast<double>(value) * value;
    const float norm = std::max(static_cast<float>(std::sqrt(squares)), 1e-12f);
    for (float& value : kept) value /= norm;
  }
  return WriteRows(kept, row, type, tensor);
}

}  // namespace encoderd
