#include "engine/model/sentence_transformers.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  std::string path;  // inside the model folder
  std::string dir;
};

// Any other order is other maths: a vector that is normalised and then projected has another
// length.
absl::Status CheckOrder(const std::string& file, const std::vector<Module>& modules) {
  const size_t count = modules.size();
  bool supported = count >= 2 && modules[0].kind == "Transformer" && modules[1].kind == "Pooling";
  for (size_t i = 2; i < count; ++i) {
    supported = supported &&
                (modules[i].kind == "Dense" || (modules[i].kind == "Normalize" && i + 1 == count));
  }
  if (supported) return absl::OkStatus();
  const auto kind = [](std::string* out, const Module& module) {
    absl::StrAppend(out, module.kind);
  };
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": the modules are ", Printable(absl::StrJoin(modules, ", ", kind)),
      "; expected Transformer, Pooling, then, if wanted, Dense, and at the end, if wanted, "
      "Normalize"));
}

// The modules that can be read.
std::vector<Module> ReadModules(const std::string& dir, FaultReport& report) {
  const std::string file = JoinPath(dir, "modules.json");
  const absl::StatusOr<json> list = ReadJsonFile(file);
  report.Add(list.status());
  if (!list.ok()) return {};
  Faults faults;
  if (!list->is_array()) faults.Add("expected a list of modules");
  std::vector<Module> modules;
  for (size_t i = 0; list->is_array() && i < list->size(); ++i) {
    Faults own;
    ConfigReader module((*list)[i], absl::StrCat("[", i, "]"), &own);
    const std::string type = module.Text("type");
    const std::string path = module.Text("path");
    if (own.empty() && !absl::StartsWith(type, "sentence_transformers.")) {
      own.Add(absl::StrCat("module \"", Printable(type), "\" is not supported"));
    }
    if (!IsInside(path)) module.Fault("path", "a path inside the folder");
    if (own.empty()) {
      modules.push_back({type.substr(type.rfind('.') + 1), path, JoinPath(dir, path)});
    }
    for (const std::string& fault : own.all()) faults.Add(fault);
  }
  // Of a list that is not complete, the order says nothing.
  report.Add(faults.empty() ? CheckOrder(file, modules) : faults.ToStatus(file));
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

// By the names of PyTorch's classes; each takes its own defaults.
constexpr NamedValue<Activation> kDenseActivations[] = {
    {"torch.nn.modules.linear.Identity", Activation::kNone},
    {"torch.nn.modules.activation.Tanh", Activation::kTanh},
    {"torch.nn.modules.activation.ReLU", Activation::kRelu},
    {"torch.nn.modules.activation.GELU", Activation::kGelu},
    {"torch.nn.modules.activation.SiLU", Activation::kSilu}};

// A module between pooling and the end takes the vector and gives another.
void CheckVectorNames(ConfigReader& config) {
  config.Only("module_input_name", "sentence_embedding");
  config.Only("module_output_name", "sentence_embedding");
}

absl::StatusOr<DenseModule> ReadDense(const Module& module) {
  const std::string file = JoinPath(module.dir, "config.json");
  ASSIGN_OR_RETURN(const json object, ReadJsonFile(file));
  Faults faults;
  ConfigReader config(object, "", &faults);
  DenseModule dense = {.path = module.path, .in = config.Size("in_features")};
  dense.step.out = config.Size("out_features");
  dense.step.names.weight = module.path + ".linear.weight";
  if (config.Bool("bias", true)) dense.step.names.bias = module.path + ".linear.bias";
  dense.step.activation = config.Choice("activation_function", kDenseActivations);
  CheckVectorNames(config);
  config.Finish();
  if (module.path.empty()) faults.Add("expected a folder of the module's own");
  RETURN_IF_ERROR(faults.ToStatus(file));
  return dense;
}

absl::Status CheckNormalize(const std::string& dir) {
  const std::string file = JoinPath(dir, "config.json");
  if (!FileExists(file)) return absl::OkStatus();  // most have no file, and no folder either
  ASSIGN_OR_RETURN(const json object, ReadJsonFile(file));
  Faults faults;
  ConfigReader config(object, "", &faults);
  CheckVectorNames(config);
  config.Finish();
  return faults.ToStatus(file);
}

}  // namespace

SentenceTransformer ReadSentenceTransformer(const std::string& dir, FaultReport& report) {
  SentenceTransformer result;
  for (const Module& module : ReadModules(dir, report)) {
    if (module.kind == "Transformer") {
      result.encoder_dir = module.dir;
      report.Add(CheckTransformer(module.dir));
    } else if (module.kind == "Pooling") {
      report.Add(ReadPooling(module.dir, result));
    } else if (module.kind == "Dense") {
      const absl::StatusOr<DenseModule> dense = ReadDense(module);
      report.Add(dense.status());
      result.dense.push_back(dense.ok() ? *dense : DenseModule{.path = module.path});
    } else if (module.kind == "Normalize") {
      result.normalize = true;
      report.Add(CheckNormalize(module.dir));
    }
  }
  // Where it is not said, most have it beside modules.json.
  if (result.encoder_dir.empty() && FileExists(JoinPath(dir, "config.json"))) {
    result.encoder_dir = dir;
  }
  return result;
}

}  // namespace encoderd
