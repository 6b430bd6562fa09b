// validation.h — every check of a request against the model and the limits, before anything is
// queued or computed.
//
// Role:   the one gate between untrusted bytes and the engine; pure functions on plain data, no
//         allocation beyond the answer's bookkeeping, and time linear in the request's own bytes
//         whatever its claims.
// Errors: all violations of a call are found, the first 16 are kept in full. Nothing is clamped or
//         defaulted silently.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/spec.h"
#include "engine/request.h"

namespace encoderd {

struct RequestLimits {
  int64_t max_sequence_tokens = 8192;
  int64_t max_request_sequences = 1024;
  int64_t max_request_tokens = 65536;
  int64_t max_response_bytes = int64_t{256} << 20;  // the smaller of the caller's and the server's
  // The most bytes that lie around the tensors of the answer to a plan on the caller's wire; they
  // count, too. Asked once, when the plan has everything but its answer_bytes. Null: none.
  std::function<int64_t(const Plan& plan)> framing_bytes = nullptr;
};

// One fault of a request. `reason` is stable and from a closed list: EMPTY_CALL,
// TOO_MANY_SEQUENCES, EMPTY_SEQUENCE, SEQUENCE_TOO_LONG, TOO_MANY_TOKENS, TOO_MANY_SPANS,
// INPUT_KIND_MISMATCH, TOKEN_OUT_OF_RANGE, TYPE_OUT_OF_RANGE, POSITION_OUT_OF_RANGE,
// POSITIONS_UNSUPPORTED, LENGTH_MISMATCH, SHAPE_MISMATCH, NON_FINITE_INPUT, MASK_VALUE,
// MASK_HIDES_ALL, SPAN_OUT_OF_RANGE, NO_OUTPUTS, TOO_MANY_OUTPUTS, LAYER_OUT_OF_RANGE,
// HEAD_OUT_OF_RANGE, ROW_OUT_OF_RANGE, DIMENSIONS_OUT_OF_RANGE, UNSUPPORTED_VALUE (a number that
// its enumeration does not have), OUTPUT_UNAVAILABLE, ANSWER_TOO_LARGE.
struct Violation {
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;  // or kFailedPrecondition: an output
                                                               // this model cannot give
  std::string reason;
  std::string field;        // "sequences[2].input_ids[17]"
  std::string description;  // what, expected, got
};

constexpr size_t kMaxViolations = 16;

// Pooled outputs that one call may ask for: more than every kind at every layer of a large model
// makes no sense, and an output costs far more memory than the bytes that ask for it.
constexpr size_t kMaxPooledOutputs = 256;

struct Violations {
  std::vector<Violation> listed;  // the first kMaxViolations
  int64_t total = 0;
};

// The plan of a faultless request, or its faults.
std::variant<Plan, Violations> Validate(const EncoderSpec& spec, const RequestLimits& limits,
                                        const Request& request);

// What this model can be asked for, by the names of OutputSpec: "last_hidden_state",
// "hidden_states", "attentions", "pooled", "pooler", "logits", "contacts".
std::vector<std::string> AvailableOutputs(const EncoderSpec& spec);

}  // namespace encoderd
