#include "engine/parts.h"

#include <algorithm>
#include <numeric>

#include "absl/log/check.h"
#include "engine/validation_internal.h"

namespace encoderd {
namespace {

// The plan of one sequence, which starts at `first_block` and gives nothing yet.
Plan EmptyPart(const Plan& plan, size_t sequence, int64_t first_block) {
  const size_t place = plan.PlaceOf(sequence);
  CHECK_LT(place + 1, plan.token_offsets.size()) << "the plan has no such sequence";
  auto rows = [place](const std::vector<int64_t>& offsets) {
    return std::vector<int64_t>{0, offsets[place + 1] - offsets[place]};
  };
  return {.dtype = plan.dtype,
          .first_block = first_block,
          .first_sequence = sequence,
          .token_offsets = rows(plan.token_offsets),
          .pooled_offsets = rows(plan.pooled_offsets)};
}

void Measure(const EncoderSpec& spec, Plan& plan) {
  plan.answer_bytes = static_cast<int64_t>(validation::AnswerBytes(spec, plan));
}

}  // namespace

int64_t BlocksOf(const Plan& plan) { return plan.layers_run + (plan.last_map_only ? 1 : 0); }

Plan PartOf(const EncoderSpec& spec, const Plan& plan, const Part& part) {
  const int64_t blocks = BlocksOf(plan);
  CHECK(0 <= part.first_block && part.end_block <= blocks &&
        (part.first_block < part.end_block || blocks == 0))
      << "PartOf: blocks [" << part.first_block << ", " << part.end_block << ") of " << blocks;
  const bool last = part.end_block == blocks;
  // Whether hidden state `layer` is one that the part computes.
  auto yields = [&](int64_t layer) {
    return (part.first_block < layer || part.first_block + layer == 0) && layer <= part.end_block;
  };

  Plan result = EmptyPart(plan, part.sequence, part.first_block);
  result.last_hidden_state = plan.last_hidden_state && last;
  result.logits = plan.logits && last;
  result.logits_per_sequence = plan.logits_per_sequence;
  result.contacts = plan.contacts && part.first_block == 0 && last;
  std::ranges::copy_if(plan.hidden_layers, std::back_inserter(result.hidden_layers), yields);
  std::ranges::copy_if(
      plan.pooled, std::back_inserter(result.pooled),
      [&](const PooledOutput& pooled) { return pooled.layer ? yields(*pooled.layer) : last; });
  if (plan.attentions && part.maps) {
    std::ranges::copy_if(
        plan.attention_layers, std::back_inserter(result.attention_layers),
        [&](int64_t block) { return part.first_block <= block && block < part.end_block; });
    result.attentions = !result.attention_layers.empty();
    result.attention_heads = plan.attention_heads;
    result.query_rows = plan.query_rows;
  }
  result.layers_run = std::min(part.end_block, plan.layers_run);
  result.last_map_only = plan.last_map_only && last && part.maps;
  result.final_norm_needed = plan.final_norm_needed && last;
  result.keeps_hidden = !last;
  Measure(spec, result);
  return result;
}

Plan ContactsPartOf(const EncoderSpec& spec, const Plan& plan, size_t sequence) {
  Plan result = EmptyPart(plan, sequence, /*first_block=*/0);
  result.contacts = true;
  validation::ResolveBlocks(spec, result);
  Measure(spec, result);
  return result;
}

Plan WithoutContacts(const EncoderSpec& spec, Plan plan) {
  plan.contacts = false;
  validation::ResolveBlocks(spec, plan);
  Measure(spec, plan);
  return plan;
}

Plan MapPartOf(const EncoderSpec& spec, const Plan& plan, const MapPart& part) {
  CHECK(std::ranges::count(plan.attention_layers, part.block) == 1)
      << "MapPartOf: the plan has no map of block " << part.block;
  Plan result = EmptyPart(plan, part.sequence, part.block);
  result.attentions = true;
  result.attention_layers.push_back(static_cast<int32_t>(part.block));
  result.attention_heads.assign(
      plan.attention_heads.begin() + static_cast<int64_t>(part.first_head),
      plan.attention_heads.begin() + static_cast<int64_t>(part.end_head));
  result.query_rows.resize(part.end_row - part.first_row);
  if (plan.query_rows.empty()) {
    std::iota(result.query_rows.begin(), result.query_rows.end(),
              static_cast<int32_t>(part.first_row));
  } else {
    std::copy_n(plan.query_rows.begin() + static_cast<int64_t>(part.first_row),
                result.query_rows.size(), result.query_rows.begin());
  }
  result.layers_run = part.block;
  result.last_map_only = true;
  Measure(spec, result);
  return result;
}

}  // namespace encoderd
