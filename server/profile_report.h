// profile_report.h — what `encoderd --profile=8x128` prints: where the time of a batch goes, and how
// near each operation is to what the machine can do.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/options.h"

namespace encoderd {

// Runs the batch on one worker for about a second, in turn with a matrix multiplication of oneDNN's
// in the precision served (machine_rate.h), and reports the fastest run of each: a table of the operations with their
// times, shares, rates and, for matrix products, the part of the machine's rate. Errors: those of
// Engine::CreateLoneWorker and Worker::Run; kInvalidArgument when the engine does not take the shape.
// REQUIRES: the engine's max_batch_tokens is at least the shape's, or there is one sequence.
absl::StatusOr<std::string> ProfileReport(const Engine& engine, const BatchShape& shape);

}  // namespace encoderd
