#include "tests/bench/work.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "absl/log/check.h"
#include "deploy/client/load/lengths.h"

namespace encoderd::bench {
namespace {

constexpr int32_t kBegin = 101;  // [CLS]
constexpr int32_t kEnd = 102;    // [SEP]

// `tokens` of the text from `at` on, which starts again at its end.
std::vector<int32_t> Piece(std::span<const int32_t> text, size_t at, int64_t tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = text[(at + i) % text.size()];
  ids.front() = kBegin;
  ids.back() = kEnd;
  return ids;
}

}  // namespace

std::vector<int32_t> ReadTextIds() {
  std::ifstream file(ENCODERD_SOURCE_DIR "/tests/bench/text_ids.txt");
  std::vector<int32_t> ids{std::istream_iterator<int32_t>(file), {}};
  CHECK(!ids.empty()) << "tests/bench/text_ids.txt cannot be read";
  return ids;
}

int64_t Work::Tokens() const {
  int64_t tokens = 0;
  for (const auto& sequence : sequences) tokens += static_cast<int64_t>(sequence.size());
  return tokens;
}

Work MakeWork(std::span<const int32_t> text, const std::string& lengths, int sequences) {
  const auto mix = client::LengthDistribution::Parse(lengths);
  CHECK(mix.ok()) << mix.status();
  Work work = {.name = lengths};
  for (int i = 0; i < sequences; ++i) {
    const int64_t tokens = mix->At((i + 0.5) / sequences);
    work.sequences.push_back(Piece(text, static_cast<size_t>(i) * 131, tokens));
  }
  std::mt19937 order(20260301);
  std::ranges::shuffle(work.sequences, order);
  return work;
}

std::vector<std::vector<int32_t>> CheckSequences(std::span<const int32_t> text) {
  std::vector<std::vector<int32_t>> sequences;
  for (const int64_t tokens : {5, 17, 64, 128, 200}) {
    sequences.push_back(Piece(text, static_cast<size_t>(tokens) * 7, tokens));
  }
  return sequences;
}

}  // namespace encoderd::bench
