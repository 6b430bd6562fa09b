// calibration.h — measures at start-up what batches cost on this machine.
//
// Role:   between the engine, which it runs, and the cost model, which it fits
//         (batching/cost_model.h).
// Method: every worker at once, as under load, each with an own copy of a few batches: of several
//         sizes, of one long sequence, and of embeddings alone, which are little more than answer
//         bytes. Only as many of the model's blocks run as the time allows several times; a model
//         whose blocks are too large for that does not fit into a core's cache with two of them
//         either, so that repeating these does not flatter it. A core's time is measured, not the
//         clock's, and the fastest of a worker's repetitions counts: what else runs on the machine
//         is not the model's cost, and changes; the cost model's correction follows it.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "server/batching/clock.h"
#include "server/batching/cost_model.h"

namespace encoderd {

struct Calibration {
  CostCoefficients cost;
  int64_t blocks = 0;  // that were run, the fewest of any worker
  absl::Duration took;
};

// Measures for about kCalibrationTime; longer only if running every batch once takes longer than
// that. Errors: those of Engine::CreateWorker, Engine::AllocateAnswer and Worker::Run.
absl::StatusOr<Calibration> Calibrate(const Engine& engine, int workers, Clock& clock);

inline constexpr absl::Duration kCalibrationTime = absl::Milliseconds(350);

}  // namespace encoderd
