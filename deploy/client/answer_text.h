// answer_text.h — an answer for people, and for programs.
#pragma once

#include <ostream>
#include <span>
#include <string>

#include "absl/time/time.h"
#include "deploy/client/answer.h"

namespace encoderd::client {

// Shapes, timings and the first `num_values` values of the first rows; behind a row of logits the
// label of its largest value, where the model has `labels` for its columns.
void WriteAnswerText(const Answer& answer, absl::Duration round_trip, int num_values,
                     std::span<const std::string> labels, std::ostream& out);

// Everything, as one line of JSON: tensors as {"dtype", "shape", "data"} with data row by row;
// every value with as many digits as give the same fp32 when read back.
void WriteAnswerJson(const Answer& answer, std::ostream& out);

}  // namespace encoderd::client
