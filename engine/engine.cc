#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/answer.h"
#include "engine/encoder.h"
#include "engine/helpers.h"
#include "engine/io/file.h"
#include "engine/kept_products.h"
#include "engine/load_weights.h"
#include "engine/model/config_files.h"
#include "engine/model/model_folder.h"
#include "engine/model/spec_json.h"
#include "engine/ops/runtime.h"
#include "engine/phase_memory.h"
#include "engine/row_check.h"
#include "engine/self_check.h"
#include "engine/status_macros.h"
#include "engine/weights.h"

namespace encoderd {
namespace {

// Raised whenever a change makes the same model give other bits. Golden bits in the tests guard it.
constexpr int kNumericsRevision = 4;

// What a model without a limit of its own is given, so that scratch memory has one.
constexpr int64_t kDefaultMaxSequenceTokens = 8192;

absl::Status CheckAtLeastOne(const char* option, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(option, ": expected at least 1, got ", value));
}

absl::StatusOr<int64_t> MaxSequenceTokens(const EncoderSpec& spec, int64_t asked) {
  if (spec.max_positions > 0 && asked > spec.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_sequence_tokens: this model has ", spec.max_positions,
                     " positions: expected at most that, got ", asked));
  }
  if (asked > 0) return asked;
  return spec.max_positions > 0 ? spec.max_positions : kDefaultMaxSequenceTokens;
}

PhaseShape ShapeOf(const EncoderSpec& spec, const EngineInfo& info, int helpers) {
  // A sequence longer than the batch target runs alone.
  return {
      .width = spec.widest_hidden(),
      .hidden = spec.hidden_size,
      .limits = {.max_batch_tokens = info.max_batch_tokens,
                 .max_sequence_tokens = std::max(info.max_batch_tokens, info.max_sequence_tokens)},
      .helpers = helpers};
}

std::string NumericsId(const EncoderSpec& spec, const EngineInfo& info) {
  return Sha256(absl::StrCat(kNumericsRevision, "\n", info.weights_sha256, "\n", info.precision,
                             absl::StrJoin(info.kept_in_bf16, ","), "\n", info.isa, "\n",
                             ops::MathsLibrary(), "\n", info.fixed_row_blocks, "\n",
                             SpecToJson(spec).dump()))
      .substr(0, 16);
}

class LoadedEngine final : public Engine {
 public:
  LoadedEngine(EncoderSpec spec, EncoderWeights weights, EngineInfo info)
      : spec_(std::move(spec)), weights_(std::move(weights)), info_(std::move(info)) {}

  absl::Status Start(int workers) {
    const PhaseShape shape = ShapeOf(spec_, info_, workers - 1);
    limits_ = shape.limits;
    ASSIGN_OR_RETURN(memory_, PhaseMemory::Create(shape));
    if (workers == 1) return absl::OkStatus();
    ASSIGN_OR_RETURN(helpers_,
                     Helpers::Start(spec_, weights_, limits_.max_sequence_tokens, workers));
    return absl::OkStatus();
  }

  // Asks what the folder's self-check asks, if there is one.
  absl::Status CheckItself(const std::string& dir) {
    const std::string path = JoinPath(dir, kSelfCheckFile);
    if (!FileExists(path)) return absl::OkStatus();
    ASSIGN_OR_RETURN(info_.self_check, RunSelfCheck(*this, path));
    return absl::OkStatus();
  }

  const EncoderSpec& spec() const override { return spec_; }
  const EngineInfo& info() const override { return info_; }

  absl::StatusOr<Answer> AllocateAnswer(const Plan& plan) const override {
    return AllocateTensors(spec_, plan);
  }

  absl::StatusOr<std::unique_ptr<Worker>> CreateWorker() const override {
    return CreateWorker(helpers_.get());
  }
  absl::StatusOr<std::unique_ptr<Worker>> CreateLoneWorker() const override {
    return CreateWorker(nullptr);
  }

