// engine_runner.h — this engine as a contender runs it: a worker for each core in the process.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/bench/work.h"

namespace encoderd::bench {

class EngineRunner {
 public:
  EngineRunner(std::unique_ptr<Engine> engine, int threads)
      : engine_(std::move(engine)), threads_(threads) {}

  const Engine& engine() const { return *engine_; }

  // Last hidden states of the sequences, end to end.
  std::vector<float> Encode(const std::vector<std::vector<int32_t>>& sequences) const;

  // Real tokens per second of as many workers, over whole passes through the work that take
  // `seconds` or more: the sum of the workers' rates, each up to the end of its last batch.
  // `batching` is packed:N, padded:N or maps:N (contender.h).
  // The first time in a setting, each worker runs a batch beforehand.
  double Rate(const Work& work, const std::string& batching, bool one_thread, double seconds);

 private:
  std::unique_ptr<Engine> engine_;
  int threads_;
  std::set<std::tuple<std::string, std::string, int>> warm_;
};

}  // namespace encoderd::bench
