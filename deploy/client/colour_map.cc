#include "deploy/client/colour_map.h"

#include <array>
#include <cmath>

namespace encoderd::client {
namespace {

constexpr std::array<uint32_t, 9> kAnchors = {0x440154, 0x472d7b, 0x3b528b, 0x2c728e, 0x21908c,
                                              0x27ad81, 0x5dc863, 0xaadc32, 0xfde725};

uint32_t Blend(uint32_t from, uint32_t to, float weight, int shift) {
  const float begin = static_cast<float>((from >> shift) & 0xff);
  const float end = static_cast<float>((to >> shift) & 0xff);
  return static_cast<uint32_t>(std::lround(begin + (end - begin) * weight)) << shift;
}

}  // namespace

uint32_t Viridis(float fraction) {
  if (!(fraction > 0)) return kAnchors.front();
  if (fraction >= 1) return kAnchors.back();
  const float position = fraction * static_cast<float>(kAnchors.size() - 1);
  const size_t index = static_cast<size_t>(position);
  const float weight = position - static_cast<float>(index);
  const uint32_t from = kAnchors[index];
  const uint32_t to = kAnchors[index + 1];
  return Blend(from, to, weight, 16) | Blend(from, to, weight, 8) | Blend(from, to, weight, 0);
}

}  // namespace encoderd::client
