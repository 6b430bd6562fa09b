// rounding.h — sizes in steps. Values are not negative.
#pragma once

#include <cstdint>

namespace encoderd::ops {

constexpr int64_t CeilDiv(int64_t value, int64_t by) { return (value + by - 1) / by; }
constexpr int64_t RoundUp(int64_t value, int64_t step) { return CeilDiv(value, step) * step; }

}  // namespace encoderd::ops
