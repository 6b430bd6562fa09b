#include "engine/io/json.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

// Builds the value from the parser's events and stops it at the first thing that is not allowed.
// The containers that are open are kept on an explicit stack.
class StrictBuilder final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Fail("binary values are not JSON"); }
  bool start_object(size_t) override { return Open(json::object()); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    const auto [member, inserted] = open_.back()->emplace(name, nullptr);
    if (!inserted) return Fail(absl::StrFormat("the key \"%s\" is there twice", Printable(name)));
    member_ = &*member;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …": the name is of no use
    // to readers.
    const std::string_view text = error.what();
    const size_t name_end = text.find("] ");
    return Fail(Printable(name_end == text.npos ? text : text.substr(name_end + 2)));
  }

  const std::string& fault() const { return fault_; }
  json TakeRoot() { return std::move(root_); }

 private:
  // Puts a value where the text has it: at the root, under the last key, or at the end of an array.
  json* Place(json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*member_ = std::move(value));
    return &open_.back()->emplace_back(std::move(value));
  }

  bool Add(json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(json container) {
    if (open_.size() == kMaxJsonDepth) {
      return Fail(absl::StrFormat("nested deeper than %d levels", kMaxJsonDepth));
    }
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  bool Fail(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }

  json root_;
  std::vector<json*> open_;  // a container's address is stable while it is the last of its parent
  json* member_ = nullptr;   // value of the key read last
  std::string fault_;
};

}  // namespace

absl::StatusOr<json> ParseJson(std::string_view text, std::string_view what) {
  StrictBuilder builder;
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s", what, builder.fault()));
  }
  return builder.TakeRoot();
}

std::string Printable(std::string_view text) {
  constexpr size_t kMaxBytes = 200;
  std::string printable;
  for (const char c : text.substr(0, kMaxBytes)) {
    if (c >= ' ' && c <= '~') {
      printable += c;
    } else {
      absl::StrAppendFormat(&printable, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kMaxBytes) absl::StrAppend(&printable, "…");
  return printable;
}

}  // namespace encoderd
