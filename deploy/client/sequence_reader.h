// sequence_reader.h — turns what a user types or pipes into sequences of the wire.
//
// Forms of a sequence, one per argument or line:
//   101 7592 102          token ids, separated by spaces or commas
//   [101, 7592, 102]      the same as JSON
//   {"input_ids": [101, 7592, 102], "token_type_ids": [0, 0, 0], "position_ids": [0, 1, 2],
//    "mask": {"keys": [1, 1, 0], "pairs": [[…]], "head_pairs": [[[…]]], "causal": true,
//             "segment_ids": [0, 0, 1]},
//    "spans": [[0, 2]]}   the fields of encoderd.v1.Sequence by their names
//   {"inputs_embeds": [[0.1, 0.2], [0.3, 0.4]]}   ready-made vectors [S, input_dim], sent as FP32
#pragma once

#include <istream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "encoderd/v1/encoder.pb.h"

namespace encoderd::client {

// One sequence in any of the forms above. Errors: kInvalidArgument that names the field, what is
// expected there and what was got. Whether the model accepts the values is the server's to say.
absl::StatusOr<v1::Sequence> ParseSequence(absl::string_view text);

// The sequences of the arguments; without arguments those of `file`, where "-" and "" stand for
// `standard_input`: one a line, empty lines and lines that start with # skipped. Errors as above
// with the argument's or line's number; kInvalidArgument also for a file that cannot be read, for a
// file beside arguments, and where there is no sequence at all.
absl::StatusOr<std::vector<v1::Sequence>> ReadSequences(std::span<const std::string> arguments,
                                                        const std::string& file,
                                                        std::istream& standard_input);

// Replaces input_ids by inputs_embeds [S, width] whose row i is all 0 but for a 1 at column
// input_ids[i]. Errors: kInvalidArgument for an id outside 0..width-1 or a sequence without ids.
absl::Status MakeOneHot(int width, v1::Sequence& sequence);

}  // namespace encoderd::client
