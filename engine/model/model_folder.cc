#include "engine/model/model_folder.h"

#include <filesystem>
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

// `with_head`: as the class that the configuration names; else the encoder alone.
absl::StatusOr<EncoderSpec> ReadSpec(const std::string& dir, bool with_head) {
  const std::string path = JoinPath(dir, "config.json");
  if (!FileExists(path)) return absl::NotFoundError(absl::StrCat(dir, ": config.json is missing"));
  ASSIGN_OR_RETURN(nlohmann::json config, ReadJsonFile(path));
  if (!with_head) config.erase("architectures");
  absl::StatusOr<EncoderSpec> spec = SpecFromConfig(config);
  if (spec.ok()) return spec;
  return absl::Status(spec.status().code(), absl::StrCat(dir, ": ", spec.status().message()));
}

// What modules.json adds to a spec, in places where it must fit.
absl::Status ApplyModules(const SentenceTransformer& modules, const std::string& dir,
                          EncoderSpec& spec) {
  spec.default_pooling = modules.pooling;
  spec.default_normalize = modules.normalize;
  if (modules.pooled_width != 0 && modules.pooled_width != spec.hidden_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: modules.json pools vectors of %d numbers, but the encoder gives %d",
                        dir, modules.pooled_width, spec.hidden_size));
  }
  for (const DenseModule& dense : modules.dense) {
    const int64_t width = WidthAfter(spec.projection, spec.hidden_size);
    if (dense.in != width) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %s/config.json: in_features is %d; expected the width of the vector "
                          "in front of it, which is %d",
                          dir, Printable(dense.path), dense.in, width));
    }
    spec.projection.push_back(dense.step);
  }
  return ValidateSpec(spec);
}

// The encoder's weights, and those of the Dense modules in folders of their own.
absl::StatusOr<WeightFiles> OpenWeights(const SentenceTransformer& modules, const std::string& dir,
                                        FaultReport& report) {
  absl::StatusOr<WeightFiles> files = WeightFiles::Open(modules.encoder_dir);
  report.Add(files.status());
  for (const DenseModule& dense : modules.dense) {
    auto own = WeightFiles::Open(JoinPath(dir, dense.path));
    report.Add(own.status());
    if (files.ok() && own.ok()) report.Add(files->Add(*std::move(own), dense.path));
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
  // sentence-transformers loads the encoder alone, whatever class it was cut out of.
  absl::StatusOr<EncoderSpec> spec = ReadSpec(modules.encoder_dir, /*with_head=*/!has_modules);
  report.Add(spec.status());
  if (spec.ok() && has_modules) report.Add(ApplyModules(modules, dir, *spec));
  absl::StatusOr<WeightFiles> files = OpenWeights(modules, dir, report);
  // Without the spec nothing is known of the tensors, and without all files too much is missing.
  if (!spec.ok() || !files.ok()) return report.ToStatus();

  std::vector<std::string> strays = files->strays();
  ASSIGN_OR_RETURN(std::string weights_sha256, files->Sha256());
  auto checkpoint = Checkpoint::Resolve(*std::move(files), &*spec, strict);
  report.Add(checkpoint.status());
  RETURN_IF_ERROR(report.ToStatus());
  ASSIGN_OR_RETURN(std::string tokenizer_sha256, TokenizerSha256(modules.encoder_dir));
  return ModelFolder{*std::move(spec), *std::move(checkpoint), std::move(weights_sha256),
                     std::move(tokenizer_sha256), std::move(strays)};
}

}  // namespace encoderd
