// data_type.h — the element types that tensors have in weight files and in answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace encoderd {

// The engine computes in FP32. The others are read from files (all of them) or written to answers
// (FP32, BF16, FP16).
enum class DataType { kFp32, kBf16, kFp16, kFp64 };

constexpr size_t DataTypeBytes(DataType type) {
  switch (type) {
    case DataType::kFp32:
      return 4;
    case DataType::kBf16:
    case DataType::kFp16:
      return 2;
    case DataType::kFp64:
      return 8;
  }
  return 0;
}

constexpr std::string_view DataTypeName(DataType type) {
  switch (type) {
    case DataType::kFp32:
      return "FP32";
    case DataType::kBf16:
      return "BF16";
    case DataType::kFp16:
      return "FP16";
    case DataType::kFp64:
      return "FP64";
  }
  return "";
}

// The type that a safetensors header calls by this name, or nothing: "F32", "BF16", "F16", "F64".
constexpr std::optional<DataType> DataTypeFromSafetensors(std::string_view name) {
  if (name == "F32") return DataType::kFp32;
  if (name == "BF16") return DataType::kBf16;
  if (name == "F16") return DataType::kFp16;
  if (name == "F64") return DataType::kFp64;
  return std::nullopt;
}

}  // namespace encoderd
