// answer_text.h — an answer for people, and for programs.
#pragma once

#include <ostream>

#include "absl/time/time.h"
#include "deploy/client/answer.h"

namespace encoderd::client {

// Shapes, timings and the first `num_values` values of the first rows.
void WriteAnswerText(const Answer& answer, absl::Duration round_trip, int num_values,
                     std::ostream& out);

// Everything, as one line of JSON: tensors as {"dtype", "shape", "data"} with data row by row;
// every value with as many digits as give the same fp32 when read back.
void WriteAnswerJson(const Answer& answer, std::ostream& out);

}  // namespace encoderd::client
