#include "deploy/client/sequence_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/status_macros.h"

namespace encoderd::client {
namespace {

using Json = nlohmann::json;

absl::Status Expected(absl::string_view field, absl::string_view expected, const Json& got) {
  // An array can be long: its beginning tells enough.
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected ", expected, ", got ", got.dump().substr(0, 60)));
}

// A nested array of numbers, row by row. `shape` has as many axes as `rank`.
struct Numbers {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

absl::Status AppendNumbers(absl::string_view field, const Json& json, size_t axis, Numbers& out) {
  if (axis == out.shape.size()) {
    if (!json.is_number()) return Expected(field, "a number", json);
    out.values.push_back(json.get<double>());
    return absl::OkStatus();
  }
  if (!json.is_array()) return Expected(field, "an array", json);
  int64_t& length = out.shape[axis];
  const int64_t got = static_cast<int64_t>(json.size());
  if (length < 0) length = got;
  if (length != got) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": expected rows of equal length ", length, ", got ", got));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    RETURN_IF_ERROR(AppendNumbers(absl::StrCat(field, "[", i, "]"), json[i], axis + 1, out));
  }
  return absl::OkStatus();
}

absl::StatusOr<Numbers> ReadNumbers(absl::string_view field, const Json& json, size_t rank) {
  Numbers numbers{.shape = std::vector<int64_t>(rank, -1), .values = {}};
  RETURN_IF_ERROR(AppendNumbers(field, json, 0, numbers));
  // Axes below an empty one were never seen.
  for (int64_t& length : numbers.shape) length = std::max<int64_t>(length, 0);
  return numbers;
}

template <typename Int>
absl::Status ReadIntegers(absl::string_view field, const Json& json,
                          google::protobuf::RepeatedField<Int>& out) {
  if (!json.is_array()) return Expected(field, "an array of integers", json);
  for (size_t i = 0; i < json.size(); ++i) {
    const bool fits = json[i].is_number_integer() &&
                      json[i].get<double>() >= double{std::numeric_limits<Int>::min()} &&
                      json[i].get<double>() <= double{std::numeric_limits<Int>::max()};
    if (!fits) {
      return Expected(absl::StrCat(field, "[", i, "]"), "an integer of 32 bits", json[i]);
    }
    out.Add(json[i].get<Int>());
  }
  return absl::OkStatus();
}

// One byte per value, row by row. The lengths are the server's to check against S; the squareness
// is checked here because it is lost on the wire.
absl::Status ReadMaskPart(absl::string_view field, const Json& json, size_t rank,
                          std::string& out) {
  ASSIGN_OR_RETURN(const Numbers numbers, ReadNumbers(field, json, rank));
  if (rank >= 2 && numbers.shape[rank - 1] != numbers.shape[rank - 2]) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": expected [S, S], got [", absl::StrJoin(numbers.shape, ", "), "]"));
  }
  for (const double value : numbers.values) {
    if (value != 0 && value != 1) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": expected 0 and 1, got ", value));
    }
    out.push_back(value == 1 ? 1 : 0);
  }
  return absl::OkStatus();
}

absl::Status ReadMask(absl::string_view field, const Json& json, v1::Mask& mask) {
  if (!json.is_object()) return Expected(field, "an object", json);
  for (const auto& [key, value] : json.items()) {
    const std::string path = absl::StrCat(field, ".", key);
    if (key == "keys") {
      RETURN_IF_ERROR(ReadMaskPart(path, value, 1, *mask.mutable_keys()));
    } else if (key == "pairs") {
      RETURN_IF_ERROR(ReadMaskPart(path, value, 2, *mask.mutable_pairs()));
    } else if (key == "head_pairs") {
      RETURN_IF_ERROR(ReadMaskPart(path, value, 3, *mask.mutable_head_pairs()));
    } else if (key == "segment_ids") {
      RETURN_IF_ERROR(ReadIntegers(path, value, *mask.mutable_segment_ids()));
    } else if (key == "causal") {
      if (!value.is_boolean()) return Expected(path, "true or false", value);
      mask.set_causal(value.get<bool>());
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": expected keys, pairs, head_pairs, causal or segment_ids, got ", key));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSpans(absl::string_view field, const Json& json, v1::Sequence& sequence) {
  if (!json.is_array()) return Expected(field, "an array of [begin, end]", json);
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string path = absl::StrCat(field, "[", i, "]");
    google::protobuf::RepeatedField<uint32_t> ends;
    RETURN_IF_ERROR(ReadIntegers(path, json[i], ends));
    if (ends.size() != 2) return Expected(path, "[begin, end]", json[i]);
    v1::Span& span = *sequence.add_spans();
    span.set_begin(ends[0]);
    span.set_end(ends[1]);
  }
  return absl::OkStatus();
}

