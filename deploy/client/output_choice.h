// output_choice.h — the flags that choose the outputs of a call, read into an OutputSpec.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "encoderd/v1/encoder.pb.h"

namespace encoderd::client {

// KIND[:normalize|:raw][:layer=L][:dimensions=N], where KIND is default, cls, mean, max or pooler:
// "mean:normalize:layer=-2". Errors: kInvalidArgument.
absl::StatusOr<v1::PoolingSpec> ParsePooling(absl::string_view text);

// The flags --last_hidden_state, --hidden_states, --attentions with --layers, --heads and
// --query_rows, --pooled, --logits, --contacts, --dtype. Errors: kInvalidArgument naming the flag.
absl::StatusOr<v1::OutputSpec> OutputsFromFlags();

// --layers, --heads and --query_rows alone.
absl::StatusOr<v1::AttentionSpec> AttentionFromFlags();

}  // namespace encoderd::client
