// validation_internal.h — the parts that Validate is put together from; for engine/validation*.cc
// alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "engine/validation.h"

namespace encoderd::validation {

// Collects the faults of one call. Every fault is counted; texts are made for the listed ones
// alone, so that a megabyte of wrong values costs no more than a count.
class Faults {
 public:
  // `field` and `description` are functions that return the text.
  template <typename Field, typename Description>
  void Add(std::string_view reason, Field field, Description description,
           absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    ++violations_.total;
    if (violations_.listed.size() == kMaxViolations) return;
    violations_.listed.push_back({.code = code,
                                  .reason = std::string(reason),
                                  .field = field(),
                                  .description = description()});
  }

  bool empty() const { return violations_.total == 0; }
  Violations Take() { return std::move(violations_); }

 private:
  Violations violations_;
};

// Checks sequences[index] except for what concerns the call as a whole. Returns S, its tokens, or 0
// when the sequence does not say so in a way that can be believed.
int64_t CheckSequence(const EncoderSpec& spec, const RequestLimits& limits, const Request& request,
                      size_t index, Faults& faults);

// Fills in the outputs of the plan, the blocks to run and the size of the answer. REQUIRES:
// plan.token_offsets and plan.pooled_offsets are filled in; a sequence whose length is not known
// has no tokens there.
void ResolveOutputs(const EncoderSpec& spec, const RequestLimits& limits, const OutputSpec& outputs,
                    Faults& faults, Plan& plan);

// Fills in which blocks the plan's outputs need, and whether the final norm.
void ResolveBlocks(const EncoderSpec& spec, Plan& plan);

// Bytes of all tensors of the answer. 128 bits: heads · rows · S · layers of a hostile call may not
// fit 64.
absl::int128 AnswerBytes(const EncoderSpec& spec, const Plan& plan);

}  // namespace encoderd::validation
