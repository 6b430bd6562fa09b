#include "deploy/client/load/lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/io/file.h"
#include "engine/status_macros.h"

namespace encoderd::client {
namespace {

constexpr int kCurvePoints = 1000;
constexpr uint64_t kMaxFileBytes = uint64_t{8} << 20;  // a line of at most seven digits and its end

// A point of the curve of lengths over the share of sequences that are shorter.
struct Knot {
  double share;
  double length;
};

// Shapes of published length histograms, drawn with few lines; the last digits are chosen so that
// the means are exactly those that are reported for them, 177 and 16.
constexpr Knot kSquad[] = {{0, 28},     {0.05, 88},  {0.25, 128}, {0.5, 158},
                           {0.75, 208}, {0.95, 320}, {0.98, 384}, {1, 384}};
constexpr Knot kShort[] = {{0, 4}, {0.25, 10}, {0.5, 14}, {0.75, 18}, {0.95, 31}, {1, 64}};

std::vector<int32_t> FromCurve(std::span<const Knot> knots) {
  std::vector<int32_t> lengths;
  size_t right = 1;
  for (int i = 0; i < kCurvePoints; ++i) {
    const double share = (i + 0.5) / kCurvePoints;
    while (share > knots[right].share) ++right;
    const Knot& from = knots[right - 1];
    const Knot& to = knots[right];
    const double part = (share - from.share) / (to.share - from.share);
    lengths.push_back(
        static_cast<int32_t>(std::lround(from.length + part * (to.length - from.length))));
  }
  return lengths;
}

absl::StatusOr<int32_t> ParseLength(absl::string_view text, absl::string_view where) {
  int32_t length = 0;
  if (absl::SimpleAtoi(text, &length) && length >= 1 && length <= kMaxLength) return length;
  // What a file holds reaches a terminal: no control character of it may, and no endless line.
  return absl::InvalidArgumentError(absl::StrCat(where, ": expected a length of 1 to ", kMaxLength,
                                                 " tokens, got \"",
                                                 absl::CHexEscape(text.substr(0, 40)), "\""));
}

absl::StatusOr<std::vector<int32_t>> ReadLengths(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path, kMaxFileBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--lengths: ", text.status().message()));
  }
  std::vector<int32_t> lengths;
  int64_t line = 0;
  for (const absl::string_view raw : absl::StrSplit(*text, '\n')) {
    ++line;
    const absl::string_view word = absl::StripAsciiWhitespace(raw);
    if (word.empty()) continue;
    if (lengths.size() >= kMaxLengthsInFile) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": expected at most ",
                                                     kMaxLengthsInFile, " lengths, got more"));
    }
    ASSIGN_OR_RETURN(const int32_t length, ParseLength(word, absl::StrCat(path, ":", line)));
    lengths.push_back(length);
  }
  if (lengths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a length a line, got none"));
  }
  return lengths;
}

absl::StatusOr<std::vector<int32_t>> ParseUniform(absl::string_view range) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(range, absl::MaxSplits('-', 1));
  ASSIGN_OR_RETURN(const int32_t first, ParseLength(ends.first, "--lengths=uniform:A-B, A"));
  ASSIGN_OR_RETURN(const int32_t last, ParseLength(ends.second, "--lengths=uniform:A-B, B"));
  if (first > last) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--lengths=uniform:A-B: expected A to be at most B, got ", first, " and ", last));
  }
  std::vector<int32_t> lengths(static_cast<size_t>(last - first) + 1);
  std::iota(lengths.begin(), lengths.end(), first);
  return lengths;
}

}  // namespace

LengthDistribution::LengthDistribution(std::string_view name, std::vector<int32_t> lengths)
    : name_(name), lengths_(std::move(lengths)) {
  std::ranges::sort(lengths_);
}

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(std::string_view text) {
  absl::string_view rest(text.data(), text.size());
  if (rest == "squad") return LengthDistribution(text, FromCurve(kSquad));
  if (rest == "short") return LengthDistribution(text, FromCurve(kShort));
  if (rest == "bimodal") return LengthDistribution(text, {8, 512});
  std::vector<int32_t> lengths;
  if (absl::ConsumePrefix(&rest, "fixed:")) {
    ASSIGN_OR_RETURN(const int32_t length, ParseLength(rest, "--lengths=fixed:N"));
    lengths = {length};
  } else if (absl::ConsumePrefix(&rest, "uniform:")) {
    ASSIGN_OR_RETURN(lengths, ParseUniform(rest));
  } else if (absl::ConsumePrefix(&rest, "file:")) {
    ASSIGN_OR_RETURN(lengths, ReadLengths(std::string(rest)));
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "--lengths: expected fixed:N, uniform:A-B, squad, short, bimodal or file:PATH, got ",
        absl::CHexEscape(rest)));
  }
  return LengthDistribution(text, std::move(lengths));
}

int64_t LengthDistribution::At(double u) const {
  return lengths_[static_cast<size_t>(u * static_cast<double>(lengths_.size()))];
}

double LengthDistribution::mean() const {
  return std::accumulate(lengths_.begin(), lengths_.end(), 0.0) /
         static_cast<double>(lengths_.size());
}

}  // namespace encoderd::client
