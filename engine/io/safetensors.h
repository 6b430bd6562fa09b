// safetensors.h — reads tensors by name from a .safetensors file that nobody has checked.
//
// Role:   bytes and names only: what a tensor means, and which shape it must have, is the model's
//         business.
// Source: the format's description and the errors of its reference implementation
//         (huggingface/safetensors): 8 bytes N, little-endian; N bytes of JSON that map a name to
//         {dtype, shape, data_offsets: [begin, end)}, counted from the end of the header; the data,
//         covered exactly once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/io/file.h"

namespace encoderd {

struct TensorEntry {
  std::string name;
  std::string dtype;           // as the header has it: "F32", "I64", "F8_E4M3" …
  std::vector<int64_t> shape;  // slowest axis first; [] is a scalar
  int64_t elements = 0;        // product of the shape
  uint64_t begin = 0;          // bytes [begin, end) of the file
  uint64_t end = 0;
  size_t file = 0;  // of several files that make up one list of tensors: which

  size_t bytes() const { return end - begin; }
};

// An open weights file whose header has been checked in full: every entry lies inside the file, no
// two overlap, and together they cover the data. Movable; reads may run concurrently.
class SafetensorsFile {
 public:
  // The reference implementation's limit.
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  // Errors: as File::Open; kInvalidArgument that names the file and the tensor, with what was
  // expected and found. Nothing is allocated from a size in the file before it has been compared
  // with the file's own.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const File& file() const { return file_; }
  // In the order of the data.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // The header's free text, "__metadata__".
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  // nullptr when there is none of this name. Valid as long as this object.
  const TensorEntry* Find(std::string_view name) const;

  // The elements of one of this file's entries as fp32. Errors: kInvalidArgument naming the tensor
  // when its dtype is not F32, F16, BF16 or F64 or dst.size() is not entry.elements; kDataLoss when
  // the file has become shorter.
  absl::Status ReadFp32(const TensorEntry& entry, std::span<float> dst) const;

  // The bytes as they are. REQUIRES: dst.size() == entry.bytes().
  absl::Status ReadBytes(const TensorEntry& entry, std::span<std::byte> dst) const;

 private:
  SafetensorsFile(File file, std::vector<TensorEntry> tensors,
                  std::map<std::string, std::string, std::less<>> metadata);

  File file_;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::map<std::string, size_t, std::less<>> index_;  // name → position in tensors_
};

}  // namespace encoderd
