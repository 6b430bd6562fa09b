#include "deploy/client/labels.h"

#include <algorithm>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"

namespace encoderd::client {
namespace {

// 16: wide enough for a word piece, and twice as many rows of text still fit a screen.
constexpr int kMaxCharacters = 16;

// Bytes of the UTF-8 character at the front of `text`, or 0 if there is none: RFC 3629, without
// overlong forms, surrogates and what lies above U+10FFFF.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool beyond = (lead == 0xed && byte(1) >= 0xa0) || (lead == 0xf4 && byte(1) >= 0x90);
  return overlong || beyond ? 0 : length;
}

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& file) {
  std::ifstream opened(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(opened, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
  }
  // A folder opens, and fails at the first read.
  if (!opened.eof()) return absl::InvalidArgumentError(absl::StrCat(file, ": cannot be read"));
  return lines;
}

}  // namespace

std::string DisplayText(std::string_view bytes) {
  std::string text;
  for (int characters = 0; !bytes.empty(); ++characters) {
    const size_t length = CharacterBytes(bytes);
    if (characters == kMaxCharacters - 1 && bytes.size() > std::max<size_t>(length, 1)) {
      return text + "…";
    }
    const unsigned char lead = static_cast<unsigned char>(bytes.front());
    if (length == 0) {
      text += "\uFFFD";
    } else if (lead < 0x20 || lead == 0x7f) {
      text += ' ';
    } else {
      text += bytes.substr(0, length);
    }
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

absl::StatusOr<std::vector<std::string>> ReadLabels(const std::string& file, int64_t tokens) {
  ASSIGN_OR_RETURN(std::vector<std::string> lines, ReadLines(file));
  if (static_cast<int64_t>(lines.size()) == tokens) return lines;
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": expected ", tokens, " lines, one per token, got ", lines.size()));
}

absl::StatusOr<std::vector<std::string>> LabelsFromVocab(const std::string& file,
                                                         std::span<const int32_t> ids) {
  ASSIGN_OR_RETURN(const std::vector<std::string> words, ReadLines(file));
  std::vector<std::string> labels;
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= words.size()) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": expected a line for every id, got ",
                                                     words.size(), " lines and id ", id));
    }
    labels.push_back(words[static_cast<size_t>(id)]);
  }
  return labels;
}

}  // namespace encoderd::client
