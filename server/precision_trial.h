// precision_trial.h — what is measured of the precisions to choose one (precision_choice.h).
#pragma once

#include <string>
#include <vector>

#include "engine/precision.h"

namespace encoderd {

// What was found out about one precision.
struct PrecisionTrial {
  Precision precision = Precision::kFp32;
  std::string refused;           // why it cannot be served here; then nothing was measured
  double error = 0;              // the largest over the tokens of 1 − cosine to fp32
  double tokens_per_second = 0;  // of one worker, at 128 tokens a sequence
};

struct PrecisionChoice {
  Precision precision = Precision::kFp32;
  double error_max = 0;        // the bound
  std::string isa;             // where it was measured
  std::string weights_sha256;  // of the model
  std::vector<PrecisionTrial> trials;
};

}  // namespace encoderd
