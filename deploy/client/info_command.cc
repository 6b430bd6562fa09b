#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "deploy/client/command.h"
#include "deploy/client/connection.h"
#include "engine/status_macros.h"

ABSL_FLAG(bool, json, false, "print one line of JSON");

namespace encoderd::client {
namespace {

constexpr std::string_view kHelp =
    R"(Prints the architecture, the numerics id, the outputs and the limits.

  encoderctl info
  encoderctl info --address=encoder.example:50051 --json | jq .max_sequence_tokens
)";

std::string PoolingName(v1::Pooling pooling) {
  switch (pooling) {
    case v1::POOLING_CLS:
      return "cls";
    case v1::POOLING_MEAN:
      return "mean";
    case v1::POOLING_MAX:
      return "max";
    case v1::POOLING_POOLER:
      return "pooler";
    default:
      return "not stated";
  }
}

using Json = nlohmann::ordered_json;

Json TrialsJson(const v1::GetModelResponse& model) {
  Json trials = Json::array();
  for (const v1::PrecisionTrial& trial : model.precision_trials()) {
    trials.push_back({{"precision", trial.precision()},
                      {"error", trial.error()},
                      {"tokens_per_second", trial.tokens_per_second()}});
  }
  return trials;
}

// Every field by its name in encoder.proto.
Json ModelJson(const v1::GetModelResponse& model) {
  return {{"name", model.name()},
          {"family", model.family()},
          {"server_version", model.server_version()},
          {"numerics_id", model.numerics_id()},
          {"weights_sha256", model.weights_sha256()},
          {"tokenizer_sha256", model.tokenizer_sha256()},
          {"precision", model.precision()},
          {"isa", model.isa()},
          {"num_layers", model.num_layers()},
          {"num_heads", model.num_heads()},
          {"hidden_size", model.hidden_size()},
          {"input_dim", model.input_dim()},
          {"inputs_embeds_width", model.inputs_embeds_width()},
          {"vocab_size", model.vocab_size()},
          {"type_vocab_size", model.type_vocab_size()},
          {"max_sequence_tokens", model.max_sequence_tokens()},
          {"max_request_sequences", model.max_request_sequences()},
          {"max_request_tokens", model.max_request_tokens()},
          {"max_request_bytes", model.max_request_bytes()},
          {"max_response_bytes", model.max_response_bytes()},
          {"default_pooling", PoolingName(model.default_pooling())},
          {"default_normalize", model.default_normalize()},
          {"outputs", std::vector<std::string>(model.outputs().begin(), model.outputs().end())},
          {"labels", std::vector<std::string>(model.labels().begin(), model.labels().end())},
          {"precision_trials", TrialsJson(model)}};
}

std::string Text(const Json& value) {
  if (value.is_string()) return absl::Utf8SafeCEscape(value.get<std::string>());
  if (value.is_object()) {
    return absl::StrJoin(value.items(), " ", [](std::string* out, const auto& member) {
      absl::StrAppend(out, member.key(), "=", Text(member.value()));
    });
  }
  if (!value.is_array()) return value.dump();
  return absl::StrJoin(
      value, ", ", [](std::string* out, const Json& item) { absl::StrAppend(out, Text(item)); });
}

absl::StatusOr<ExitCode> Run(std::span<const std::string>, Streams streams) {
  ASSIGN_OR_RETURN(Connection connection, Connection::FromFlags());
  ASSIGN_OR_RETURN(const v1::GetModelResponse model, connection.GetModel());
  const Json json = ModelJson(model);
  if (absl::GetFlag(FLAGS_json)) {
    streams.out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    return kExitOk;
  }
  for (const auto& [key, value] : json.items()) {
    const std::string text = Text(value);
    if (!text.empty()) streams.out << absl::StrFormat("%-22s %s\n", key, text);
  }
  return kExitOk;
}

}  // namespace

const Command& InfoCommand() {
  static const Command command = {
      .name = "info",
      .arguments = "",
      .summary = "what is served, its outputs and its limits",
      .help = kHelp,
      .flags = {{.title = "Connection", .flags = {"address", "timeout", "model"}},
                IdentityFlagGroup(),
                {.title = "Printing", .flags = {"json"}}},
      .run = Run};
  return command;
}

}  // namespace encoderd::client
