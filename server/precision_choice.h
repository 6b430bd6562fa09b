// precision_choice.h — which precision a model is served in where --precision=auto leaves it open:
// the fastest whose error is within a bound, both measured on this machine.
//
// Method: fp32 is loaded first; what it makes of fixed sequences (accuracy.h) is what the others
//         are held against. Each other precision is then loaded beside the fastest so far, and the
//         two run the same batch in turn, one worker each; a core's time counts, and the least of
//         several rounds, so that what else runs on the machine cannot decide. The slower one goes
//         before the next is loaded: never more than two are in memory. Large models are timed by a
//         few of their blocks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/precision.h"
#include "server/precision_trial.h"

namespace encoderd {

// A precision is taken for faster if it is by this factor: less is noise, and the choice should be
// the same at every start.
inline constexpr double kFasterBy = 1.05;

// Loads the model for one worker in the precision.
using PrecisionLoader = std::function<absl::StatusOr<std::unique_ptr<Engine>>(Precision)>;

// Takes about a second and the time to load the model in each precision. Logs each trial and the
// choice; a warning where no other precision is within the bound. Errors: those of loading and
// running fp32.
absl::StatusOr<PrecisionChoice> ChoosePrecision(double error_max, const PrecisionLoader& load);

// The choice as a file, so that a fleet agrees. Errors: kInvalidArgument with the path when the
// file is not as WritePrecisionFile writes it; kNotFound; those of reading.
absl::StatusOr<PrecisionChoice> ReadPrecisionFile(const std::string& path);

// Writes the whole file or none. Errors: kAlreadyExists, also when another process was faster;
// kFailedPrecondition when it cannot be written.
absl::Status WritePrecisionFile(const std::string& path, const PrecisionChoice& choice);

}  // namespace encoderd
