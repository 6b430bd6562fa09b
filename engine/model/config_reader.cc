#include "engine/model/config_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "engine/io/json.h"
#include "engine/model/edit_distance.h"

namespace encoderd {

using ::nlohmann::json;

ConfigReader::ConfigReader(const json& object, std::string path, Faults* faults,
                           const Faults* earlier)
    : object_(object), path_(std::move(path)), faults_(faults), earlier_(earlier) {
  if (!object.is_object()) {
    faults_->Doubt(path_);
    faults_->Add(absl::StrFormat("%s: expected an object, got %s",
                                 path_.empty() ? "the file's root" : path_,
                                 Printable(object.dump())));
  }
}

std::string ConfigReader::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrFormat("%s.%s", path_, key);
}

const json* ConfigReader::Find(std::string_view key) {
  read_.emplace(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

const json* ConfigReader::Require(std::string_view key, bool optional) {
  const json* value = Find(key);
  if (value == nullptr && !optional && object_.is_object()) {
    faults_->Doubt(PathOf(key));
    faults_->Add(absl::StrFormat("%s is missing", Printable(PathOf(key))));
  }
  return value;
}

void ConfigReader::Fault(std::string_view key, std::string_view expected) {
  const json* value = Find(key);
  faults_->Doubt(PathOf(key));
  faults_->Add(absl::StrFormat("%s is %s; expected %s", Printable(PathOf(key)),
                               value == nullptr ? "missing" : Printable(value->dump()), expected));
}

bool ConfigReader::WasInDoubt(std::string_view key) const {
  return earlier_ != nullptr && earlier_->InDoubt(PathOf(key));
}

int64_t ConfigReader::Size(std::string_view key, std::optional<int64_t> otherwise, int64_t least) {
  const int64_t value = ReadSize(key, otherwise, least);
  if (!WasInDoubt(key)) return value;
  const int64_t smallest = std::max<int64_t>(least, 1);
  return value == smallest ? smallest + 1 : smallest;
}

int64_t ConfigReader::ReadSize(std::string_view key, std::optional<int64_t> otherwise,
                               int64_t least) {
  const json* value = Require(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(least);
  // Above int64_t a number is unsigned, and would wrap around in get<int64_t>.
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t{kMaxSize});
  if (fits && value->get<int64_t>() >= least && value->get<int64_t>() <= kMaxSize) {
    return value->get<int64_t>();
  }
  Fault(key, absl::StrFormat("an integer from %d to %d", least, kMaxSize));
  return least;
}

double ConfigReader::Positive(std::string_view key, std::optional<double> otherwise) {
  const json* value = Require(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1);
  if (value->is_number() && std::isfinite(value->get<double>()) && value->get<double>() > 0) {
    return value->get<double>();
  }
  Fault(key, "a number above 0");
  return 1;
}

bool ConfigReader::Bool(std::string_view key, std::optional<bool> otherwise) {
  return ReadBool(key, otherwise) != WasInDoubt(key);
}

bool ConfigReader::ReadBool(std::string_view key, std::optional<bool> otherwise) {
  const json* value = Require(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(false);
  if (value->is_boolean()) return value->get<bool>();
  Fault(key, "true or false");
  return false;
}

std::string ConfigReader::Text(std::string_view key, std::optional<std::string> otherwise) {
  const json* value = Require(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or("");
  if (value->is_string()) return value->get<std::string>();
  Fault(key, "a string");
  return "";
}

void ConfigReader::Only(std::string_view key, const json& value, Changes what) {
  const json* found = Find(key);
  if (found == nullptr || found->is_null() || *found == value) return;
  if (what == Changes::kTensors) faults_->DoubtTensors();
  Fault(key, absl::StrCat(value.dump(), "; nothing else is supported"));
}

void ConfigReader::Ignore(std::span<const std::string_view> keys) {
  read_.insert(keys.begin(), keys.end());
}

void ConfigReader::CheckDivides(std::string_view heads_key, int64_t heads,
                                std::string_view width_key, int64_t width) {
  if (InDoubt(heads_key) || InDoubt(width_key) || width % heads == 0) return;
  faults_->Doubt(PathOf(heads_key));
  faults_->Doubt(PathOf(width_key));
  faults_->Add(absl::StrFormat("%s is %d; expected a divisor of %s, which is %d", PathOf(heads_key),
                               heads, width_key, width));
}

std::string ConfigReader::Nearest(std::string_view unknown) const {
  // Keys of which more than a quarter differs are no help, and no known one is longer than these.
  constexpr size_t kMaxBytes = 64;
  std::string nearest;
  size_t least = unknown.size() / 4 + 1;
  for (const std::string& key : read_) {
    if (unknown.size() > kMaxBytes || object_.contains(key)) continue;
    const size_t distance = EditDistance(key, unknown);
    if (distance < least) nearest = key;
    least = std::min(least, distance);
  }
  return nearest;
}

void ConfigReader::Finish() {
  if (!object_.is_object()) return;
  bool unknown = false;
  for (const auto& [key, value] : object_.items()) {
    if (read_.contains(key)) continue;
    unknown = true;
    std::string text =
        absl::StrFormat("%s is %s; this key is not known, and may change what the model computes",
                        Printable(PathOf(key)), Printable(value.dump()));
    const std::string nearest = faults_->size() < Faults::kMaxListed ? Nearest(key) : std::string();
    if (!nearest.empty()) absl::StrAppend(&text, "; the nearest that is known is ", nearest);
    faults_->Add(std::move(text));
  }
  for (const std::string& key : read_) {
    if (unknown && !object_.contains(key)) faults_->Doubt(PathOf(key));
  }
}

}  // namespace encoderd
