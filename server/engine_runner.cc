#include "server/engine_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "server/batching/reason.h"
#include "server/sample_batch.h"

namespace encoderd {
namespace {

absl::Status WarmUp(const Engine& engine, const std::string& model_dir, Worker& worker) {
  const int64_t tokens =
      std::min(engine.info().max_sequence_tokens, engine.info().max_batch_tokens);
  ASSIGN_OR_RETURN(
      const auto batch,
      SampleBatch::Create(engine, {.tokens = tokens, .blocks = engine.spec().num_layers}));
  RETURN_IF_ERROR(batch->Run(worker).status());
  const absl::Status fault = batch->fault();
  // Where weights that are not finite are allowed, the calls that they reach are told.
  if (fault.ok() || !engine.info().tensors_nonfinite.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(model_dir, ": the model gives no finite numbers: ", fault.message()));
}

// Multiplications for one token.
double StepProducts(const std::vector<Step>& steps, int64_t width) {
  double products = 0;
  for (const Step& step : steps) {
    if (step.kind != Step::Kind::kLinear) continue;
    products += static_cast<double>(width) * static_cast<double>(step.out);
    width = step.out;
  }
  return products;
}

// Of a block's matrices: q, k, v and the output, and both of the FFN.
double BlockProducts(const EncoderSpec& spec) {
  const auto hidden = static_cast<double>(spec.hidden_size);
  return 4 * hidden * hidden + 2 * hidden * static_cast<double>(spec.ffn_size);
}

}  // namespace

std::vector<SequenceInfo> SequencesOf(const EncoderSpec& spec, const Plan& plan) {
  // A map takes about half of its block, and a head as long as blocks with as many products.
  double blocks =
      static_cast<double>(plan.layers_run - plan.first_block) + (plan.last_map_only ? 0.5 : 0);
  // One of a whole sequence is too small to count.
  if (plan.logits) blocks += StepProducts(spec.logits, spec.hidden_size) / BlockProducts(spec);
  blocks /= static_cast<double>(spec.num_layers);

  int64_t row_values = plan.last_hidden_state ? spec.hidden_size : 0;
  for (const int32_t layer : plan.hidden_layers) row_values += spec.hidden_width(layer);
  int64_t pooled_values = 0;
  for (const PooledOutput& pooled : plan.pooled) pooled_values += pooled.dimensions;
  const int64_t logits = plan.logits ? spec.logits_width() : 0;
  const auto maps =
      static_cast<int64_t>(plan.attention_layers.size() * plan.attention_heads.size());

  std::vector<SequenceInfo> sequences;
  sequences.reserve(plan.token_offsets.size() - 1);
  for (size_t i = 0; i + 1 < plan.token_offsets.size(); ++i) {
    const int64_t tokens = plan.token_offsets[i + 1] - plan.token_offsets[i];
    const int64_t map_rows =
        plan.query_rows.empty() ? tokens : static_cast<int64_t>(plan.query_rows.size());
    const int64_t values = tokens * row_values +
                           (plan.FirstLogitsRow(i + 1) - plan.FirstLogitsRow(i)) * logits +
                           maps * map_rows * tokens +
                           (plan.contacts ? ContactTokens(tokens) * ContactTokens(tokens) : 0) +
                           (plan.pooled_offsets[i + 1] - plan.pooled_offsets[i]) * pooled_values;
    sequences.push_back({.tokens = tokens,
                         .blocks = blocks,
                         .answer_bytes = values * static_cast<int64_t>(DataTypeBytes(plan.dtype))});
  }
  return sequences;
}

absl::Status EngineRunner::Run(std::span<Slot> slots, absl::FunctionRef<bool()> abandoned) {
  items_.clear();
  for (const Slot& slot : slots) {
    auto& call = static_cast<EngineCall&>(*slot.call);
    items_.push_back({.request = &call.request(),
                      .plan = &call.plan(),
                      .sequence = call.plan().first_sequence + slot.sequence,
                      .answer = &call.answer(),
                      .hidden = call.hidden()});
  }
  if (shadow_ != nullptr) shadow_->BatchBegins();
  const absl::Status status = worker_->Run(items_, abandoned);
  if (shadow_ != nullptr) shadow_->BatchEnds();
  RETURN_IF_ERROR(status);
  if (shadow_ != nullptr) OfferToShadow();
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].status = std::move(items_[i].status);
    // An item's own fault is the one that the engine's contract names.
    if (!slots[i].status.ok()) slots[i].status = WithReason(slots[i].status, "NON_FINITE_RESULT");
  }
  return absl::OkStatus();
}

// Those whose pass has run from its beginning, of whatever outputs.
void EngineRunner::OfferToShadow() {
  for (const BatchItem& item : items_) {
    if (!item.status.ok() || item.plan->first_block > 0) continue;
    shadow_->Offer(item.request->sequences[item.sequence]);
  }
}

absl::StatusOr<std::unique_ptr<Runner>> MakeWarmRunner(const Engine& engine,
                                                       const std::string& model_dir,
                                                       Shadow* shadow) {
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, engine.CreateWorker());
  RETURN_IF_ERROR(WarmUp(engine, model_dir, *worker));
  return std::make_unique<EngineRunner>(std::move(worker), shadow);
}

}  // namespace encoderd
