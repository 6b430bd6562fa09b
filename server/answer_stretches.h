// answer_stretches.h — where the answer to a part of a plan lies in the answer to the whole.
//
// Role:  a stream produces its answer in parts (answer_steps.h) and sends them as pieces of the
//        whole answer's tensors. Knows the engine's plain data alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace encoderd {

// A stretch of one tensor of the whole answer.
struct Stretch {
  uint32_t tensor = 0;  // as Piece.tensor
  uint64_t offset = 0;  // bytes
  std::span<const std::byte> data;
};

// Where the tensors of the answer to `part`, a plan of some of the sequences or blocks or of a
// piece of a map of `whole` (engine/parts.h), lie in the whole answer; by tensor and offset.
std::vector<Stretch> StretchesOf(const Plan& whole, const Plan& part, const Answer& answer);

}  // namespace encoderd
