// served_model.h — a model as it is served, and how it is loaded.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/options.h"
#include "server/precision_trial.h"

namespace encoderd {

struct ServedModel {
  ServedModel() = default;
  // An engine alone, whose precision nobody had to choose.
  ServedModel(std::unique_ptr<Engine> only)  // NOLINT(google-explicit-constructor)
      : engine(std::move(only)) {}

  std::unique_ptr<Engine> engine;
  std::optional<PrecisionChoice> choice;  // of --precision=auto
  std::unique_ptr<Engine> reference;      // the same in fp32, for --shadow_rate
};

// Loads what the options name, and chooses the precision where they leave it open: as the file of
// --precision_file says or, where there is none, by measuring; the file is then written, and what
// it says by then is done. Errors: those of Engine::Load, ChoosePrecision and the file;
// kInvalidArgument when the file is of other weights.
absl::StatusOr<ServedModel> LoadModel(const Options& options);

}  // namespace encoderd
