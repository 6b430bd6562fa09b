// work.h — what contenders encode: sequences of real text, as many tokens as a mix of lengths says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace encoderd::bench {

// Token ids of text_ids.txt: English text, cut into words as BERT's vocabulary does.
std::vector<int32_t> ReadTextIds();

struct Work {
  std::string name;  // a mix of lengths, as client::LengthDistribution::Parse reads it
  std::vector<std::vector<int32_t>> sequences;

  int64_t Tokens() const;
};

// So many sequences, whose lengths are spread evenly over the mix and come in a random order that is
// always the same. Each is a piece of the text between the marks of begin and end.
Work MakeWork(std::span<const int32_t> text, const std::string& lengths, int sequences);

// A few sequences that a contender's answers are checked with.
std::vector<std::vector<int32_t>> CheckSequences(std::span<const int32_t> text);

}  // namespace encoderd::bench
