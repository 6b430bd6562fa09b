// reference_encoder.h — a whole encoder written out plainly from its spec: the judge of specs for
// which there is no other.
//
// Role: tests alone. Runs the operations of reference_ops.h one after the other on one sequence,
//       rounding to fp32 in between.
#pragma once

#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/spec.h"
#include "engine/request.h"

namespace encoderd::reference {

struct EncoderResult {
  std::vector<std::vector<float>> hidden_states;  // [layers + 1][S, width]
  std::vector<std::vector<double>> maps;          // [layers][heads, S, S]
  std::vector<float> last_hidden_state;           // [S, hidden]
  std::vector<float> logits;                      // [S, labels]; empty: the spec has none
  std::vector<float> contacts;                    // [S - 2, S - 2]; empty: the spec has none
  std::vector<float> pooler;                      // of the first token; empty: the spec has none
};

EncoderResult RunEncoder(const EncoderSpec& spec, const Checkpoint& checkpoint,
                         const Sequence& sequence);

}  // namespace encoderd::reference
