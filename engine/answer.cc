#include "engine/answer.h"

#include "engine/status_macros.h"

namespace encoderd {
namespace {

absl::Status Allocate(DataType type, AnswerTensor& tensor) {
  size_t bytes = DataTypeBytes(type);
  for (const int64_t axis : tensor.shape) bytes *= static_cast<size_t>(axis);
  ASSIGN_OR_RETURN(tensor.data, Buffer::Allocate(bytes, "answer"));
  return absl::OkStatus();
}

}  // namespace

Answer AnswerShapes(const EncoderSpec& spec, const Plan& plan) {
  Answer answer;
  const int64_t tokens = plan.token_offsets.back();
  if (plan.last_hidden_state) answer.last_hidden_state.shape = {tokens, spec.hidden_size};
  for (const int32_t layer : plan.hidden_layers) {
    answer.hidden_states.push_back({.shape = {tokens, spec.hidden_width(layer)}, .data = {}});
  }
  const auto heads = static_cast<int64_t>(plan.attention_heads.size());
  for (size_t i = 0; plan.attentions && i + 1 < plan.token_offsets.size(); ++i) {
    const int64_t length = plan.token_offsets[i + 1] - plan.token_offsets[i];
    const auto rows =
        plan.query_rows.empty() ? length : static_cast<int64_t>(plan.query_rows.size());
    for (const int32_t layer : plan.attention_layers) {
      answer.attentions.push_back({.sequence = static_cast<uint32_t>(plan.first_sequence + i),
                                   .layer = layer,
                                   .tensor = {.shape = {heads, rows, length}, .data = {}}});
    }
  }
  for (const PooledOutput& pooled : plan.pooled) {
    answer.pooled.push_back({.shape = {plan.pooled_offsets.back(), pooled.dimensions}, .data = {}});
  }
  if (plan.logits) answer.logits.shape = {plan.LogitsRows(), spec.logits_width()};
  for (size_t i = 0; plan.contacts && i + 1 < plan.token_offsets.size(); ++i) {
    const int64_t inner = ContactTokens(plan.token_offsets[i + 1] - plan.token_offsets[i]);
    answer.contacts.push_back({.shape = {inner, inner}, .data = {}});
  }
  return answer;
}

absl::StatusOr<Answer> AllocateTensors(const EncoderSpec& spec, const Plan& plan) {
  Answer answer = AnswerShapes(spec, plan);
  if (plan.last_hidden_state) RETURN_IF_ERROR(Allocate(plan.dtype, answer.last_hidden_state));
  for (AnswerTensor& tensor : answer.hidden_states) RETURN_IF_ERROR(Allocate(plan.dtype, tensor));
  for (AttentionMap& map : answer.attentions) RETURN_IF_ERROR(Allocate(plan.dtype, map.tensor));
  for (AnswerTensor& tensor : answer.pooled) RETURN_IF_ERROR(Allocate(plan.dtype, tensor));
  if (plan.logits) RETURN_IF_ERROR(Allocate(plan.dtype, answer.logits));
  for (AnswerTensor& tensor : answer.contacts) RETURN_IF_ERROR(Allocate(plan.dtype, tensor));
  return answer;
}

}  // namespace encoderd
