// fetch.h — asks for memory before it is needed.
//
// Role: private to engine/ops; used where what comes next lies where no CPU guesses it, or farther away
//       than it looks ahead.
#pragma once

#include <cstdint>

namespace encoderd::ops {

inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kLineFloats = kLineBytes / sizeof(float);

// The line of `address` into the second-level cache. Any address is legal.
inline __attribute__((always_inline)) void FetchLine(const void* address) {
  constexpr int kForReading = 0, kIntoSecondLevel = 2;
  __builtin_prefetch(address, kForReading, kIntoSecondLevel);
}

}  // namespace encoderd::ops
