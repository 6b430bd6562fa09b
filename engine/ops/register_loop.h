// register_loop.h — private to engine/ops: multiply-adds on vectors that stay in registers.
#pragma once

#include "absl/status/statusor.h"
#include "engine/ops/machine_rate.h"

namespace encoderd::ops {

// RegisterLoop::Create on vectors. Errors: kUnimplemented.
absl::StatusOr<RegisterLoop> VectorLoop(Precision precision);

}  // namespace encoderd::ops
