// safetensors_writer.h — safetensors files for tests, well-formed or not.
#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/convert.h"
#include "engine/tensor/data_type.h"

namespace encoderd {

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// An F32 tensor, or one of another float type (F16, BF16, F64) that the values are rounded to.
inline TestTensor FloatTensor(std::string name, std::vector<int64_t> shape,
                              const std::vector<float>& values, std::string dtype = "F32") {
  TestTensor tensor{std::move(name), std::move(dtype), std::move(shape), ""};
  if (tensor.dtype == "F64") {
    tensor.bytes = BytesOf(std::vector<double>(values.begin(), values.end()));
    return tensor;
  }
  const DataType type = *DataTypeFromSafetensors(tensor.dtype);
  tensor.bytes.resize(values.size() * DataTypeBytes(type));
  NarrowFromFp32(type, values, std::as_writable_bytes(std::span(tensor.bytes)));
  return tensor;
}

// The file's bytes: the length, then the header and the data as they are given.
inline std::string RawSafetensors(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes.append(header).append(data);
}

// The file's bytes; tensors lie in the given order. With `header_bytes` the header is padded with
// spaces to that length; with `metadata`, that is its free text.
inline std::string Safetensors(const std::vector<TestTensor>& tensors, size_t header_bytes = 0,
                               const nlohmann::json& metadata = nullptr) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.is_null()) header["__metadata__"] = metadata;
  std::string data;
  for (const TestTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  if (text.size() < header_bytes) text.resize(header_bytes, ' ');
  return RawSafetensors(text, data);
}

}  // namespace encoderd
