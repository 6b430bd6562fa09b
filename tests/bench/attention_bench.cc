// Goal:   what attention costs a token, and how near it comes to its micro-kernels alone.
// Method: one thread; per shape, rounds of the operation and of its two micro-kernels on operands
//         that stay in cache, alternating, so that both see the same machine; the median of each.
//         A sequence is run as the engine would: whole up to 256 tokens, else packed in pieces of
//         256, a piece of queries at a time.
//
// usage: attention_bench [ROUNDS [TOKENS HEAD_DIM]] (default 7 rounds, and the usual shapes)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "absl/log/check.h"
#include "engine/ops/attention.h"
#include "engine/ops/attention_kernels.h"
#include "engine/ops/runtime.h"

namespace encoderd::ops {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kPhaseSeconds = 0.03;
constexpr int64_t kPieceTokens = 256;

struct Shape {
  int64_t tokens, heads, head_dim;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Seconds of one call.
double SecondsOf(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  int64_t calls = 0;
  double seconds = 0;
  do {
    work();
    ++calls;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  } while (seconds < kPhaseSeconds);
  return seconds / static_cast<double>(calls);
}

Buffer Floats(int64_t count) {
  auto buffer = Buffer::AllocateLasting(static_cast<size_t>(count) * sizeof(float), "floats");
  CHECK(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

// The operation on one sequence.
class Operation {
 public:
  Operation(const Shape& shape, Precision precision)
      : shape_(shape), width_(shape.heads * shape.head_dim) {
    auto attention = Attention::Create({.precision = precision,
                                        .heads = shape.heads,
                                        .head_dim = shape.head_dim,
                                        .strides = {.row_stride = 3 * width_,
                                                    .head_stride = shape.head_dim,
                                                    .q_offset = 0,
                                                    .k_offset = width_,
                                                    .v_offset = 2 * width_},
                                        .scale = 0.125f});
    CHECK(attention.ok()) << attention.status();
    attention_ = *std::move(attention);
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    qkv_ = Floats(shape.tokens * 3 * width_);
    for (float& value : qkv_.floats()) value = normal(rng);
    context_ = Floats(kPieceTokens * width_);
    scratch_ = Floats(static_cast<int64_t>(attention_.scratch_bytes(shape.tokens) / sizeof(float)));
    if (shape.tokens > kPieceTokens) PackPieces();
  }

  void Run() {
    for (int64_t first = 0; first < shape_.tokens; first += kPieceTokens) {
      const auto finite = attention_.Run({.qkv = pieces_.empty() ? qkv_.floats().data() : nullptr,
                                          .pieces = pieces_,
                                          .tokens = shape_.tokens,
                                          .first_query = first,
                                          .queries = std::min(kPieceTokens, shape_.tokens - first),
                                          .mask = &mask_,
                                          .context = context_.floats().data()},
                                         scratch_.bytes());
      CHECK(finite.ok() && *finite);
    }
  }

 private:
  // The engine packs behind the product that gives q, k and v, once for all that read them.
  void PackPieces() {
    for (int64_t first = 0; first < shape_.tokens; first += kPieceTokens) {
      const int64_t count = std::min(kPieceTokens, shape_.tokens - first);
      memory_.push_back(Floats(kPieceTokens * 3 * width_));
      attention_.Pack(qkv_.floats().data() + first * 3 * width_, count,
                      memory_.back().floats().data());
    }
    for (size_t i = 0; i < memory_.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * kPieceTokens;
      pieces_.push_back({.data = memory_[i].floats().data(),
                         .tokens = std::min(kPieceTokens, shape_.tokens - first)});
    }
  }

  const Shape shape_;
  const int64_t width_;
  const Mask mask_;
  Attention attention_;
  Buffer qkv_, context_;
  std::vector<Buffer> memory_;
  std::vector<PackedTokens> pieces_;
  Buffer scratch_;
};

// Both products of a block of queries and a block of keys, alone.
class Kernels {
 public:
  static constexpr int64_t kRows = 64;
  static constexpr double OperationsOf(int64_t head_dim) {
    return 4.0 * kRows * kKeyBlock * static_cast<double>(head_dim);
  }

  Kernels(int64_t head_dim, Precision precision)
      : format_{.precision = precision, .head_dim = head_dim},
        score_(format_, kKeyBlock),
        context_(format_, kKeyBlock) {
    memory_ = Floats(1 << 17);
    // Ordinary numbers, as fp32 and as bf16: zeros might run at another speed.
    std::ranges::fill(memory_.bytes(), std::byte{0x3c});
  }

  void Run() {
    constexpr int64_t kPart = 1 << 16;
    std::byte* const at = memory_.bytes().data();
    const TileUse tiles;
    for (int i = 0; i < 64; ++i) {
      score_.Run(at, kRows, at + kPart, kKeyBlock, reinterpret_cast<float*>(at + 2 * kPart));
      context_.Run(at + 3 * kPart, kRows, at + 4 * kPart, kKeyBlock, /*add=*/true,
                   reinterpret_cast<float*>(at + 5 * kPart));
    }
  }
  double operations() const { return 64 * OperationsOf(format_.head_dim); }

 private:
  const HeadFormat format_;
  const ScoreKernels score_;
  const ContextKernels context_;
  Buffer memory_;
};

void Report(const Shape& shape, Precision precision, int rounds) {
  Operation operation(shape, precision);
  Kernels kernels(shape.head_dim, precision);
  std::vector<double> seconds, rates;
  operation.Run();
  kernels.Run();
  for (int round = 0; round < rounds; ++round) {
    seconds.push_back(SecondsOf([&] { operation.Run(); }));
    rates.push_back(kernels.operations() / SecondsOf([&] { kernels.Run(); }));
  }
  const auto tokens = static_cast<double>(shape.tokens);
  const double operations =
      4.0 * tokens * tokens * static_cast<double>(shape.heads * shape.head_dim);
  const double rate = operations / Median(seconds);
  std::printf("%-5s %6lld %6lld %9lld %14.2f %11.0f %11.0f %8.0f%%\n",
              std::string(PrecisionName(precision)).c_str(), static_cast<long long>(shape.tokens),
              static_cast<long long>(shape.heads), static_cast<long long>(shape.head_dim),
              1e6 * Median(seconds) / tokens, rate / 1e9, Median(rates) / 1e9,
              100 * rate / Median(rates));
  std::fflush(stdout);
}

}  // namespace
}  // namespace encoderd::ops

int main(int argc, char** argv) {
  using encoderd::Precision;
  constexpr int64_t kHeads = 12;
  encoderd::ops::EnterNumericEnvironment();
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  std::printf("%s, one thread, median of %d rounds\n%-5s %6s %6s %9s %14s %11s %11s %9s\n",
              encoderd::ops::IsaName().c_str(), rounds, "", "tokens", "heads", "head_dim",
              "µs a token", "Gflop/s", "kernels", "of them");
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    if (!encoderd::ops::RequirePrecision(precision).ok()) continue;
    if (argc > 3) {
      encoderd::ops::Report({std::atoi(argv[2]), kHeads, std::atoi(argv[3])}, precision, rounds);
      continue;
    }
    for (const int64_t head_dim : {32, 64}) {
      for (const int64_t tokens : {16, 128, 384, 512, 4096}) {
        encoderd::ops::Report({tokens, kHeads, head_dim}, precision, rounds);
      }
    }
  }
  return 0;
}
