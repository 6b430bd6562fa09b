// mask.h — what each token of a sequence may see.
#pragma once

#include <cstdint>
#include <span>

namespace encoderd {

// Parts are ANDed; 1 = may be seen; row = query, column = key. Empty = absent. A row that may see
// nothing attends evenly to its whole sequence.
struct Mask {
  std::span<const uint8_t> keys;         // [S]
  std::span<const uint8_t> pairs;        // [S, S]
  std::span<const uint8_t> head_pairs;   // [num_heads, S, S]
  bool causal = false;                   // query i sees keys 0 … i
  std::span<const int32_t> segment_ids;  // [S]; a token sees only its own segment

  // Whether the caller sent the part at all: one that is present and empty is refused, one that is
  // absent hides nothing.
  bool keys_present = false;
  bool pairs_present = false;
  bool head_pairs_present = false;
};

}  // namespace encoderd
