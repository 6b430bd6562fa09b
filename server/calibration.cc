#include "server/calibration.h"

#include <algorithm>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "engine/status_macros.h"
#include "server/sample_batch.h"

namespace encoderd {
namespace {

// After so many repetitions the fastest hardly changes any more.
constexpr int kMaxRounds = 8;
// Rounds that are to fit into the time: the first also pays for memory that nobody has touched.
constexpr int kPlannedRounds = 3;
constexpr int64_t kShortTokens = 32;
constexpr int64_t kProbeTokens = 64;
constexpr int64_t kProbeBlocks = 2;

// What one worker has measured.
struct Measurement {
  absl::Status status;
  std::vector<CostSample> samples;
  int64_t blocks = 0;
};

// `tokens` in short sequences, or as many as a batch may have.
SampleBatch::Shape ShortSequences(const Engine& engine, int64_t tokens, int64_t blocks) {
  const int64_t batch = std::min(tokens, engine.info().max_batch_tokens);
  const int64_t each = std::min({kShortTokens, batch, engine.info().max_sequence_tokens});
  return {.sequences = batch / each, .tokens = each, .blocks = blocks};
}

std::vector<SampleBatch::Shape> Shapes(const Engine& engine, int64_t blocks) {
  const int64_t most = std::min(engine.info().max_batch_tokens, engine.info().max_sequence_tokens);
  std::vector<SampleBatch::Shape> shapes;
  for (const int64_t tokens : {16, 64, 128, 256, 512}) {
    shapes.push_back(ShortSequences(engine, tokens, blocks));
  }
  shapes.push_back({.sequences = 1, .tokens = most, .blocks = blocks});
  shapes.push_back(ShortSequences(engine, 512, /*blocks=*/0));
  return shapes;
}

// How many blocks can run in every batch so that the planned rounds fit into the time.
absl::StatusOr<int64_t> AffordableBlocks(const Engine& engine, Worker& worker) {
  const int64_t layers = engine.spec().num_layers;
  const int64_t blocks = std::min(kProbeBlocks, layers);
  ASSIGN_OR_RETURN(const auto probe,
                   SampleBatch::Create(engine, ShortSequences(engine, kProbeTokens, blocks)));
  RETURN_IF_ERROR(probe->Run(worker).status());
  ASSIGN_OR_RETURN(const absl::Duration time, probe->Run(worker));

  double round_tokens = 0;  // for each block
  for (const SampleBatch::Shape& shape : Shapes(engine, /*blocks=*/1)) {
    round_tokens += static_cast<double>(shape.blocks * shape.sequences * shape.tokens);
  }
  const absl::Duration round =
      time / probe->work().tokens * (round_tokens / static_cast<double>(layers));
  if (round <= absl::ZeroDuration()) return layers;
  const double affordable = absl::FDivDuration(kCalibrationTime / kPlannedRounds, round);
  return std::clamp(static_cast<int64_t>(std::min(affordable, 1e6)), int64_t{1}, layers);
}

absl::Status MeasureRounds(const Engine& engine, Clock& clock, std::latch& start,
                           Measurement& measurement) {
  // Whatever fails here, the others must not wait for this worker.
  std::unique_ptr<Worker> worker;
  const auto prepare = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(worker, engine.CreateWorker());
    ASSIGN_OR_RETURN(measurement.blocks, AffordableBlocks(engine, *worker));
    return absl::OkStatus();
  };
  const absl::Status prepared = prepare();
  start.arrive_and_wait();
  RETURN_IF_ERROR(prepared);

  std::vector<std::unique_ptr<SampleBatch>> batches;
  for (const SampleBatch::Shape& shape : Shapes(engine, measurement.blocks)) {
    ASSIGN_OR_RETURN(batches.emplace_back(), SampleBatch::Create(engine, shape));
  }
  const absl::Time end = clock.Now() + kCalibrationTime;
  for (int round = 0; round < kMaxRounds; ++round) {
    for (size_t i = 0; i < batches.size(); ++i) {
      if (round > 0 && clock.Now() >= end) return absl::OkStatus();
      ASSIGN_OR_RETURN(const absl::Duration time, batches[i]->Run(*worker));
      const double seconds = absl::ToDoubleSeconds(time);
      if (round == 0) {
        measurement.samples.push_back({.work = batches[i]->work(), .seconds = seconds});
      } else {
        double& fastest = measurement.samples[i].seconds;
        fastest = std::min(fastest, seconds);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Calibration> Calibrate(const Engine& engine, int workers, Clock& clock) {
  const absl::Time begin = clock.Now();
  std::vector<Measurement> measurements(static_cast<size_t>(workers));
  std::latch start(workers);
  std::vector<std::thread> threads;
  for (Measurement& measurement : measurements) {
    threads.emplace_back(
        [&] { measurement.status = MeasureRounds(engine, clock, start, measurement); });
  }
  for (std::thread& thread : threads) thread.join();

  Calibration calibration = {.blocks = engine.spec().num_layers};
  std::vector<CostSample> samples;
  for (const Measurement& measurement : measurements) {
    RETURN_IF_ERROR(measurement.status);
    samples.insert(samples.end(), measurement.samples.begin(), measurement.samples.end());
    calibration.blocks = std::min(calibration.blocks, measurement.blocks);
  }
  calibration.cost = FitCost(samples);
  calibration.took = clock.Now() - begin;
  return calibration;
}

}  // namespace encoderd
