// answer_steps.h — cuts the production of an answer of any size into steps: plans with small
// answers that are run one after the other and together give the whole, to the bit.
//
// Role:  pure functions of plans, between the plan of a call and what its stream submits
//        (encode_chunked.cc). A step is several whole sequences, or the contacts of one, or some
//        blocks of one (a part), or a piece of one attention map, as engine/parts.h has them.
// Order: by sequence, then by block; of a sequence that is cut its contacts come first, and within
//        a block its map. Of any one tensor, what a later step gives lies behind what an earlier
//        one gave.
// Cost:  contacts need all blocks at once: a sequence that is cut is computed once for them, and
//        once for the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/model/spec.h"
#include "engine/parts.h"
#include "engine/request.h"

namespace encoderd {

// The least that has to be held at once, whatever the steps.
struct LeastMemory {
  int64_t step_bytes = 0;    // one sequence's contacts, or of one block its outputs but the map,
                             // or a map's row
  int64_t hidden_bytes = 0;  // the rows that parts of the longest sequence hand on
};
LeastMemory LeastMemoryOf(const EncoderSpec& spec, const Plan& plan);

// Threads: none; its user locks.
class AnswerSteps {
 public:
  // `spec` and `plan` must outlive it. No step has an answer of more than `max_bytes` but one that
  // cannot be cut further: LeastMemoryOf has the largest of those.
  AnswerSteps(const EncoderSpec& spec, const Plan& plan, int64_t max_bytes)
      : spec_(spec), plan_(plan), rest_(WithoutContacts(spec, plan)), max_bytes_(max_bytes) {}

  // The next step; nothing after the last.
  std::optional<Plan> Next();

 private:
  size_t sequences() const { return plan_.token_offsets.size() - 1; }
  // All of one sequence.
  Plan Whole(size_t sequence) const;
  Plan NextSequences(int64_t first_bytes);
  Plan NextContacts();
  Plan NextBlocks();
  Plan NextOfMap();
  void EndSequence();

  const EncoderSpec& spec_;
  const Plan& plan_;
  const Plan rest_;  // all but the contacts
  const int64_t max_bytes_;
  // Where the next step begins.
  size_t sequence_ = 0;
  bool contacts_given_ = false;
  int64_t block_ = 0;
  size_t head_ = 0;  // of the block's map, as is `row_`: places in the plan's lists
  size_t row_ = 0;
  bool map_given_ = false;  // all of the block's map
};

}  // namespace encoderd
