#include "engine/model/families.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/io/json.h"
#include "engine/model/validate_spec.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

using ReadFamily = EncoderSpec(ConfigReader&);

#define ENCODERD_ENTRY(model_type, Read) {model_type, Read},
constexpr std::pair<std::string_view, ReadFamily*> kFamilies[] = {
    ENCODERD_FAMILIES(ENCODERD_ENTRY)};
#undef ENCODERD_ENTRY

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

// The function of the family that the configuration names, or nullptr.
ReadFamily* FamilyOf(const json& config) {
  const auto model_type = config.find("model_type");
  for (const auto& [name, read] : kFamilies) {
    if (model_type != config.end() && *model_type == name) return read;
  }
  return nullptr;
}

EncoderSpec Read(ReadFamily* read, const json& config, Faults& faults,
                 const Faults* earlier = nullptr) {
  ConfigReader reader(config, "", &faults, earlier);
  EncoderSpec spec = read(reader);
  reader.Finish();
  return spec;
}

// Adds the faults that are in both; returns whether there are any.
bool AddCommon(const Faults& first, const Faults& second, Faults& faults) {
  const size_t before = faults.size();
  const std::set<std::string> others(second.all().begin(), second.all().end());
  for (const std::string& fault : first.all()) {
    if (others.contains(fault)) faults.Add(fault);
  }
  return faults.size() > before;
}

}  // namespace

absl::StatusOr<EncoderSpec> SpecFromConfig(const json& config, std::vector<EncoderSpec>* possible) {
  if (!config.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: expected an object, got %s", Printable(config.dump())));
  }
  ReadFamily* const read = FamilyOf(config);
  if (read == nullptr) {
    return Unsupported(config.contains("model_type") ? Printable(config["model_type"].dump())
                                                     : "missing");
  }
  Faults faults;
  EncoderSpec spec = Read(read, config, faults);
  const Faults contradictions = SpecFaults(spec);
  if (faults.empty() && contradictions.empty()) return spec;

  // What a second reading, with other values for the keys in doubt, gives too is independent of
  // them: values that contradict one another, and then the tensors that there should be.
  Faults ignored;
  EncoderSpec other = Read(read, config, ignored, &faults);
  if (AddCommon(contradictions, SpecFaults(other), faults)) {
    faults.Doubt("");  // any of them may be the wrong one
    other = Read(read, config, ignored, &faults);
  }
  // Blocks are alike, and of too many only the first are certain.
  spec.num_layers = std::min(spec.num_layers, kMaxLayers);
  if (possible != nullptr && !faults.tensors_in_doubt() && CanListTensors(spec) &&
      CanListTensors(other)) {
    *possible = {std::move(spec), std::move(other)};
  }
  return faults.ToStatus("config.json");
}

}  // namespace encoderd
