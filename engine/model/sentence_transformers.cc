#include "engine/model/sentence_transformers.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/model/config_files.h"
#include "engine/model/config_reader.h"
#include "engine/model/faults.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

struct Module {
  std::string kind;  // "Transformer": the last part of "sentence_transformers.models.Transformer"
  std::string dir;
};

bool IsInside(const std::string& path) {
  const std::filesystem::path relative(path);
  return relative.is_relative() && std::none_of(relative.begin(), relative.end(),
                                                [](const auto& part) { return part == ".."; });
}

absl::StatusOr<std::vector<Module>> ReadModules(const std::string& dir) {
  const std::string file = JoinPath(dir, "modules.json");
  ASSIGN_OR_RETURN(const json list, ReadJsonFile(file));
  Faults faults;
  if (!list.is_array()) faults.Add("expected a list of modules");
  std::vector<Module> modules;
  for (size_t i = 0; list.is_array() && i < list.size(); ++i) {
    ConfigReader module(list[i], absl::StrCat("[", i, "]"), &faults);
    const std::string type = module.Text("type");
    const std::string path = module.Text("path");
    if (!absl::StartsWith(type, "sentence_transformers.")) {
      faults.Add(absl::StrCat("module \"", Printable(type), "\" is not supported"));
    }
    if (!IsInside(path)) module.Fault("path", "a path inside the folder");
    modules.push_back({type.substr(type.rfind('.') + 1), JoinPath(dir, path)});
  }
  RETURN_IF_ERROR(faults.ToStatus(file));
  return modules;
}

constexpr NamedValue<Pooling> kPoolingModes[] = {
    {"cls", Pooling::kCls}, {"mean", Pooling::kMean}, {"max", Pooling::kMax}};

// The switches of versions before 6, one for each mode. All off means "mean", as in the library.
Pooling ReadPoolingSwitches(ConfigReader& config, Faults& faults) {
  std::vector<Pooling> modes;
  if (config.Bool("pooling_mode_cls_token", false)) modes.push_back(Pooling::kCls);
  if (config.Bool("pooling_mode_mean_tokens", false)) modes.push_back(Pooling::kMean);
  if (config.Bool("pooling_mode_max_tokens", false)) modes.push_back(Pooling::kMax);
  for (const char* key : {"pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens",
                          "pooling_mode_lasttoken"}) {
    config.Only(key, false);
  }
  if (modes.size() > 1) faults.Add("more than one pooling mode is on; expected one");
  return modes.empty() ? Pooling::kMean : modes.front();
}

absl::Status ReadPooling(const std::string& dir, SentenceTransformer& result) {
  const std::string file = JoinPath(dir, "config.json");
  ASSIGN_OR_RETURN(const json object, ReadJsonFile(file));
  Faults faults;
  ConfigReader config(object, "", &faults);
  result.pooling = ReadPoolingSwitches(config, faults);
  if (config.Find("pooling_mode") != nullptr) {
    result.pooling = config.Choice("pooling_mode", kPoolingModes);
  }
  for (const char* key : {"word_embedding_dimension", "embedding_dimension"}) {
    if (config.Find(key) != nullptr) result.pooled_width = config.Size(key);
  }
  config.Only("include_prompt", true);
  config.Finish();
  return faults.ToStatus(file);
}

// Its own settings, where there are any: everything but the tokenizer's must be as usual.
absl::Status CheckTransformer(const std::string& dir) {
  const std::string file = JoinPath(dir, "sentence_bert_config.json");
  if (!FileExists(file)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const json object, ReadJsonFile(file));
  Faults faults;
  ConfigReader config(object, "", &faults);
  config.Only("transformer_task", "feature-extraction");
  config.Only("module_output_name", "token_embeddings");
  return faults.ToStatus(file);
}

absl::Status CheckNormalize(const std::string& dir) {
  const std::string file = JoinPath(dir, "config.json");
  if (!FileExists(file)) return absl::OkStatus();  // most have no file, and no folder either
  ASSIGN_OR_RETURN(const json object, ReadJsonFile(file));
  Faults faults;
  ConfigReader config(object, "", &faults);
  config.Only("module_input_name", "sentence_embedding");
  config.Only("module_output_name", "sentence_embedding");
  config.Finish();
  return faults.ToStatus(file);
}

}  // namespace

absl::StatusOr<SentenceTransformer> ReadSentenceTransformer(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<Module> modules, ReadModules(dir));
  std::string kinds;
  for (const Module& module : modules)
    absl::StrAppend(&kinds, kinds.empty() ? "" : ", ", module.kind);
  if (kinds != "Transformer, Pooling" && kinds != "Transformer, Pooling, Normalize") {
    return absl::InvalidArgumentError(
        absl::StrCat(JoinPath(dir, "modules.json"), ": the modules are ", Printable(kinds),
                     "; expected Transformer, Pooling and, if wanted, Normalize"));
  }
  SentenceTransformer result;
  result.encoder_dir = modules[0].dir;
  RETURN_IF_ERROR(CheckTransformer(modules[0].dir));
  RETURN_IF_ERROR(ReadPooling(modules[1].dir, result));
  if (modules.size() > 2) {
    RETURN_IF_ERROR(CheckNormalize(modules[2].dir));
    result.normalize = true;
  }
  return result;
}

}  // namespace encoderd
