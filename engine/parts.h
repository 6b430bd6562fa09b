// parts.h — an answer of any size, part by part: plans that run some blocks of a sequence's pass
// and give what these blocks yield.
//
// Role:   pure functions on plans, beside validation.h. Between two parts the caller keeps the
//         sequence's hidden rows (BatchItem::hidden), [S, hidden] fp32, and no other memory is
//         needed: not what an earlier part gave, nor what a later one will.
// Bits:   the parts of a pass, wherever it is cut, give the bits of the whole.
//
//   std::vector<float> hidden(tokens * spec.hidden_size);
//   for (int64_t block = 0; block < BlocksOf(plan); ++block) {
//     const Plan part = PartOf(spec, plan, {.sequence = i, .first_block = block,
//                                           .end_block = block + 1});
//     ASSIGN_OR_RETURN(Answer answer, engine.AllocateAnswer(part));
//     BatchItem item = {.request = &request, .plan = &part, .sequence = i, .answer = &answer,
//                       .hidden = hidden};   // run it, send the answer, forget it
//   }
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/model/spec.h"
#include "engine/request.h"

namespace encoderd {

// Blocks that the pass of a plan enters; the last may run for its attention map alone.
int64_t BlocksOf(const Plan& plan);

// Blocks [first_block, end_block) of one sequence's pass.
struct Part {
  size_t sequence = 0;
  int64_t first_block = 0;
  int64_t end_block = 0;
  bool maps = true;  // false: without the attention maps, which MapPartOf gives
};

// Of the plan's outputs, the part gives: hidden states, and vectors pooled from them, of layers
// first_block + 1 … end_block, layer 0 with the first part; the maps of its blocks; with the last
// part what is made of the last hidden state; and contacts if it is the whole pass. Everything keeps
// the plan's order, and a pooled output its index.
// REQUIRES: 0 ≤ first_block < end_block ≤ BlocksOf(plan); or both 0 where the plan has no block.
Plan PartOf(const EncoderSpec& spec, const Plan& plan, const Part& part);

// Heads and query rows, each a range of places in the plan's lists, of one block's attention map.
struct MapPart {
  size_t sequence = 0;
  int64_t block = 0;
  size_t first_head = 0;
  size_t end_head = 0;
  size_t first_row = 0;
  size_t end_row = 0;
};

// Contacts come of the maps of all blocks. For a pass that is to be cut: the contacts of a sequence
// and nothing else, and a plan of all but the contacts, whose answer_bytes may be 0.
Plan ContactsPartOf(const EncoderSpec& spec, const Plan& plan, size_t sequence);
Plan WithoutContacts(const EncoderSpec& spec, Plan plan);

// For a map that is too large for one answer: a piece of it and nothing else, computed from the
// hidden rows that the part which begins with `block` is computed from, and left as they are.
// REQUIRES: the plan asks for the block's map; no range is empty or reaches beyond its list.
Plan MapPartOf(const EncoderSpec& spec, const Plan& plan, const MapPart& part);

}  // namespace encoderd
