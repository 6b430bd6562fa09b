#include "engine/model/model_folder.h"

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/model/config_files.h"
#include "engine/model/families.h"
#include "engine/model/faults.h"
#include "engine/model/sentence_transformers.h"
#include "engine/model/validate_spec.h"
#include "engine/model/weight_files.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

absl::StatusOr<std::string> TokenizerSha256(const std::string& dir) {
  for (const char* name : {"tokenizer.json", "vocab.txt"}) {
    const std::string path = JoinPath(dir, name);
    if (!FileExists(path)) continue;
    ASSIGN_OR_RETURN(const File file, File::Open(path));
    return FileSha256(file);
  }
  return std::string();
}

// The spec of config.json; after errors, which go into the report, what SpecFromConfig calls
// possible. `with_head`: as the class that the configuration names; else the encoder alone.
std::vector<EncoderSpec> ReadSpecs(const std::string& dir, bool with_head, FaultReport& report) {
  const std::string path = JoinPath(dir, "config.json");
  if (!FileExists(path)) {
    report.Add(absl::NotFoundError(absl::StrCat(dir, ": config.json is missing")));
    return {};
  }
  absl::StatusOr<nlohmann::json> config = ReadJsonFile(path);
  report.Add(config.status());
  if (!config.ok()) return {};
  if (!with_head && config->is_object()) config->erase("architectures");
  std::vector<EncoderSpec> possible;
  absl::StatusOr<EncoderSpec> spec = SpecFromConfig(*config, &possible);
  if (spec.ok()) return {*std::move(spec)};
  report.Add(absl::Status(spec.status().code(), absl::StrCat(dir, ": ", spec.status().message())));
  return possible;
}

// What modules.json adds to a spec, in places where it must fit; of two possible specs, to both,
// and it must fit what they agree on.
void ApplyModules(const SentenceTransformer& modules, const std::string& dir,
                  std::vector<EncoderSpec>& specs, FaultReport& report) {
  if (specs.empty()) return;
  int64_t width = specs.front().hidden_size;
  bool known = width == specs.back().hidden_size;
  if (known && modules.pooled_width != 0 && modules.pooled_width != width) {
    report.Add(absl::InvalidArgumentError(
        absl::StrFormat("%s: modules.json pools vectors of %d numbers, but the encoder gives %d",
                        dir, modules.pooled_width, width)));
  }
  bool fits = true;
  for (const DenseModule& dense : modules.dense) {
    if (known && dense.in != 0 && dense.in != width) {
      report.Add(absl::InvalidArgumentError(
          absl::StrFormat("%s: %s/config.json: in_features is %d; expected the width of the vector "
                          "in front of it, which is %d",
                          dir, Printable(dense.path), dense.in, width)));
      fits = false;
    }
    known = dense.in != 0;
    fits = fits && known;
    width = dense.step.out;
    for (EncoderSpec& spec : specs) {
      if (fits) spec.projection.push_back(dense.step);
    }
  }
  for (EncoderSpec& spec : specs) {
    spec.default_pooling = modules.pooling;
    spec.default_normalize = modules.normalize;
  }
  if (specs.size() == 1) report.Add(ValidateSpec(specs.front()));
}

// The encoder's weights, and those of the Dense modules in folders of their own. Errors as
// WeightFiles::Open.
std::optional<WeightFiles> OpenWeights(const SentenceTransformer& modules, const std::string& dir,
                                       FaultReport& report) {
  std::optional<WeightFiles> files = WeightFiles::Open(modules.encoder_dir, report);
  for (const DenseModule& dense : modules.dense) {
    if (dense.path.empty()) continue;  // which has been reported
    std::optional<WeightFiles> own = WeightFiles::Open(JoinPath(dir, dense.path), report);
    if (!files.has_value()) continue;
    if (own.has_value()) {
      report.Add(files->Add(*std::move(own), dense.path));
    } else {
      files->AddUnread(dense.step.names.weight);
      files->AddUnread(dense.step.names.bias);
    }
  }
  return files;
}

}  // namespace

absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& dir, bool strict) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(dir, ignored)) {
    return absl::NotFoundError(absl::StrFormat("model folder \"%s\" is not a folder", dir));
  }
  FaultReport report;
  const bool has_modules = FileExists(JoinPath(dir, "modules.json"));
  SentenceTransformer modules = {.encoder_dir = dir};
  if (has_modules) modules = ReadSentenceTransformer(dir, report);
  if (modules.encoder_dir.empty()) return report.ToStatus();
  // sentence-transformers loads the encoder alone, whatever class it was cut out of.
  std::vector<EncoderSpec> specs =
      ReadSpecs(modules.encoder_dir, /*with_head=*/!has_modules, report);
  if (has_modules) ApplyModules(modules, dir, specs, report);
  std::optional<WeightFiles> files = OpenWeights(modules, dir, report);
  if (!report.empty()) {
    if (files.has_value()) report.Add(Checkpoint::Judge(*files, specs));
    return report.ToStatus();
  }
  EncoderSpec& spec = specs.front();
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Resolve(*std::move(files), &spec, strict));
  ASSIGN_OR_RETURN(std::string weights_sha256, checkpoint.files().Sha256());
  ASSIGN_OR_RETURN(std::string tokenizer_sha256, TokenizerSha256(modules.encoder_dir));
  std::vector<std::string> strays = checkpoint.files().strays();
  return ModelFolder{std::move(spec), std::move(checkpoint), std::move(weights_sha256),
                     std::move(tokenizer_sha256), std::move(strays)};
}

}  // namespace encoderd
