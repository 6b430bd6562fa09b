#include "engine/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/io/json.h"
#include "engine/io/safetensors.h"
#include "engine/precision.h"
#include "engine/request.h"
#include "engine/status_macros.h"
#include "engine/tensor/shape.h"
#include "engine/validation.h"

namespace encoderd {
namespace {

constexpr char kFormat[] = "encoderd_selfcheck_1";

// A few sequences show what is wrong with a model; thousands take time at every start.
constexpr size_t kMaxSequences = 64;
constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// ---- The file -----------------------------------------------------------------------------------

// One sequence: what goes in, and the tensors that must come out by their outputs' names.
struct SelfCheckCase {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> token_type_ids;
  std::vector<int64_t> vectors_shape;
  std::vector<float> vectors;
  bool has_ids = false;
  bool has_vectors = false;
  std::map<std::string, const TensorEntry*> outputs;
};

absl::StatusOr<double> ReadTolerance(const SafetensorsFile& file) {
  const auto text = [&file](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("format") != kFormat) {
    return Refuse("metadata: format is \"", Printable(text("format")), "\"; expected \"", kFormat,
                  "\"");
  }
  double tolerance = 0;
  if (!absl::SimpleAtod(text("tolerance"), &tolerance) || !std::isfinite(tolerance) ||
      tolerance <= 0) {
    return Refuse("metadata: tolerance is \"", Printable(text("tolerance")),
                  "\"; expected a number above 0");
  }
  return tolerance;
}

absl::StatusOr<std::vector<int32_t>> ReadIds(const SafetensorsFile& file,
                                             const TensorEntry& entry) {
  if (entry.shape.size() != 1 || (entry.dtype != "I64" && entry.dtype != "I32")) {
    return Refuse(Printable(entry.name), ": expected I64 or I32 of shape [S], got ",
                  Printable(entry.dtype), " of shape ", Printable(ShapeText(entry.shape)));
  }
  std::vector<std::byte> bytes(entry.bytes());
  RETURN_IF_ERROR(file.ReadBytes(entry, bytes));
  std::vector<int32_t> ids(static_cast<size_t>(entry.elements));
  const size_t width = entry.dtype == "I64" ? sizeof(int64_t) : sizeof(int32_t);
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t value = 0;
    if (width == sizeof(int64_t)) {
      std::memcpy(&value, bytes.data() + i * width, width);
    } else {
      int32_t narrow;
      std::memcpy(&narrow, bytes.data() + i * width, width);
      value = narrow;
    }
    if (value != static_cast<int32_t>(value)) {
      return Refuse(Printable(entry.name), ": element ", i, " is ", value,
                    "; expected a number of 32 bits");
    }
    ids[i] = static_cast<int32_t>(value);
  }
  return ids;
}

absl::StatusOr<std::vector<float>> ReadFloats(const SafetensorsFile& file,
                                              const TensorEntry& entry) {
  std::vector<float> values(static_cast<size_t>(entry.elements));
  RETURN_IF_ERROR(file.ReadFp32(entry, values));
  const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
  if (bad == values.end()) return values;
  return Refuse(Printable(entry.name), ": element ", bad - values.begin(), " is ", *bad,
                "; expected finite numbers");
}

// The output that a tensor of this name is of, asked for alone.
std::optional<OutputSpec> OutputNamed(std::string_view name) {
  OutputSpec outputs;
  if (name == "last_hidden_state") {
    outputs.last_hidden_state = true;
  } else if (name == "logits") {
    outputs.logits = true;
  } else if (name == "pooler_output") {
    outputs.pooled = {{.kind = Pooling::kPooler, .normalize = false}};
  } else if (name == "sentence_embedding") {
    outputs.pooled = {PoolingSpec()};
  } else {
    return std::nullopt;
  }
  return outputs;
}

// Puts a tensor "<sequence>/<name>" where it belongs.
absl::Status AddTensor(const SafetensorsFile& file, const TensorEntry& entry,
                       std::map<size_t, SelfCheckCase>& cases) {
  const size_t slash = entry.name.find('/');
  const std::string number = entry.name.substr(0, slash);
  const std::string name = slash == std::string::npos ? "" : entry.name.substr(slash + 1);
  uint64_t sequence = 0;
  if (!absl::SimpleAtoi(number, &sequence) || absl::StrCat(sequence) != number ||
      sequence >= kMaxSequences) {
    return Refuse("tensor \"", Printable(entry.name),
                  "\": expected \"<sequence>/<name>\" with 0 to ", kMaxSequences - 1,
                  " for the sequence");
  }
  SelfCheckCase& self_check = cases[sequence];
  if (name == "input_ids") {
    ASSIGN_OR_RETURN(self_check.input_ids, ReadIds(file, entry));
    self_check.has_ids = true;
  } else if (name == "token_type_ids") {
    ASSIGN_OR_RETURN(self_check.token_type_ids, ReadIds(file, entry));
  } else if (name == "inputs_embeds") {
    ASSIGN_OR_RETURN(self_check.vectors, ReadFloats(file, entry));
    self_check.vectors_shape = entry.shape;
    self_check.has_vectors = true;
  } else if (OutputNamed(name).has_value()) {
    self_check.outputs.emplace(name, &entry);
  } else {
    return Refuse("tensor \"", Printable(entry.name),
                  "\": expected input_ids, token_type_ids, inputs_embeds, last_hidden_state, "
                  "logits, pooler_output or sentence_embedding behind the \"/\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<size_t, SelfCheckCase>> ReadCases(const SafetensorsFile& file) {
  if (file.file().size_bytes() > kMaxFileBytes) {
    return Refuse("has ", file.file().size_bytes(), " bytes; expected at most ", kMaxFileBytes);
  }
  std::map<size_t, SelfCheckCase> cases;
  for (const TensorEntry& entry : file.tensors()) {
    RETURN_IF_ERROR(AddTensor(file, entry, cases));
  }
  if (cases.empty()) return Refuse("has no tensors; expected at least one sequence");
  for (const auto& [sequence, self_check] : cases) {
    if (self_check.has_ids == self_check.has_vectors || self_check.outputs.empty()) {
      return Refuse("sequence ", sequence,
                    ": expected input_ids or inputs_embeds, and at least one output");
    }
  }
  return cases;
}

// ---- Asking -------------------------------------------------------------------------------------

Request RequestOf(const SelfCheckCase& self_check, OutputSpec outputs) {
  Sequence sequence = {.input_ids = self_check.input_ids,
                       .token_type_ids = self_check.token_type_ids};
  if (self_check.has_vectors) {
    sequence.inputs_embeds = InputTensor{.shape = self_check.vectors_shape,
                                         .data = std::as_bytes(std::span(self_check.vectors))};
  }
  return {.sequences = {sequence}, .outputs = std::move(outputs)};
}

// The one tensor that the request asks for.
absl::StatusOr<AnswerTensor> Ask(const Engine& engine, Worker& worker, const Request& request) {
  auto checked =
      Validate(engine.spec(), {.max_sequence_tokens = engine.info().max_sequence_tokens}, request);
  if (const auto* faults = std::get_if<Violations>(&checked)) {
    return Refuse(faults->listed.front().field, ": ", faults->listed.front().description);
  }
  const Plan plan = std::get<Plan>(std::move(checked));
  ASSIGN_OR_RETURN(Answer answer, engine.AllocateAnswer(plan));
  std::vector<BatchItem> items = {
      {.request = &request, .plan = &plan, .sequence = 0, .answer = &answer}};
  RETURN_IF_ERROR(worker.Run(items, NeverAbandoned));
  if (!items[0].status.ok()) return Refuse(items[0].status.message());
  if (plan.last_hidden_state) return std::move(answer.last_hidden_state);
  if (plan.logits) return std::move(answer.logits);
  AnswerTensor vector = std::move(answer.pooled[0]);
  vector.shape.erase(vector.shape.begin());  // one row, which is the vector
  return vector;
}

// Where products are rounded, single elements are off by more than any tolerance for fp32, and the
// tensor as a whole by little. So much, as a part of its length, may it be: what lies between two
// vectors with a cosine of 0.999, and of 0.99.
std::optional<double> WholeTolerance(std::string_view precision) {
  if (precision == PrecisionName(Precision::kBf16)) return 0.045;
  if (precision == PrecisionName(Precision::kInt8)) return 0.14;
  return std::nullopt;
}

absl::Status CompareWhole(const std::vector<float>& expected, const TensorEntry& entry,
                          std::span<const float> got, SelfCheckResult& result) {
  double difference = 0, length = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double wanted = expected[i], error = got[i] - wanted;
    difference += error * error;
    length += wanted * wanted;
  }
  const double error = difference == 0 ? 0 : std::sqrt(difference / length);
  if (!(error <= result.tolerance)) {
    return Refuse("is off by ", error, " of its length; the tolerance in this precision is ",
                  result.tolerance);
  }
  if (result.where.empty() || error > result.error) {
    result.error = error;
    result.where = entry.name;
  }
  return absl::OkStatus();
}

// Compares one output and keeps the largest error so far. Errors: beyond the tolerance.
absl::Status CompareElements(const std::vector<float>& expected, const TensorEntry& entry,
                             std::span<const float> got, SelfCheckResult& result) {
  double worst = -1;
  size_t at = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double wanted = expected[i];
    const double error = std::abs(got[i] - wanted) / std::max(1.0, std::abs(wanted));
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  if (worst > result.tolerance) {
    return Refuse("element ", at, ": expected ", expected[at], ", got ", got[at], ": an error of ",
                  worst, "; the tolerance is ", result.tolerance);
  }
  if (result.where.empty() || worst > result.error) {
    result.error = worst;
    result.where = absl::StrCat(entry.name, " element ", at);
  }
  return absl::OkStatus();
}

absl::Status Compare(const std::vector<float>& expected, const TensorEntry& entry,
                     const AnswerTensor& got, bool whole, SelfCheckResult& result) {
  if (entry.shape != got.shape) {
    return Refuse("expected by the file in shape ", Printable(ShapeText(entry.shape)),
                  ", but the model gives ", ShapeText(got.shape));
  }
  return whole ? CompareWhole(expected, entry, got.data.floats(), result)
               : CompareElements(expected, entry, got.data.floats(), result);
}

absl::StatusOr<SelfCheckResult> Run(const Engine& engine, const SafetensorsFile& file) {
  SelfCheckResult result;
  ASSIGN_OR_RETURN(result.tolerance, ReadTolerance(file));
  const std::optional<double> whole = WholeTolerance(engine.info().precision);
  if (whole.has_value()) result.tolerance = *whole;
  ASSIGN_OR_RETURN(const auto cases, ReadCases(file));
  ASSIGN_OR_RETURN(const std::unique_ptr<Worker> worker, engine.CreateWorker());
  result.sequences = static_cast<int64_t>(cases.size());
  for (const auto& [sequence, self_check] : cases) {
    for (const auto& [name, entry] : self_check.outputs) {
      ASSIGN_OR_RETURN(const std::vector<float> expected, ReadFloats(file, *entry));
      const auto got = Ask(engine, *worker, RequestOf(self_check, *OutputNamed(name)));
      const absl::Status status =
          got.ok() ? Compare(expected, *entry, *got, whole.has_value(), result) : got.status();
      if (!status.ok()) {
        return absl::Status(status.code(), absl::StrCat(entry->name, ": ", status.message()));
      }
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<SelfCheckResult> RunSelfCheck(const Engine& engine, const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  absl::StatusOr<SelfCheckResult> result = Run(engine, file);
  if (result.ok()) return result;
  return absl::Status(result.status().code(), absl::StrCat(path, ": ", result.status().message()));
}

}  // namespace encoderd
