#include "server/encode_service.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/validation.h"
#include "server/answer_encoder.h"
#include "server/call_identity.h"
#include "server/encode_chunked.h"
#include "server/encode_whole.h"

namespace encoderd {
namespace {

// It holds a name.
constexpr int64_t kMaxGetModelBytes = 64 << 10;

v1::GetModelResponse Describe(const EncodeContext& context) {
  const EncoderSpec& spec = context.served.engine->spec();
  const EngineInfo& info = context.served.engine->info();
  const EncodeOptions& options = context.options;
  const auto count = [](int64_t value) { return static_cast<uint32_t>(value); };
  v1::GetModelResponse model;
  model.set_name(context.served.model_name);
  model.set_family(spec.family);
  model.set_server_version(options.server_version);
  model.set_numerics_id(info.numerics_id);
  model.set_weights_sha256(info.weights_sha256);
  model.set_tokenizer_sha256(info.tokenizer_sha256);
  model.set_precision(info.precision);
  model.set_isa(info.isa);
  model.set_num_layers(count(spec.num_layers));
  model.set_num_heads(count(spec.num_heads));
  model.set_hidden_size(count(spec.hidden_size));
  model.set_input_dim(count(spec.input_dim));
  model.set_inputs_embeds_width(count(spec.input_size()));
  model.set_vocab_size(count(spec.vocab_size));
  model.set_type_vocab_size(count(spec.type_vocab_size));
  model.set_max_sequence_tokens(count(context.served.max_sequence_tokens));
  model.set_max_request_sequences(count(options.limits.max_request_sequences));
  model.set_max_request_tokens(count(options.limits.max_request_tokens));
  model.set_max_request_bytes(static_cast<uint64_t>(options.limits.max_request_bytes));
  model.set_max_response_bytes(static_cast<uint64_t>(options.max_response_bytes));
  model.set_default_pooling(ToWire(spec.default_pooling));
  model.set_default_normalize(spec.default_normalize);
  for (std::string& output : AvailableOutputs(spec)) model.add_outputs(std::move(output));
  for (const std::string& label : spec.labels) model.add_labels(label);
  if (context.served.choice == nullptr) return model;
  for (const PrecisionTrial& trial : context.served.choice->trials) {
    if (!trial.refused.empty()) continue;
    v1::PrecisionTrial& measured = *model.add_precision_trials();
    measured.set_precision(std::string(PrecisionName(trial.precision)));
    measured.set_error(trial.error);
    measured.set_tokens_per_second(trial.tokens_per_second);
  }
  return model;
}

std::optional<Refusal> AnswerGetModel(const EncodeContext& context,
                                      const grpc::CallbackServerContext& call,
                                      const grpc::ByteBuffer& request, grpc::ByteBuffer& response) {
  if (auto refusal = context.access.Refuse(call)) return refusal;
  if (auto refusal = context.NotServing()) return refusal;
  v1::GetModelRequest message;
  const auto no_lists = [](const google::protobuf::FieldDescriptor&) { return ElementLimit(); };
  if (auto refusal = ParseMessage(request, kMaxGetModelBytes, no_lists, message)) return refusal;
  if (auto refusal = context.WrongModel(message.model())) return refusal;
  const grpc::Slice bytes(Describe(context).SerializeAsString());
  response = grpc::ByteBuffer(&bytes, 1);
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> EncodeContext::NotServing() const {
  switch (phase.load(std::memory_order_acquire)) {
    case Phase::kServing:
      return std::nullopt;
    case Phase::kLoading:
      return Refusal{.status = absl::UnavailableError("the model is being loaded"),
                     .reason = "LOADING",
                     .retry_after = absl::Seconds(1)};
    case Phase::kDraining:
    case Phase::kCuttingOff:
      break;
  }
  return Refusal{.status = absl::UnavailableError("the server is shutting down"),
                 .reason = "DRAINING",
                 .retry_after = absl::Seconds(1)};
}

std::optional<Refusal> EncodeContext::WrongModel(const std::string& name) const {
  if (name.empty() || name == served.model_name) return std::nullopt;
  // The name is the caller's and of any length: what is served says enough.
  return Refusal{.status = absl::NotFoundError(
                     absl::StrCat("no such model; expected \"\" or \"", served.model_name, "\"")),
                 .reason = "MODEL_NOT_FOUND"};
}

void EncodeService::Serve(Served served) {
  context_.served = std::move(served);
  context_.phase.store(EncodeContext::Phase::kServing, std::memory_order_release);
}

void EncodeService::Drain() {
  context_.phase.store(EncodeContext::Phase::kDraining, std::memory_order_release);
}

void EncodeService::CutOff() {
  context_.phase.store(EncodeContext::Phase::kCuttingOff, std::memory_order_release);
}

grpc::ServerUnaryReactor* EncodeService::Encode(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return StartEncode(context_, context, request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* EncodeService::EncodeChunked(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return StartEncodeChunked(context_, context, request);
}

grpc::ServerUnaryReactor* EncodeService::GetModel(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  const absl::Time arrival = context_.clock.Now();
  CallRecord record = {.method = Method::kGetModel,
                       .identity = IdentifyCall(*context),
                       .request_bytes = static_cast<int64_t>(request->Length())};
  context_.calls.CallStarted();
  const auto refusal = AnswerGetModel(context_, *context, *request, *response);
  grpc::Status status;
  if (refusal.has_value()) {
    record.code = static_cast<int>(refusal->status.code());
    record.reason = refusal->reason;
    status = ToGrpcStatus(*refusal, record.identity.request_id);
  }
  record.answer_bytes = static_cast<int64_t>(response->Length());
  record.whole = context_.clock.Now() - arrival;
  context_.calls.CallEnded(record);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace encoderd
