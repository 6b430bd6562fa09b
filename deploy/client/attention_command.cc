#include <algorithm>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "deploy/client/answer.h"
#include "deploy/client/attention_figure.h"
#include "deploy/client/command.h"
#include "deploy/client/connection.h"
#include "deploy/client/input_choice.h"
#include "deploy/client/labels.h"
#include "deploy/client/output_choice.h"
#include "deploy/client/pictures.h"
#include "engine/status_macros.h"

ABSL_FLAG(std::string, output, "attention.png", "the picture to write");
ABSL_FLAG(std::string, labels, "", "file with one label per token and line");
ABSL_FLAG(std::string, vocab, "",
          "vocab.txt of the model: its line i, from 0, is the label of token id i");

namespace encoderd::client {
namespace {

constexpr std::string_view kHelp =
    R"(Draws the attention maps of one sequence as a PNG: a row of the picture for every layer, a
column for every head. In a map, query tokens run down and key tokens run to the right.

  encoderctl attention 101,7592,2088,102 --vocab=model/vocab.txt --layers=-1
  encoderctl attention 3,1,4,1,5,9,2,6 --one_hot=10 --output=reverse.png
  encoderctl attention --input=ids.txt --layers=0,5 --heads=0,1,2 --labels=words.txt

Without --labels and --vocab the tokens are named by their ids.
)";

// One label per token of the sequence as it was typed.
absl::StatusOr<std::vector<std::string>> TokenLabels(const v1::Sequence& typed) {
  const std::string labels = absl::GetFlag(FLAGS_labels);
  const std::string vocab = absl::GetFlag(FLAGS_vocab);
  const std::vector<int32_t> ids(typed.input_ids().begin(), typed.input_ids().end());
  const int64_t tokens =
      typed.has_inputs_embeds() ? typed.inputs_embeds().shape(0) : static_cast<int64_t>(ids.size());
  if (!labels.empty() && !vocab.empty()) {
    return absl::InvalidArgumentError("--labels, --vocab: expected one of them, got both");
  }
  if (!labels.empty()) return ReadLabels(labels, tokens);
  if (!vocab.empty() && ids.empty()) {
    return absl::InvalidArgumentError("--vocab: expected input_ids, got vectors");
  }
  if (!vocab.empty()) return LabelsFromVocab(vocab, ids);
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < tokens; ++i) {
    numbers.push_back(absl::StrCat(ids.empty() ? i : ids[static_cast<size_t>(i)]));
  }
  return numbers;
}

// What a picture must be able to rely on: maps of one shape, rows that are tokens.
absl::Status CheckMaps(const Answer& answer, size_t tokens) {
  if (answer.sequences() != 1 || answer.tokens() != static_cast<int64_t>(tokens) ||
      answer.attentions.empty()) {
    return absl::DataLossError(absl::StrCat("attentions: expected maps of one sequence of ", tokens,
                                            " tokens, got ", answer.attentions.size(), " maps of ",
                                            answer.sequences(), " sequences and ", answer.tokens(),
                                            " tokens"));
  }
  const AttentionMap& first = answer.attentions.front();
  for (const AttentionMap& map : answer.attentions) {
    const bool rows_are_tokens = std::ranges::all_of(
        map.query_rows, [&](int32_t row) { return row >= 0 && row < answer.tokens(); });
    if (map.query_rows != first.query_rows || map.heads != first.heads || !rows_are_tokens ||
        map.weights.values.empty()) {
      return absl::DataLossError(
          absl::StrCat("attentions: expected maps of the same heads and "
                       "rows, got others in layer ",
                       map.layer));
    }
  }
  return absl::OkStatus();
}

AttentionFigure MakeFigure(const Answer& answer, const std::string& model,
                           std::vector<std::string> labels) {
  AttentionFigure figure;
  figure.title = absl::StrCat(DisplayText(model), model.empty() ? "" : ": ", "attention of ",
                              answer.tokens(), answer.tokens() == 1 ? " token" : " tokens");
  figure.query_rows = answer.attentions.front().query_rows;
  figure.token_labels = std::move(labels);
  figure.grid_columns = static_cast<int>(answer.attentions.front().heads.size());
  for (const AttentionMap& map : answer.attentions) {
    for (size_t head = 0; head < map.heads.size(); ++head) {
      figure.panels.push_back(
          {.title = absl::StrCat("layer ", map.layer, ", head ", map.heads[head]),
           .weights = map.Head(head)});
    }
  }
  return figure;
}

absl::StatusOr<ExitCode> Run(std::span<const std::string> arguments, Streams streams) {
  RETURN_IF_ERROR(RequirePictures());
  v1::EncodeRequest request;
  ASSIGN_OR_RETURN(*request.mutable_outputs()->mutable_attentions(), AttentionFromFlags());
  ASSIGN_OR_RETURN(std::vector<v1::Sequence> typed, SequencesFromFlags(arguments, streams.in));
  if (typed.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected one sequence, got ", typed.size(), ": a picture shows one"));
  }
  ASSIGN_OR_RETURN(std::vector<std::string> labels, TokenLabels(typed.front()));
  *request.add_sequences() = typed.front();
  RETURN_IF_ERROR(ApplyOneHotFlag(*request.mutable_sequences(0)));

  ASSIGN_OR_RETURN(Connection connection, Connection::FromFlags());
  ASSIGN_OR_RETURN(const v1::GetModelResponse model, connection.GetModel());
  ASSIGN_OR_RETURN(const v1::EncodeResponse response, connection.Encode(std::move(request)));
  ASSIGN_OR_RETURN(const Answer answer, ReadAnswer(response));
  RETURN_IF_ERROR(CheckMaps(answer, labels.size()));
  const AttentionFigure figure = MakeFigure(answer, model.name(), std::move(labels));
  const std::string path = absl::GetFlag(FLAGS_output);
  RETURN_IF_ERROR(DrawAttention(figure, path));
  streams.out << "wrote " << path << ": " << figure.panels.size()
              << (figure.panels.size() == 1 ? " map of " : " maps of ") << figure.query_rows.size()
              << " x " << answer.tokens() << "\n";
  return kExitOk;
}

}  // namespace

const Command& AttentionCommand() {
  static const Command command = {
      .name = "attention",
      .arguments = "[SEQUENCE]",
      .summary = "draw attention maps into a PNG",
      .help = kHelp,
      .flags = {{.title = "Input", .flags = {"input", "one_hot"}},
                {.title = "Maps", .flags = {"layers", "heads", "query_rows"}},
                {.title = "Picture", .flags = {"output", "labels", "vocab"}},
                {.title = "Connection",
                 .flags = {"address", "timeout", "model", "max_response_bytes", "chunked"}},
                IdentityFlagGroup()},
      .takes_arguments = true,
      .run = Run};
  return command;
}

}  // namespace encoderd::client
