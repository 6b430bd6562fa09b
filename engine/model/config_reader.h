// config_reader.h — reads the keys of one JSON object and notices the ones that nobody read.
//
// Role: what every family reads its config.json with, so that no key is ignored by accident: a key
//       is read, or on a list of keys that change nothing, or a fault.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/faults.h"

namespace encoderd {

// The largest count or width in a configuration: products of two and the bytes they take stay far
// from the end of int64_t.
constexpr int64_t kMaxSize = int64_t{1} << 28;

// A value of an enumeration and its name in JSON.
template <typename T>
using NamedValue = std::pair<std::string_view, T>;

// Every reader method returns the key's value. When the key is absent it returns `otherwise`, and
// without one a fault is added; so it is when the value is of the wrong kind or out of range. What
// is returned after a fault is of no meaning.
class ConfigReader {
 public:
  // `path` precedes the key in faults: "" for a file's root, "logits[1]" for an object inside.
  // `object` and `faults` are borrowed.
  ConfigReader(const nlohmann::json& object, std::string path, Faults* faults);

  // An integer from `least` to kMaxSize.
  int64_t Size(std::string_view key, std::optional<int64_t> otherwise = std::nullopt,
               int64_t least = 1);
  // A finite number above 0.
  double Positive(std::string_view key, std::optional<double> otherwise = std::nullopt);
  bool Bool(std::string_view key, std::optional<bool> otherwise = std::nullopt);
  std::string Text(std::string_view key, std::optional<std::string> otherwise = std::nullopt);
  template <typename T, size_t n>
  T Choice(std::string_view key, const NamedValue<T> (&names)[n],
           std::optional<T> otherwise = std::nullopt);

  // The key may be absent, null, or have exactly this value; nothing else is supported.
  void Only(std::string_view key, const nlohmann::json& value);
  // These change no result; any value will do.
  void Ignore(std::span<const std::string_view> keys);
  // Any value, nullptr when the key is absent. It counts as read.
  const nlohmann::json* Find(std::string_view key);

  // Whether there is no fault, of this reader or of another with the same faults.
  bool ok() const { return faults_->empty(); }
  // Adds "path.key is VALUE; expected EXPECTED".
  void Fault(std::string_view key, std::string_view expected);
  // Adds a fault when `heads` does not divide `width`; both are values of the keys named. Does
  // nothing after another fault.
  void CheckDivides(std::string_view heads_key, int64_t heads, std::string_view width_key,
                    int64_t width);
  // Adds a fault for each key that was not read.
  void Finish();

  std::string PathOf(std::string_view key) const;

 private:
  // Find; a missing key without `optional` is a fault.
  const nlohmann::json* Require(std::string_view key, bool optional);

  const nlohmann::json& object_;
  const std::string path_;
  Faults* const faults_;
  std::set<std::string, std::less<>> read_;
};

template <typename T, size_t n>
T ConfigReader::Choice(std::string_view key, const NamedValue<T> (&names)[n],
                       std::optional<T> otherwise) {
  const nlohmann::json* value = Require(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(T{});
  std::string expected;
  for (const auto& [name, meaning] : names) {
    if (*value == name) return meaning;
    absl::StrAppend(&expected, expected.empty() ? "one of \"" : ", \"", std::string(name), "\"");
  }
  Fault(key, expected);
  return T{};
}

}  // namespace encoderd
