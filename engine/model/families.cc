#include "engine/model/families.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/io/json.h"
#include "engine/model/spec_json.h"
#include "engine/model/validate_spec.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

template <EncoderSpec (*read)(ConfigReader&)>
absl::StatusOr<EncoderSpec> ReadWith(const json& config) {
  Faults faults;
  ConfigReader reader(config, "", &faults);
  EncoderSpec spec = read(reader);
  reader.Finish();
  RETURN_IF_ERROR(faults.ToStatus("config.json"));
  return spec;
}

constexpr std::pair<std::string_view, absl::StatusOr<EncoderSpec> (*)(const json&)> kFamilies[] = {
    {"fused_qkv_attention", ReadWith<FusedQkvAttentionSpec>},
    {"shared_projection_encoder", ReadWith<SharedProjectionEncoderSpec>},
    {"token_encoder", ReadWith<TokenEncoderSpec>},
    {"torch_transformer_encoder", ReadWith<TorchTransformerEncoderSpec>},
    {"bert", ReadWith<BertSpec>},
    {"roberta", ReadWith<RobertaSpec>},
    {"xlm-roberta", ReadWith<RobertaSpec>},
    {"camembert", ReadWith<RobertaSpec>},
    {"distilbert", ReadWith<DistilBertSpec>},
    {"mpnet", ReadWith<MpnetSpec>},
    {"electra", ReadWith<ElectraSpec>},
    {"albert", ReadWith<AlbertSpec>},
    {"custom", SpecFromJson},
};

absl::Status Unsupported(std::string_view got) {
  std::string known;
  for (const auto& [name, read] : kFamilies) {
    absl::StrAppend(&known, known.empty() ? "\"" : ", \"", std::string(name), "\"");
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "config.json: model_type is %s; expected one of %s. An encoder of another make can be "
      "described in full with model_type \"custom\"",
      got, known));
}

}  // namespace

absl::StatusOr<EncoderSpec> SpecFromConfig(const json& config) {
  if (!config.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: expected an object, got %s", Printable(config.dump())));
  }
  const auto model_type = config.find("model_type");
  if (model_type == config.end()) return Unsupported("missing");
  for (const auto& [name, read] : kFamilies) {
    if (*model_type != name) continue;
    ASSIGN_OR_RETURN(EncoderSpec spec, read(config));
    RETURN_IF_ERROR(ValidateSpec(spec));
    return spec;
  }
  return Unsupported(Printable(model_type->dump()));
}

}  // namespace encoderd
