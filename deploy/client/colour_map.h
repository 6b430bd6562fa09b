// colour_map.h — a perceptually uniform scale from dark violet to yellow.
#pragma once

#include <cstdint>

namespace encoderd::client {

// 0xRRGGBB for `fraction` in [0, 1]; values outside are drawn as the nearer end, NaN as 0.
// Source: viridis of matplotlib (CC0), nine colours of it with straight lines between them.
uint32_t Viridis(float fraction);

}  // namespace encoderd::client
