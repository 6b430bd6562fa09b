#include "tests/bench/engine_runner.h"

#include <barrier>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "absl/log/check.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/engine/ask.h"

namespace encoderd::bench {
namespace {

using Clock = std::chrono::steady_clock;

// How the sequences of a work become batches.
struct Batching {
  std::string kind;
  int64_t tokens = 0;
};

Batching Parse(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  Batching batching = {.kind = parts.first};
  CHECK(absl::SimpleAtoi(parts.second, &batching.tokens) &&
        (batching.kind == "packed" || batching.kind == "padded" || batching.kind == "maps"))
      << "batching: expected packed:N, padded:N or maps:N, got " << text;
  return batching;
}

// The sequences of a work as calls of one batch each.
class Batches {
 public:
  Batches(const Engine& engine, const Work& work, const Batching& batching)
      : padded_to_(batching.kind == "padded" ? static_cast<size_t>(batching.tokens) : 0),
        maps_(batching.kind == "maps") {
    if (padded_to_ > 0) Pad(work);
    const int64_t most = padded_to_ > 0 ? engine.info().max_batch_tokens : batching.tokens;
    int64_t tokens = 0;
    for (size_t i = 0; i < work.sequences.size(); ++i) {
      const auto length = static_cast<int64_t>(Ids(work, i).size());
      if (begins_.empty() || tokens + length > most) {
        begins_.push_back(i);
        real_tokens_.push_back(0);
        tokens = 0;
      }
      tokens += length;
      real_tokens_.back() += static_cast<int64_t>(work.sequences[i].size());
    }
    begins_.push_back(work.sequences.size());
  }

  size_t count() const { return real_tokens_.size(); }
  int64_t real_tokens(size_t batch) const { return real_tokens_[batch]; }

  Request Call(const Work& work, size_t batch) const {
    Request request;
    request.outputs.last_hidden_state = true;
    if (maps_) request.outputs.attentions.emplace();
    for (size_t i = begins_[batch]; i < begins_[batch + 1]; ++i) {
      Sequence sequence = {.input_ids = Ids(work, i)};
      if (padded_to_ > 0) sequence.mask = {.keys = keys_[i], .keys_present = true};
      request.sequences.push_back(sequence);
    }
    return request;
  }

 private:
  std::span<const int32_t> Ids(const Work& work, size_t i) const {
    return padded_to_ > 0 ? padded_[i] : work.sequences[i];
  }

  void Pad(const Work& work) {
    for (const std::vector<int32_t>& sequence : work.sequences) {
      CHECK_LE(sequence.size(), padded_to_);
      padded_.push_back(sequence);
      padded_.back().resize(padded_to_, 0);
      keys_.emplace_back(sequence.size(), uint8_t{1});
      keys_.back().resize(padded_to_, 0);
    }
  }

  const size_t padded_to_;  // 0: not at all
  const bool maps_;
  std::vector<std::vector<int32_t>> padded_;
  std::vector<std::vector<uint8_t>> keys_;
  std::vector<size_t> begins_;  // of the batches, and the end
  std::vector<int64_t> real_tokens_;
};

// Deals out the batches of whole passes until `seconds` have gone by. Thread-safe.
class Passes {
 public:
  Passes(size_t batches, double seconds)
      : batches_(batches), end_(Clock::now() + std::chrono::duration<double>(seconds)) {}

  std::optional<size_t> Take() {
    const std::lock_guard lock(mutex_);
    const size_t at = next_ % batches_;
    if (at == 0 && next_ > 0 && Clock::now() >= end_) return std::nullopt;
    ++next_;
    return at;
  }

 private:
  const size_t batches_;
  const std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
  std::mutex mutex_;
  size_t next_ = 0;
};

}  // namespace

std::vector<float> EngineRunner::Encode(const std::vector<std::vector<int32_t>>& sequences) const {
  const auto worker = NewWorker(*engine_);
  std::vector<float> hidden;
  for (const std::vector<int32_t>& ids : sequences) {
    Request request = {.sequences = {{.input_ids = ids}}};
    request.outputs.last_hidden_state = true;
    const Answer answer = Ask(*engine_, *worker, std::move(request));
    const std::span<const float> rows = Floats(answer.last_hidden_state);
    hidden.insert(hidden.end(), rows.begin(), rows.end());
  }
  return hidden;
}

double EngineRunner::Rate(const Work& work, const std::string& batching, bool one_thread,
                          double seconds) {
  const Batches batches(*engine_, work, Parse(batching));
  const int threads = one_thread ? 1 : threads_;
  std::mutex mutex;
  double rate = 0;
  const bool warm_up = warm_.insert({work.name, batching, threads}).second;
  std::optional<Passes> passes;
  std::barrier start(threads, [&]() noexcept { passes.emplace(batches.count(), seconds); });
  const auto run = [&](size_t thread) {
    const auto worker = NewWorker(*engine_);
    if (warm_up) Ask(*engine_, *worker, batches.Call(work, thread % batches.count()));
    start.arrive_and_wait();
    const Clock::time_point begin = Clock::now();
    Clock::time_point end = begin;
    int64_t tokens = 0;
    while (const std::optional<size_t> batch = passes->Take()) {
      Ask(*engine_, *worker, batches.Call(work, *batch));
      tokens += batches.real_tokens(*batch);
      end = Clock::now();
    }
    if (tokens == 0) return;
    const std::lock_guard lock(mutex);
    rate += static_cast<double>(tokens) / std::chrono::duration<double>(end - begin).count();
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(run, static_cast<size_t>(i));
  run(0);
  for (std::thread& thread : others) thread.join();
  return rate;
}

}  // namespace encoderd::bench