void SetFp32(std::span<const int64_t> shape, std::span<const float> values, v1::Tensor& tensor) {
  tensor.set_dtype(v1::DATA_TYPE_FP32);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(values.data(), values.size_bytes());
}

absl::Status ReadEmbeds(absl::string_view field, const Json& json, v1::Tensor& tensor) {
  ASSIGN_OR_RETURN(const Numbers numbers, ReadNumbers(field, json, 2));
  const std::vector<float> values(numbers.values.begin(), numbers.values.end());
  SetFp32(numbers.shape, values, tensor);
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& key, const Json& value, v1::Sequence& sequence) {
  if (key == "input_ids") return ReadIntegers(key, value, *sequence.mutable_input_ids());
  if (key == "inputs_embeds") return ReadEmbeds(key, value, *sequence.mutable_inputs_embeds());
  if (key == "mask") return ReadMask(key, value, *sequence.mutable_mask());
  if (key == "spans") return ReadSpans(key, value, sequence);
  if (key == "token_type_ids") {
    return ReadIntegers(key, value, *sequence.mutable_token_type_ids());
  }
  if (key == "position_ids") return ReadIntegers(key, value, *sequence.mutable_position_ids());
  return absl::InvalidArgumentError(
      absl::StrCat("expected input_ids, inputs_embeds, mask, token_type_ids, position_ids or "
                   "spans, got ",
                   key));
}

absl::StatusOr<v1::Sequence> ParseJson(absl::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat("expected JSON, got ", text.substr(0, 60)));
  }
  v1::Sequence sequence;
  if (json.is_array()) {
    RETURN_IF_ERROR(ReadIntegers("input_ids", json, *sequence.mutable_input_ids()));
    return sequence;
  }
  for (const auto& [key, value] : json.items()) RETURN_IF_ERROR(ReadField(key, value, sequence));
  return sequence;
}

absl::Status At(absl::string_view where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace

absl::StatusOr<v1::Sequence> ParseSequence(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  if (absl::StartsWith(trimmed, "{") || absl::StartsWith(trimmed, "[")) return ParseJson(trimmed);
  v1::Sequence sequence;
  for (const absl::string_view word :
       absl::StrSplit(trimmed, absl::ByAnyChar(", \t"), absl::SkipEmpty())) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected token ids, integers of 32 bits separated by spaces or commas, "
                       "got ",
                       word));
    }
    sequence.add_input_ids(id);
  }
  return sequence;
}

absl::StatusOr<std::vector<v1::Sequence>> ReadSequences(std::span<const std::string> arguments,
                                                        const std::string& file,
                                                        std::istream& standard_input) {
  if (!arguments.empty() && !file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected sequences as arguments or from ", file, ", got both"));
  }
  std::vector<v1::Sequence> sequences;
  const auto add = [&](absl::string_view where, absl::string_view text) -> absl::Status {
    absl::StatusOr<v1::Sequence> sequence = ParseSequence(text);
    if (!sequence.ok()) return At(where, sequence.status());
    sequences.push_back(*std::move(sequence));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    RETURN_IF_ERROR(add(absl::StrCat("sequence ", i), arguments[i]));
  }
  if (!arguments.empty()) return sequences;

  const bool from_file = !file.empty() && file != "-";
  const std::string name = from_file ? file : "standard input";
  std::ifstream opened;
  if (from_file) {
    opened.open(file);
    if (!opened) return absl::InvalidArgumentError(absl::StrCat(file, ": cannot be read"));
  }
  std::istream& lines = from_file ? opened : standard_input;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const absl::string_view trimmed = absl::StripAsciiWhitespace(line);
    if (trimmed.empty() || trimmed.front() == '#') continue;
    RETURN_IF_ERROR(add(absl::StrCat(name, " line ", number), line));
  }
  if (sequences.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("expected at least one sequence, got none from ",
                                                   name,
                                                   ": give token ids, for example 101,7592,102"));
  }
  return sequences;
}

absl::Status MakeOneHot(int width, v1::Sequence& sequence) {
  const int64_t tokens = sequence.input_ids_size();
  if (tokens == 0) return absl::InvalidArgumentError("one_hot: expected input_ids, got none");
  std::vector<float> values(static_cast<size_t>(tokens * width), 0.0f);
  for (int64_t row = 0; row < tokens; ++row) {
    const int32_t id = sequence.input_ids(static_cast<int>(row));
    if (id < 0 || id >= width) {
      return absl::InvalidArgumentError(absl::StrCat("input_ids[", row, "]: expected 0..",
                                                     width - 1, " with --one_hot=", width, ", got ",
                                                     id));
    }
    values[static_cast<size_t>(row * width + id)] = 1.0f;
  }
  sequence.clear_input_ids();
  SetFp32(std::vector<int64_t>{tokens, width}, values, *sequence.mutable_inputs_embeds());
  return absl::OkStatus();
}

}  // namespace encoderd::client
