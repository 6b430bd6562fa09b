// machine.h — what all cores of this machine can do right now.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/precision.h"

namespace encoderd::bench {

// "Intel(R) Xeon(R) Processor, 2 cores, amx", with the kernel's name of the CPU.
std::string MachineName(int threads);

enum class Limit {
  kRegisters,  // ops::RegisterLoop
  kMatmul,     // ops::MachineMatmul
};

struct MachineRate {
  double operations = 0;       // per second, the threads' rates added up
  std::string implementation;  // the instruction, or oneDNN's name of what ran
};

// On `threads` threads at once, for `seconds`. Errors: those of the two.
absl::StatusOr<MachineRate> MeasureMachine(Limit limit, Precision precision, int threads,
                                           double seconds);

}  // namespace encoderd::bench
