#include "engine/validation.h"

#include "engine/validation_internal.h"

namespace encoderd {
namespace {

using validation::Faults;

// Checks the call's totals and writes where each sequence lies in the answer's tensors.
void CheckSequences(const EncoderSpec& spec, const RequestLimits& limits, const Request& request,
                    Faults& faults, Plan& plan) {
  const auto field = [] { return std::string("sequences"); };
  const auto num_sequences = static_cast<int64_t>(request.sequences.size());
  if (num_sequences == 0) {
    faults.Add("EMPTY_CALL", field,
               [] { return "the call has no sequences; expected at least 1"; });
  }
  if (num_sequences > limits.max_request_sequences) {
    faults.Add("TOO_MANY_SEQUENCES", field, [&] {
      return absl::StrCat("the call has ", num_sequences, " sequences; expected at most ",
                          limits.max_request_sequences);
    });
  }

  plan.token_offsets.assign(1, 0);
  plan.pooled_offsets.assign(1, 0);
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    const int64_t tokens = validation::CheckSequence(spec, limits, request, i, faults);
    const auto spans = static_cast<int64_t>(request.sequences[i].spans.size());
    plan.token_offsets.push_back(plan.token_offsets.back() + tokens);
    plan.pooled_offsets.push_back(plan.pooled_offsets.back() + (spans == 0 ? 1 : spans));
  }

  if (const int64_t tokens = plan.token_offsets.back(); tokens > limits.max_request_tokens) {
    faults.Add("TOO_MANY_TOKENS", field, [&] {
      return absl::StrCat("the call has ", tokens, " tokens; expected at most ",
                          limits.max_request_tokens);
    });
  }
  // A span costs a few bytes to send and a row of every pooled output to answer.
  if (const int64_t rows = plan.pooled_offsets.back();
      rows - num_sequences > limits.max_request_tokens) {
    faults.Add("TOO_MANY_SPANS", field, [&] {
      return absl::StrCat("the call has more than ", limits.max_request_tokens,
                          " spans, the most that a call may have");
    });
  }
}

}  // namespace

std::variant<Plan, Violations> Validate(const EncoderSpec& spec, const RequestLimits& limits,
                                        const Request& request) {
  Faults faults;
  Plan plan;
  CheckSequences(spec, limits, request, faults, plan);
  validation::ResolveOutputs(spec, limits, request.outputs, faults, plan);
  if (!faults.empty()) return faults.Take();
  return plan;
}

std::vector<std::string> AvailableOutputs(const EncoderSpec& spec) {
  std::vector<std::string> outputs = {"last_hidden_state", "hidden_states", "attentions", "pooled"};
  if (!spec.pooler.empty()) outputs.push_back("pooler");
  if (spec.has_logits()) outputs.push_back("logits");
  if (spec.has_contacts()) outputs.push_back("contacts");
  return outputs;
}

}  // namespace encoderd
