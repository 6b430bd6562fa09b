// lengths.h — how long the sequences of a load are.
//
// Role:    pure; every distribution is a sorted list of lengths that are equally likely, so that a
//          sample is a look-up and mean and maximum are exact.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace encoderd::client {

inline constexpr int64_t kMaxLength = 1 << 20;         // tokens of one sequence
inline constexpr int64_t kMaxLengthsInFile = 1 << 20;  // lines

class LengthDistribution {
 public:
  // TEXT is one of
  //   fixed:N      every sequence has N tokens
  //   uniform:A-B  every length from A to B, equally often
  //   squad        questions with a paragraph, as in SQuAD: mean 177, at most 384
  //   short        search queries: mean 16, at most 64
  //   bimodal      as many sequences of 8 tokens as of 512
  //   file:PATH    the lengths of one's own logs, one a line; a line is drawn as often as another
  // Lengths are 1 to kMaxLength. Errors: kInvalidArgument with what was expected and got, for a
  // file with its path and line.
  static absl::StatusOr<LengthDistribution> Parse(std::string_view text);

  // The text it was made from.
  const std::string& name() const { return name_; }

  // The length below which a share `u` of the sequences lies. REQUIRES: 0 <= u < 1.
  int64_t At(double u) const;
  double mean() const;
  int64_t max() const { return lengths_.back(); }

 private:
  LengthDistribution(std::string_view name, std::vector<int32_t> lengths);

  std::string name_;
  std::vector<int32_t> lengths_;  // sorted, never empty
};

}  // namespace encoderd::client
