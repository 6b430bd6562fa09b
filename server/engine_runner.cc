#include "server/engine_runner.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/validation.h"

namespace encoderd {
namespace {

// Where a status says its reason.
constexpr char kReasonUrl[] = "encoderd/reason";

absl::Status WarmUp(const Engine& engine, const std::string& model_dir, Worker& worker) {
  const EncoderSpec& spec = engine.spec();
  const int64_t tokens =
      std::min(engine.info().max_sequence_tokens, engine.info().max_batch_tokens);
  const std::vector<int32_t> ids(static_cast<size_t>(tokens), 0);
  const int64_t shape[] = {tokens, spec.input_dim};
  const std::vector<std::byte> zeros(static_cast<size_t>(tokens * spec.input_dim) * sizeof(float));

  Request request;
  request.sequences.resize(1);
  if (spec.input == InputKind::kTokenIds) {
    request.sequences[0].input_ids = ids;
  } else {
    request.sequences[0].inputs_embeds = InputTensor{.shape = shape, .data = zeros};
  }
  request.outputs.last_hidden_state = true;
  const auto checked = Validate(spec, {.max_sequence_tokens = tokens}, request);
  const Plan* plan = std::get_if<Plan>(&checked);
  if (plan == nullptr) {
    return absl::InternalError("the request that warms the workers up is not valid");
  }
  ASSIGN_OR_RETURN(Answer answer, engine.AllocateAnswer(*plan));
  BatchItem item = {.request = &request, .plan = plan, .answer = &answer};
  RETURN_IF_ERROR(worker.Run({&item, 1}, NeverAbandoned));
  if (item.status.ok()) return absl::OkStatus();
  // A sequence of zeros is one that every model has to take.
  return absl::InvalidArgumentError(
      absl::StrCat(model_dir, ": the model gives no finite numbers: ", item.status.message()));
}

}  // namespace

std::string EngineReason(const absl::Status& status) {
  const auto reason = status.GetPayload(kReasonUrl);
  return reason.has_value() ? std::string(*reason) : "ENGINE_FAILURE";
}

absl::Status EngineRunner::Run(std::span<Slot> slots) {
  items_.clear();
  for (const Slot& slot : slots) {
    auto& call = static_cast<EngineCall&>(*slot.call);
    items_.push_back({.request = &call.request(),
                      .plan = &call.plan(),
                      .sequence = slot.sequence,
                      .answer = &call.answer()});
  }
  RETURN_IF_ERROR(worker_->Run(items_, NeverAbandoned));
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].status = std::move(items_[i].status);
    // An item's own fault is the one that the engine's contract names.
    if (!slots[i].status.ok())
      slots[i].status.SetPayload(kReasonUrl, absl::Cord("NON_FINITE_RESULT"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Runner>> MakeWarmRunner(const Engine& engine,
                                                       const std::string& model_dir) {
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, engine.CreateWorker());
  RETURN_IF_ERROR(WarmUp(engine, model_dir, *worker));
  return std::make_unique<EngineRunner>(std::move(worker));
}

}  // namespace encoderd
