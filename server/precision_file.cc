// The file of a choice: JSON with the members of PrecisionChoice, written once and then only read.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/status_macros.h"
#include "server/precision_choice.h"

namespace encoderd {
namespace {

constexpr char kFormat[] = "encoderd_precision_1";
constexpr uint64_t kMaxFileBytes = 64 << 10;

using Json = nlohmann::ordered_json;

Json ToJson(const PrecisionTrial& trial) {
  const std::string name(PrecisionName(trial.precision));
  if (!trial.refused.empty()) return {{"precision", name}, {"refused", trial.refused}};
  return {
      {"precision", name}, {"error", trial.error}, {"tokens_per_second", trial.tokens_per_second}};
}

std::string ToText(const PrecisionChoice& choice) {
  Json trials = Json::array();
  for (const PrecisionTrial& trial : choice.trials) trials.push_back(ToJson(trial));
  const Json json = {{"format", kFormat},
                     {"precision", std::string(PrecisionName(choice.precision))},
                     {"weights_sha256", choice.weights_sha256},
                     {"isa", choice.isa},
                     {"error_max", choice.error_max},
                     {"trials", trials}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Reads members of an object; keeps the first fault.
class Members {
 public:
  Members(const nlohmann::json& object, const std::string& where) : where_(where) {
    if (object.is_object()) {
      left_ = object;
    } else {
      Fault("", "an object", object);
    }
  }

  std::string Text(const char* key) {
    const nlohmann::json value = Take(key);
    if (value.is_string()) return value.get<std::string>();
    Fault(key, "a text", value);
    return "";
  }
  double Number(const char* key) {
    const nlohmann::json value = Take(key);
    if (value.is_number() && value.get<double>() >= 0) return value.get<double>();
    Fault(key, "a number of at least 0", value);
    return 0;
  }
  Precision PrecisionOf(const char* key) {
    const std::string name = Text(key);
    if (const auto precision = PrecisionNamed(name)) return *precision;
    Fault(key, "fp32, bf16 or int8", name);
    return Precision::kFp32;
  }
  nlohmann::json Take(const char* key) {
    nlohmann::json value = left_.contains(key) ? left_[key] : nlohmann::json();
    if (left_.is_object()) left_.erase(key);
    return value;
  }
  bool Has(const char* key) const { return left_.contains(key); }
  void Fault(const char* key, const char* expected, const nlohmann::json& got) {
    status_.Update(
        absl::InvalidArgumentError(absl::StrCat(where_, key, ": expected ", expected, ", got ",
                                                got.is_null() ? "none" : Printable(got.dump()))));
  }
  // Nothing may be left.
  absl::Status End() {
    if (left_.is_object() && !left_.empty()) {
      status_.Update(absl::InvalidArgumentError(
          absl::StrCat(where_, Printable(left_.begin().key()), ": no such member")));
    }
    return status_;
  }

 private:
  const std::string where_;
  nlohmann::json left_;
  absl::Status status_;
};

absl::StatusOr<PrecisionTrial> TrialOf(const nlohmann::json& json, const std::string& where) {
  Members members(json, where);
  PrecisionTrial trial = {.precision = members.PrecisionOf("precision")};
  if (members.Has("refused")) {
    trial.refused = members.Text("refused");
  } else {
    trial.error = members.Number("error");
    trial.tokens_per_second = members.Number("tokens_per_second");
  }
  RETURN_IF_ERROR(members.End());
  return trial;
}

absl::StatusOr<PrecisionChoice> ChoiceOf(const nlohmann::json& json, const std::string& path) {
  Members members(json, path + ": ");
  if (const std::string format = members.Text("format"); format != kFormat) {
    members.Fault("format", kFormat, format);
  }
  PrecisionChoice choice = {.precision = members.PrecisionOf("precision"),
                            .error_max = members.Number("error_max"),
                            .isa = members.Text("isa"),
                            .weights_sha256 = members.Text("weights_sha256")};
  const nlohmann::json trials = members.Take("trials");
  if (!trials.is_array()) members.Fault("trials", "a list", trials);
  RETURN_IF_ERROR(members.End());
  for (size_t i = 0; i < trials.size(); ++i) {
    ASSIGN_OR_RETURN(choice.trials.emplace_back(),
                     TrialOf(trials[i], absl::StrCat(path, ": trials[", i, "].")));
  }
  return choice;
}

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": cannot be written: ", std::generic_category().message(error)));
}

absl::Status WriteAll(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return CannotWrite(path, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(file) == 0 ? absl::OkStatus() : CannotWrite(path, errno);
}

}  // namespace

absl::StatusOr<PrecisionChoice> ReadPrecisionFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, path));
  return ChoiceOf(json, path);
}

absl::Status WritePrecisionFile(const std::string& path, const PrecisionChoice& choice) {
  std::string draft = path + ".XXXXXX";
  const int file = mkostemp(draft.data(), O_CLOEXEC);
  if (file < 0) return CannotWrite(path, errno);
  absl::Status status = WriteAll(file, ToText(choice), path);
  // For whoever runs the other processes of the fleet.
  if (fchmod(file, 0644) != 0) status.Update(CannotWrite(path, errno));
  close(file);
  // A link, unlike a renaming, never replaces what somebody else has written meanwhile.
  if (status.ok() && link(draft.c_str(), path.c_str()) != 0) {
    status = errno == EEXIST ? absl::AlreadyExistsError(absl::StrCat(path, ": exists"))
                             : CannotWrite(path, errno);
  }
  unlink(draft.c_str());
  return status;
}

}  // namespace encoderd
