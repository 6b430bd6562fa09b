#include "engine/model/model_folder.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/io/file.h"
#include "engine/model/config_files.h"
#include "engine/model/families.h"
#include "engine/model/sentence_transformers.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

// Says why a folder has no model.safetensors to open.
absl::Status NoWeights(const std::string& dir) {
  if (FileExists(JoinPath(dir, "model.safetensors.index.json"))) {
    return absl::InvalidArgumentError(absl::StrCat(
        dir,
        ": the weights lie in several files (model.safetensors.index.json); expected one, "
        "model.safetensors"));
  }
  for (const char* name : {"pytorch_model.bin", "model.onnx", "tf_model.h5"}) {
    if (!FileExists(JoinPath(dir, name))) continue;
    return absl::NotFoundError(absl::StrCat(dir, ": expected model.safetensors, found ", name,
                                            "; save the weights as safetensors"));
  }
  return absl::NotFoundError(absl::StrCat(dir, ": model.safetensors is missing"));
}

absl::StatusOr<std::string> TokenizerSha256(const std::string& dir) {
  for (const char* name : {"tokenizer.json", "vocab.txt"}) {
    const std::string path = JoinPath(dir, name);
    if (!FileExists(path)) continue;
    ASSIGN_OR_RETURN(const File file, File::Open(path));
    return FileSha256(file);
  }
  return std::string();
}

// What modules.json adds to a spec, in places where it must fit.
absl::Status ApplyPooling(const SentenceTransformer& modules, const std::string& dir,
                          EncoderSpec& spec) {
  if (modules.pooled_width != 0 && modules.pooled_width != spec.hidden_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: modules.json pools vectors of %d numbers, but the encoder gives %d",
                        dir, modules.pooled_width, spec.hidden_size));
  }
  spec.default_pooling = modules.pooling;
  spec.default_normalize = modules.normalize;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& dir) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(dir, ignored)) {
    return absl::NotFoundError(absl::StrFormat("model folder \"%s\" is not a folder", dir));
  }
  const bool has_modules = FileExists(JoinPath(dir, "modules.json"));
  SentenceTransformer modules;
  modules.encoder_dir = dir;
  if (has_modules) {
    ASSIGN_OR_RETURN(modules, ReadSentenceTransformer(dir));
  }
  const std::string& encoder_dir = modules.encoder_dir;

  const std::string config_path = JoinPath(encoder_dir, "config.json");
  if (!FileExists(config_path)) {
    return absl::NotFoundError(absl::StrCat(encoder_dir, ": config.json is missing"));
  }
  ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonFile(config_path));
  absl::StatusOr<EncoderSpec> spec = SpecFromConfig(config);
  if (!spec.ok()) {
    return absl::Status(spec.status().code(),
                        absl::StrCat(encoder_dir, ": ", spec.status().message()));
  }
  if (has_modules) RETURN_IF_ERROR(ApplyPooling(modules, dir, *spec));

  const std::string weights_path = JoinPath(encoder_dir, "model.safetensors");
  if (!FileExists(weights_path)) return NoWeights(encoder_dir);
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(weights_path));
  ASSIGN_OR_RETURN(std::string weights_sha256, FileSha256(file.file()));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Resolve(std::move(file), &*spec));
  ASSIGN_OR_RETURN(std::string tokenizer_sha256, TokenizerSha256(encoder_dir));
  return ModelFolder{*std::move(spec), std::move(checkpoint), std::move(weights_sha256),
                     std::move(tokenizer_sha256)};
}

}  // namespace encoderd
