// file_limit.h — room for as many open files as the flags ask for.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace encoderd {

// Lets this process have `needed` files open at a time: raises its soft limit as far as the hard
// one allows, and never lowers it. Errors: kResourceExhausted, which names both numbers, when that
// is not enough.
absl::Status RaiseFileLimit(uint64_t needed);

}  // namespace encoderd
