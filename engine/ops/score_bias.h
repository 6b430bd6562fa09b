// score_bias.h — what is added to the scores of a block: −∞ where the mask or the window hides a key,
// and the bias of how far apart query and key are.
//
// Role: private to engine/ops. Where nothing is to be added, that is said, so that nothing is.
#pragma once

#include <cstdint>

#include "engine/ops/mask.h"
#include "engine/ops/position_bias.h"

namespace encoderd::ops {

// Keys [first, end).
struct Keys {
  int64_t first = 0;
  int64_t end = 0;

  int64_t count() const { return end - first; }
};

class ScoreBias {
 public:
  // [rows][stride], from the first of the keys on; a stride of 0: one row for all. Null: nothing.
  struct Block {
    const float* data = nullptr;
    int64_t stride = 0;
  };

  // Memory that blocks are written to: of_keys [tokens], rows [rows of a block][stride].
  struct Memory {
    float* of_keys = nullptr;
    float* rows = nullptr;
    int64_t stride = 0;
  };

  // `keys` are those that will be asked for. Borrows all that it is given.
  ScoreBias(const Mask& mask, const PositionBias& position_bias, int64_t window, int64_t tokens,
            Keys keys, const Memory& memory);

  // For rows [first_row, first_row + rows) of a head. Valid until the next call.
  Block Of(int64_t head, int64_t first_row, int64_t rows, Keys keys) const;

 private:
  bool VariesByRow(int64_t first_row, int64_t rows, Keys keys) const;
  void Fill(int64_t head, int64_t row, Keys keys, float* bias) const;

  const Mask& mask_;
  const PositionBias& position_bias_;
  const int64_t window_;
  const int64_t tokens_;
  const Memory memory_;
};

}  // namespace encoderd::ops
