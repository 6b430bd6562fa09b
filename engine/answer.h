// answer.h — the shapes and the memory of an answer, as a plan promises them.
#pragma once

#include "absl/status/statusor.h"
#include "engine/model/spec.h"
#include "engine/request.h"

namespace encoderd {

// The answer to a plan with every shape and no data.
Answer AnswerShapes(const EncoderSpec& spec, const Plan& plan);

// The same with memory for the data, uninitialised. Errors: kResourceExhausted.
absl::StatusOr<Answer> AllocateTensors(const EncoderSpec& spec, const Plan& plan);

}  // namespace encoderd
