#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "deploy/client/answer_text.h"
#include "deploy/client/command.h"
#include "deploy/client/connection.h"
#include "deploy/client/input_choice.h"
#include "deploy/client/output_choice.h"
#include "engine/status_macros.h"

ABSL_FLAG(bool, bulk, false, "let interactive calls go first");
ABSL_FLAG(std::string, request_id, "", "echoed in the answer and in the server's log");
ABSL_FLAG(int, values, 6, "how many values of each row to print");
ABSL_DECLARE_FLAG(bool, json);

namespace encoderd::client {
namespace {

constexpr std::string_view kHelp =
    R"(A sequence is a list of token ids, or JSON with the fields of encoderd.v1.Sequence; each has
its own length and none is padded. Choose at least one output.

  encoderctl encode 101,7592,102 101,102 --last_hidden_state
  encoderctl encode 101,7592,102 --pooled=mean:normalize --json
  encoderctl encode 3,1,4,1,5 --one_hot=10 --logits
  encoderctl encode --input=ids.txt --hidden_states=0,-1 --attentions --layers=-1 --heads=0
  echo '{"input_ids": [101, 7592, 102], "mask": {"keys": [1, 1, 0]}}' |
    encoderctl encode --last_hidden_state
  echo '{"inputs_embeds": [[0.1, 0.2], [0.3, 0.4]]}' | encoderctl encode --logits

Fields of a JSON sequence: input_ids [S] or inputs_embeds [S, input_dim]; token_type_ids [S];
position_ids [S]; mask with keys [S], pairs [S, S], head_pairs [heads, S, S], causal,
segment_ids [S] (1 = may be seen, row = query); spans [[begin, end], ...].
)";

absl::StatusOr<ExitCode> Run(std::span<const std::string> arguments, Streams streams) {
  const int num_values = absl::GetFlag(FLAGS_values);
  if (num_values < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--values: expected 0 or more, got ", num_values));
  }
  v1::EncodeRequest request;
  ASSIGN_OR_RETURN(*request.mutable_outputs(), OutputsFromFlags());
  ASSIGN_OR_RETURN(std::vector<v1::Sequence> sequences, SequencesFromFlags(arguments, streams.in));
  for (v1::Sequence& sequence : sequences) {
    RETURN_IF_ERROR(ApplyOneHotFlag(sequence));
    *request.add_sequences() = std::move(sequence);
  }
  request.set_request_id(absl::GetFlag(FLAGS_request_id));
  request.set_priority(absl::GetFlag(FLAGS_bulk) ? v1::PRIORITY_BULK : v1::PRIORITY_INTERACTIVE);

  ASSIGN_OR_RETURN(Connection connection, Connection::FromFlags());
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(const v1::EncodeResponse response, connection.Encode(std::move(request)));
  const absl::Duration round_trip = absl::Now() - start;
  ASSIGN_OR_RETURN(const Answer answer, ReadAnswer(response));
  if (absl::GetFlag(FLAGS_json)) {
    WriteAnswerJson(answer, streams.out);
  } else {
    std::vector<std::string> labels;
    if (answer.logits.has_value()) {
      ASSIGN_OR_RETURN(const v1::GetModelResponse model, connection.GetModel());
      labels.assign(model.labels().begin(), model.labels().end());
    }
    WriteAnswerText(answer, round_trip, num_values, labels, streams.out);
  }
  return kExitOk;
}

}  // namespace

const Command& EncodeCommand() {
  static const Command command = {
      .name = "encode",
      .arguments = "[SEQUENCE]...",
      .summary = "run the encoder and print what it gives",
      .help = kHelp,
      .flags = {{.title = "Input", .flags = {"input", "one_hot"}},
                {.title = "Outputs",
                 .flags = {"last_hidden_state", "hidden_states", "attentions", "layers", "heads",
                           "query_rows", "pooled", "logits", "contacts", "dtype"}},
                {.title = "Connection",
                 .flags = {"address", "timeout", "model", "max_response_bytes", "chunked",
                           "request_id", "bulk"}},
                IdentityFlagGroup(),
                {.title = "Printing", .flags = {"json", "values"}}},
      .takes_arguments = true,
      .run = Run};
  return command;
}

}  // namespace encoderd::client
