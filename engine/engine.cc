#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/answer.h"
#include "engine/encoder.h"
#include "engine/io/file.h"
#include "engine/model/model_folder.h"
#include "engine/model/spec_json.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"
#include "engine/weights.h"

namespace encoderd {
namespace {

// Raised whenever a change makes the same model give other bits. Golden bits in the tests guard it.
constexpr int kNumericsRevision = 1;

// What a model without a limit of its own is given, so that scratch memory has one.
constexpr int64_t kDefaultMaxSequenceTokens = 8192;

absl::StatusOr<int64_t> MaxSequenceTokens(const EncoderSpec& spec, int64_t asked) {
  if (spec.max_positions > 0 && asked > spec.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_sequence_tokens: this model has ", spec.max_positions,
                     " positions: expected at most that, got ", asked));
  }
  if (asked > 0) return asked;
  return spec.max_positions > 0 ? spec.max_positions : kDefaultMaxSequenceTokens;
}

// A sequence longer than the batch target runs alone: scratch holds the larger of the two.
int64_t ScratchTokens(const EngineInfo& info) {
  return std::max(info.max_batch_tokens, info.max_sequence_tokens);
}

std::string NumericsId(const EncoderSpec& spec, const EngineInfo& info) {
  return Sha256(absl::StrCat(kNumericsRevision, "\n", info.weights_sha256, "\n", info.precision,
                             "\n", info.isa, "\n", ops::MathsLibrary(), "\n", info.fixed_row_blocks,
                             "\n", SpecToJson(spec).dump()))
      .substr(0, 16);
}

class LoadedEngine final : public Engine {
 public:
  LoadedEngine(EncoderSpec spec, EncoderWeights weights, EngineInfo info)
      : spec_(std::move(spec)), weights_(std::move(weights)), info_(std::move(info)) {}

  const EncoderSpec& spec() const override { return spec_; }
  const EngineInfo& info() const override { return info_; }

  absl::StatusOr<Answer> AllocateAnswer(const Plan& plan) const override {
    return AllocateTensors(spec_, plan);
  }

  absl::StatusOr<std::unique_ptr<Worker>> CreateWorker() const override {
    ops::EnterNumericEnvironment();
    return Encoder::Create(spec_, weights_, ScratchTokens(info_));
  }

 private:
  const EncoderSpec spec_;
  const EncoderWeights weights_;
  const EngineInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options) {
  RETURN_IF_ERROR(ops::RequireSupportedIsa());
  ops::EnterNumericEnvironment();
  ASSIGN_OR_RETURN(ModelFolder folder, OpenModelFolder(options.model_dir));
  if (options.strict && !folder.checkpoint.unused().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.model_dir, ": tensors that the model does not use: ",
        absl::StrJoin(folder.checkpoint.unused(), ", "), "; expected none under --strict"));
  }
  EngineInfo info;
  ASSIGN_OR_RETURN(info.max_sequence_tokens,
                   MaxSequenceTokens(folder.spec, options.max_sequence_tokens));
  info.max_batch_tokens = options.max_batch_tokens;

  ASSIGN_OR_RETURN(EncoderWeights weights, LoadWeights(folder.spec, folder.checkpoint));
  info.isa = ops::IsaName();
  info.precision = "fp32";
  info.weights_sha256 = folder.weights_sha256;
  info.tokenizer_sha256 = folder.tokenizer_sha256;
  info.tensors_used = folder.checkpoint.used();
  info.tensors_unused = folder.checkpoint.unused();
  info.parameters = folder.checkpoint.parameters();
  info.weights_bytes = static_cast<int64_t>(weights.bytes());
  info.scratch_bytes_per_worker = Encoder::ScratchBytes(folder.spec, weights, ScratchTokens(info));
  info.fixed_row_blocks = weights.buckets.fixed();
  info.numerics_id = NumericsId(folder.spec, info);
  return std::make_unique<LoadedEngine>(std::move(folder.spec), std::move(weights),
                                        std::move(info));
}

}  // namespace encoderd
