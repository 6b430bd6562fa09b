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
// is returned after a fault is a stand-in: a value that could be, and the key is in doubt.
class ConfigReader {
 public:
  // `path` precedes the key in faults: "" for a file's root, "logits[1]" for an object inside.
  // All is borrowed. With `earlier`, the faults of a first reading, each key in doubt gets another
  // value than the first time: what comes out the same then does not depend on it.
  ConfigReader(const nlohmann::json& object, std::string path, Faults* faults,
               const Faults* earlier = nullptr);

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

  // What the values of a key change that is not supported.
  enum class Changes { kMaths, kTensors };
  // The key may be absent, null, or have exactly this value; nothing else is supported. Where it
  // changes tensors, another value leaves open which ones there are.
  void Only(std::string_view key, const nlohmann::json& value, Changes what = Changes::kMaths);
  // These change no result; any value will do.
  void Ignore(std::span<const std::string_view> keys);
  // Any value, nullptr when the key is absent. It counts as read.
  const nlohmann::json* Find(std::string_view key);

  // Whether a fault so far leaves open what the key should have said.
  bool InDoubt(std::string_view key) const { return faults_->InDoubt(PathOf(key)); }
  // Whether it was so in the earlier reading, so that another value than then is wanted.
  bool WasInDoubt(std::string_view key) const;
  // Adds "path.key is VALUE; expected EXPECTED".
  void Fault(std::string_view key, std::string_view expected);
  // Adds a fault when `heads` does not divide `width`; both are values of the keys named. Does
  // nothing when one of them is in doubt.
  void CheckDivides(std::string_view heads_key, int64_t heads, std::string_view width_key,
                    int64_t width);
  // Adds a fault for each key that was not read, with the absent key that looks most like it. With
  // one, the defaults of keys that are absent are in doubt: a name may be misspelt.
  void Finish();

  std::string PathOf(std::string_view key) const;
  // A reader of an object inside this one.
  ConfigReader Nested(const nlohmann::json& object, std::string path) const {
    return ConfigReader(object, std::move(path), faults_, earlier_);
  }

 private:
  // The absent key that was read and looks most like `unknown`, or "".
  std::string Nearest(std::string_view unknown) const;
  // Find; a missing key without `optional` is a fault.
  const nlohmann::json* Require(std::string_view key, bool optional);
  int64_t ReadSize(std::string_view key, std::optional<int64_t> otherwise, int64_t least);
  bool ReadBool(std::string_view key, std::optional<bool> otherwise);
  template <typename T, size_t n>
  T ReadChoice(std::string_view key, const NamedValue<T> (&names)[n], std::optional<T> otherwise);

  const nlohmann::json& object_;
  const std::string path_;
  Faults* const faults_;
  const Faults* const earlier_;
  std::set<std::string, std::less<>> read_;
};

template <typename T, size_t n>
T ConfigReader::Choice(std::string_view key, const NamedValue<T> (&names)[n],
                       std::optional<T> otherwise) {
  const T value = ReadChoice(key, names, otherwise);
  if (!WasInDoubt(key)) return value;
  for (const auto& [name, meaning] : names) {
    if (meaning != value) return meaning;
  }
  return value;
}

template <typename T, size_t n>
T ConfigReader::ReadChoice(std::string_view key, const NamedValue<T> (&names)[n],
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
