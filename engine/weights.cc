#include "engine/weights.h"

#include <algorithm>
#include <set>

namespace encoderd {

void EncoderWeights::ForEachOperation(
    const std::function<void(const ops::Linear&)>& linear,
    const std::function<void(const ops::LayerNorm&)>& norm) const {
  auto visit_norm = [&](const std::optional<ops::LayerNorm>& op) {
    if (op.has_value()) norm(*op);
  };
  auto visit_linear = [&](const std::optional<ops::Linear>& op) {
    if (op.has_value()) linear(*op);
  };
  for (const auto* steps :
       {&input_steps, &embedding_steps, &logits, &classifier, &pooler, &projection}) {
    for (const StepWeights& step : *steps) {
      visit_linear(step.linear);
      visit_norm(step.norm);
    }
  }
  visit_norm(embedding_norm);
  for (const BlockWeights& block : blocks) {
    linear(block.qkv);
    linear(block.attention_output);
    visit_norm(block.norm1);
    visit_linear(block.ffn_gate);
    visit_linear(block.ffn_in);
    visit_linear(block.ffn_out);
    visit_norm(block.norm2);
  }
  visit_norm(final_norm);
}

size_t EncoderWeights::bytes() const {
  size_t total = words.size() + positions.size() + types.size();
  for (const auto* table : {&rotary, &rotary_local}) {
    if (table->has_value()) total += (*table)->bytes();
  }
  for (const BlockWeights& block : blocks) total += block.relative.size();
  if (contact.has_value()) total += contact->weight.size();
  std::set<const void*> counted;
  ForEachOperation(
      [&](const ops::Linear& op) {
        if (counted.insert(op.identity()).second) total += op.weights_bytes();
      },
      [&](const ops::LayerNorm& op) { total += op.weights_bytes(); });
  return total;
}

size_t EncoderWeights::scratchpad_bytes() const {
  size_t most = 0;
  ForEachOperation([&](const ops::Linear& op) { most = std::max(most, op.scratchpad_bytes()); },
                   [](const ops::LayerNorm&) {});
  return most;
}

}  // namespace encoderd
