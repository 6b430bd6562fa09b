#include "engine/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/io/json.h"
#include "engine/status_macros.h"
#include "engine/tensor/convert.h"
#include "engine/tensor/data_type.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

constexpr uint64_t kPrefixBytes = 8;

// Bits of one element; nothing for a dtype that this reader does not know, whose size is then taken
// from the offsets.
std::optional<uint64_t> ElementBits(std::string_view dtype) {
  static constexpr std::pair<std::string_view, uint64_t> kBits[] = {
      {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},    {"U8", 8},
      {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"U16", 16},
      {"I16", 16}, {"F16", 16},    {"BF16", 16},   {"U32", 32},    {"I32", 32},
      {"F32", 32}, {"U64", 64},    {"I64", 64},    {"F64", 64},    {"C64", 64}};
  for (const auto& [name, bits] : kBits) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

// The JSON header of `file`. On return `data_begin` is where the data starts.
absl::StatusOr<json> ReadHeader(const File& file, uint64_t& data_begin) {
  const auto error = [&file](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", parts...));
  };
  const uint64_t file_bytes = file.size_bytes();
  if (file_bytes < kPrefixBytes) {
    return error("expected at least 8 bytes with the header's length, found ", file_bytes);
  }
  std::array<std::byte, kPrefixBytes> prefix;
  RETURN_IF_ERROR(file.ReadAt(0, prefix));
  uint64_t header_bytes;
  std::memcpy(&header_bytes, prefix.data(), sizeof(header_bytes));

  // Compared without adding to a length that may be anything.
  if (header_bytes < 2) {
    return error("header length ", header_bytes, " is too small for \"{}\"; the file has ",
                 file_bytes, " bytes");
  }
  if (header_bytes > SafetensorsFile::kMaxHeaderBytes) {
    return error("header length ", header_bytes, " is over the limit of ",
                 SafetensorsFile::kMaxHeaderBytes, "; the file has ", file_bytes, " bytes");
  }
  if (header_bytes > file_bytes - kPrefixBytes) {
    return error("header of ", header_bytes, " bytes is cut off: expected at least ",
                 header_bytes + kPrefixBytes, " bytes, found ", file_bytes);
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(file.ReadAt(kPrefixBytes, std::as_writable_bytes(std::span(header))));
  if (header[0] != '{') {
    return error("header must start with '{', starts with '", Printable(header.substr(0, 1)), "'");
  }
  data_begin = kPrefixBytes + header_bytes;
  return ParseJson(header, absl::StrCat(file.path(), ": header"));
}

// Whether `value` is a JSON integer from 0 to the largest int64_t.
bool IsSize(const json& value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

// One member of the header; the data starts at `data_begin` of the file. Errors begin with the
// tensor's name.
absl::StatusOr<TensorEntry> ParseEntry(const std::string& name, const json& value,
                                       uint64_t data_begin) {
  const auto error = [&name](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", Printable(name), "\": ", parts...));
  };
  const auto member = [&value](const char* key) -> const json& {
    static const json kNull;
    const auto found = value.find(key);
    return found == value.end() ? kNull : *found;
  };
  if (!value.is_object()) return error("expected an object");
  const json& dtype = member("dtype");
  const json& shape = member("shape");
  const json& offsets = member("data_offsets");
  if (!dtype.is_string()) return error("\"dtype\" must be a string");
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), IsSize)) {
    return error("\"shape\" must be a list of integers from 0, got ", Printable(shape.dump()));
  }
  if (!offsets.is_array() || offsets.size() != 2 || !IsSize(offsets[0]) || !IsSize(offsets[1]) ||
      offsets[0] > offsets[1]) {
    return error("\"data_offsets\" must be two integers 0 ≤ begin ≤ end, got ",
                 Printable(offsets.dump()));
  }

  TensorEntry entry;
  entry.name = name;
  entry.dtype = dtype.get<std::string>();
  entry.shape = shape.get<std::vector<int64_t>>();
  entry.elements = 1;
  for (const int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(entry.elements, extent, &entry.elements)) {
      return error("shape ", Printable(shape.dump()), " has more elements than 64 bits can count");
    }
  }
  const uint64_t begin = offsets[0].get<uint64_t>();
  const uint64_t end = offsets[1].get<uint64_t>();
  if (const std::optional<uint64_t> bits = ElementBits(entry.dtype)) {
    uint64_t total_bits;
    if (__builtin_mul_overflow(static_cast<uint64_t>(entry.elements), *bits, &total_bits)) {
      return error("shape ", Printable(shape.dump()), " of ", entry.dtype,
                   " has more bits than 64 bits count");
    }
    if (total_bits % 8 != 0 || total_bits / 8 != end - begin) {
      return error("shape ", Printable(shape.dump()), " of ", entry.dtype, " takes ",
                   total_bits / 8, " bytes, but data_offsets ", offsets.dump(), " hold ",
                   end - begin);
    }
  }
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