 private:
  absl::StatusOr<std::unique_ptr<Worker>> CreateWorker(Helpers* helpers) const {
    ops::EnterNumericEnvironment();
    return Encoder::Create({.spec = spec_,
                            .weights = weights_,
                            .limits = limits_,
                            .memory = *memory_,
                            .helpers = helpers});
  }

  const EncoderSpec spec_;
  const EncoderWeights weights_;
  EngineInfo info_;  // never changes after Load
  BatchLimits limits_;
  std::unique_ptr<PhaseMemory> memory_;
  std::unique_ptr<Helpers> helpers_;  // null: there is one worker, and nobody to help it
};

// The weights; of an int8 model, those products that lose the most stay in bf16 where the CPU has it.
absl::StatusOr<EncoderWeights> LoadProducts(const ModelFolder& folder, const EngineOptions& options,
                                            EngineInfo& info) {
  RowCheck check;
  const auto load = [&](Precision precision) {
    return LoadWeights(folder.spec, folder.checkpoint, precision, options.allow_nonfinite_weights,
                       check);
  };
  ASSIGN_OR_RETURN(EncoderWeights weights, load(options.precision));
  const bool can_keep = options.precision == Precision::kInt8 && weights.nonfinite.empty() &&
                        ops::RequirePrecision(Precision::kBf16).ok();
  if (!can_keep) return weights;
  ASSIGN_OR_RETURN(EncoderWeights bf16, load(Precision::kBf16));
  ASSIGN_OR_RETURN(info.kept_in_bf16, KeepSensitiveProducts(folder.spec, weights, bf16));
  return weights;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options) {
  RETURN_IF_ERROR(CheckAtLeastOne("workers", options.workers));
  RETURN_IF_ERROR(CheckAtLeastOne("max_batch_tokens", options.max_batch_tokens));
  RETURN_IF_ERROR(ops::RequireSupportedIsa());
  RETURN_IF_ERROR(ops::RequirePrecision(options.precision));
  ops::EnterNumericEnvironment();
  ASSIGN_OR_RETURN(ModelFolder folder, OpenModelFolder(options.model_dir, options.strict));
  EngineInfo info;
  ASSIGN_OR_RETURN(info.max_sequence_tokens,
                   MaxSequenceTokens(folder.spec, options.max_sequence_tokens));
  info.max_batch_tokens = options.max_batch_tokens;

  ASSIGN_OR_RETURN(EncoderWeights weights, LoadProducts(folder, options, info));
  info.isa = ops::IsaName();
  info.precision = PrecisionName(options.precision);
  info.weights_sha256 = folder.weights_sha256;
  info.tokenizer_sha256 = folder.tokenizer_sha256;
  info.tensors_used = folder.checkpoint.used();
  info.tensors_unused = folder.checkpoint.unused();
  info.tensors_harmless = folder.checkpoint.harmless();
  info.tensors_nonfinite = weights.nonfinite;
  info.stray_files = folder.stray_files;
  info.parameters = folder.checkpoint.parameters();
  info.weights_bytes = static_cast<int64_t>(weights.bytes());
  const PhaseShape shape = ShapeOf(folder.spec, info, options.workers - 1);
  const int64_t phases = PhaseMemory::BytesPerThread(shape);
  info.scratch_bytes_per_worker =
      Encoder::ScratchBytes(folder.spec, weights, shape.limits) + phases;
  info.scratch_bytes_per_helper =
      BlockRunner::ScratchBytes(folder.spec, weights, shape.limits.max_sequence_tokens) + phases;
  info.fixed_row_blocks = weights.buckets.fixed();
  info.numerics_id = NumericsId(folder.spec, info);
  auto engine =
      std::make_unique<LoadedEngine>(std::move(folder.spec), std::move(weights), std::move(info));
  RETURN_IF_ERROR(engine->Start(options.workers));
  RETURN_IF_ERROR(engine->CheckItself(options.model_dir));
  return engine;
}

}  // namespace encoderd
