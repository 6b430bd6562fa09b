#include "server/served_model.h"

#include <string>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "server/log.h"
#include "server/precision_choice.h"

namespace encoderd {
namespace {

absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(const Options& options, int workers,
                                                   Precision precision) {
  EngineOptions engine = {.model_dir = options.model_dir,
                          .max_sequence_tokens = options.max_sequence_tokens,
                          .workers = workers,
                          .precision = precision,
                          .allow_nonfinite_weights = options.allow_nonfinite_weights,
                          .strict = options.strict};
  if (options.max_batch_tokens > 0) engine.max_batch_tokens = options.max_batch_tokens;
  return Engine::Load(engine);
}

absl::StatusOr<PrecisionChoice> Measure(const Options& options) {
  return ChoosePrecision(options.precision_error_max, [&](Precision precision) {
    return LoadEngine(options, /*workers=*/1, precision);
  });
}

absl::StatusOr<PrecisionChoice> Pinned(const std::string& path) {
  ASSIGN_OR_RETURN(PrecisionChoice choice, ReadPrecisionFile(path));
  LOG(INFO) << "The precision is pinned by a file. path=" << LogValue(path)
            << " precision=" << std::string(PrecisionName(choice.precision))
            << " measured_on=" << LogValue(choice.isa);
  return choice;
}

absl::StatusOr<PrecisionChoice> Choose(const Options& options) {
  const std::string& path = options.precision_file;
  if (path.empty()) return Measure(options);
  absl::StatusOr<PrecisionChoice> pinned = Pinned(path);
  if (!absl::IsNotFound(pinned.status())) return pinned;
  ASSIGN_OR_RETURN(PrecisionChoice choice, Measure(options));
  const absl::Status written = WritePrecisionFile(path, choice);
  if (absl::IsAlreadyExists(written)) return Pinned(path);  // another process of the fleet's
  RETURN_IF_ERROR(written);
  LOG(INFO) << "Wrote the chosen precision. path=" << LogValue(path);
  return choice;
}

}  // namespace

absl::StatusOr<ServedModel> LoadModel(const Options& options) {
  ServedModel model;
  if (!options.precision.has_value()) {
    ASSIGN_OR_RETURN(model.choice, Choose(options));
  }
  const Precision precision =
      model.choice.has_value() ? model.choice->precision : *options.precision;
  ASSIGN_OR_RETURN(model.engine, LoadEngine(options, options.workers, precision));
  const std::string& weights = model.engine->info().weights_sha256;
  if (model.choice.has_value() && model.choice->weights_sha256 != weights) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.precision_file, ": weights_sha256: expected ", weights, " as ", options.model_dir,
        " has, got ", model.choice->weights_sha256, ": the file is of another model"));
  }
  if (options.shadow_every == 0) return model;
  if (precision == Precision::kFp32) {
    LOG(INFO) << "--shadow_rate: fp32 was chosen, so there is nothing to compare with it.";
    return model;
  }
  ASSIGN_OR_RETURN(model.reference, LoadEngine(options, /*workers=*/1, Precision::kFp32));
  return model;
}

}  // namespace encoderd