// Sorts the entries by place and checks that each begins where the one before ends, from data_begin
// to the end of the file: thereby none overlap and all lie inside the file.
absl::Status CheckCoverage(std::vector<TensorEntry>& tensors, uint64_t data_begin,
                           uint64_t file_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t position = data_begin;
  std::string before = "the header";
  for (const TensorEntry& entry : tensors) {
    const std::string name = absl::StrCat("tensor \"", Printable(entry.name), "\"");
    if (entry.begin < position) {
      return absl::InvalidArgumentError(
          absl::StrCat(before, " and ", name, " overlap by ", position - entry.begin, " bytes"));
    }
    if (entry.begin > position) {
      return absl::InvalidArgumentError(absl::StrCat(entry.begin - position, " bytes between ",
                                                     before, " and ", name,
                                                     " belong to no tensor"));
    }
    position = entry.end;
    before = name;
  }
  if (position != file_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the data ends with ", before, ": expected ",
                                                   position, " bytes, found ", file_bytes));
  }
  return absl::OkStatus();
}

// The header's free text: a flat object of strings.
absl::Status CheckMetadata(const json& metadata) {
  const auto is_string = [](const json& value) { return value.is_string(); };
  if (metadata.is_object() && std::all_of(metadata.begin(), metadata.end(), is_string)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("\"__metadata__\" must be an object whose values are strings");
}

}  // namespace

SafetensorsFile::SafetensorsFile(File file, std::vector<TensorEntry> tensors,
                                 std::map<std::string, std::string, std::less<>> metadata)
    : file_(std::move(file)), tensors_(std::move(tensors)), metadata_(std::move(metadata)) {
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(File file, File::Open(path));
  uint64_t data_begin = 0;
  ASSIGN_OR_RETURN(const json header, ReadHeader(file, data_begin));
  const auto in_file = [&path](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  };
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (absl::Status status = CheckMetadata(value); !status.ok()) return in_file(status);
      for (const auto& [key, text] : value.items()) metadata.emplace(key, text.get<std::string>());
      continue;
    }
    auto entry = ParseEntry(name, value, data_begin);
    if (!entry.ok()) return in_file(entry.status());
    tensors.push_back(*std::move(entry));
  }
  if (absl::Status status = CheckCoverage(tensors, data_begin, file.size_bytes()); !status.ok()) {
    return in_file(status);
  }
  return SafetensorsFile(std::move(file), std::move(tensors), std::move(metadata));
}

const TensorEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

absl::Status SafetensorsFile::ReadFp32(const TensorEntry& entry, std::span<float> dst) const {
  const std::optional<DataType> type = DataTypeFromSafetensors(entry.dtype);
  if (!type.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensor \"%s\": expected dtype F32, F16, BF16 or F64, got %s",
                        file_.path(), Printable(entry.name), Printable(entry.dtype)));
  }
  if (static_cast<int64_t>(dst.size()) != entry.elements) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensor \"%s\": expected room for %d elements, got %d", file_.path(),
                        Printable(entry.name), entry.elements, dst.size()));
  }
  if (*type == DataType::kFp32) return ReadBytes(entry, std::as_writable_bytes(dst));

  // 64 KiB at a time: stays in the second-level cache between the read and the conversion.
  std::vector<std::byte> piece(size_t{64} << 10);
  const size_t element_bytes = DataTypeBytes(*type);
  for (size_t done = 0; done < dst.size();) {
    const size_t count = std::min(dst.size() - done, piece.size() / element_bytes);
    const std::span<std::byte> bytes = std::span(piece).first(count * element_bytes);
    RETURN_IF_ERROR(file_.ReadAt(entry.begin + done * element_bytes, bytes));
    WidenToFp32(*type, bytes, dst.subspan(done, count));
    done += count;
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::ReadBytes(const TensorEntry& entry, std::span<std::byte> dst) const {
  assert(dst.size() == entry.bytes());
  return file_.ReadAt(entry.begin, dst);
}

}  // namespace encoderd
