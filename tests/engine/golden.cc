#include "tests/engine/golden.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "engine/io/safetensors.h"

namespace encoderd {
namespace {

using nlohmann::json;

std::string GoldensFolder() { return absl::StrCat(ENCODERD_SOURCE_DIR, "/tests/goldens"); }

std::span<const int32_t> Ints(const json& object, const char* key, GoldenCase& owner) {
  if (!object.contains(key)) return {};
  return owner.ints.emplace_back(object[key].get<std::vector<int32_t>>());
}

std::span<const uint8_t> Bytes(const json& object, const char* key, GoldenCase& owner) {
  if (!object.contains(key)) return {};
  return owner.bytes.emplace_back(object[key].get<std::vector<uint8_t>>());
}

Sequence ReadSequence(const json& object, const GoldenTensor* embeds, GoldenCase& owner) {
  Sequence sequence;
  sequence.input_ids = Ints(object, "input_ids", owner);
  if (embeds != nullptr) {
    sequence.inputs_embeds = InputTensor{.dtype = DataType::kFp32,
                                         .shape = owner.shapes.emplace_back(embeds->shape),
                                         .data = std::as_bytes(std::span(embeds->values))};
  }
  sequence.token_type_ids = Ints(object, "token_type_ids", owner);
  sequence.position_ids = Ints(object, "position_ids", owner);
  if (object.contains("mask")) {
    const json& mask = object["mask"];
    sequence.mask = {.keys = Bytes(mask, "keys", owner),
                     .pairs = Bytes(mask, "pairs", owner),
                     .head_pairs = Bytes(mask, "head_pairs", owner),
                     .causal = mask.value("causal", false),
                     .segment_ids = Ints(mask, "segment_ids", owner)};
  }
  return sequence;
}

std::string Key(const GoldenCase& golden_case, size_t sequence, const std::string& output) {
  return absl::StrCat(golden_case.name, "/", sequence, "/", output);
}

}  // namespace

const GoldenTensor* Golden::Find(const GoldenCase& golden_case, size_t sequence,
                                 const std::string& output) const {
  const auto found = tensors.find(Key(golden_case, sequence, output));
  return found == tensors.end() ? nullptr : &found->second;
}

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldensFolder())) {
    if (std::filesystem::exists(entry.path() / "cases.json"))
      names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Golden ReadGolden(const std::string& name) {
  Golden golden;
  golden.folder = absl::StrCat(GoldensFolder(), "/", name);
  auto file = SafetensorsFile::Open(golden.folder + "/golden.safetensors");
  CHECK(file.ok()) << file.status();
  for (const TensorEntry& entry : file->tensors()) {
    GoldenTensor tensor = {entry.shape, std::vector<float>(static_cast<size_t>(entry.elements))};
    CHECK(file->ReadFp32(entry, tensor.values).ok()) << entry.name;
    golden.tensors.emplace(entry.name, std::move(tensor));
  }
  std::ifstream stream(golden.folder + "/cases.json");
  const json root = json::parse(stream);
  golden.models = root["models"].get<std::vector<std::string>>();
  for (const json& item : root["cases"]) {
    auto& owner = *golden.cases.emplace_back(std::make_unique<GoldenCase>());
    owner.name = item["name"].get<std::string>();
    for (const json& sequence : item["sequences"]) {
      const GoldenTensor* embeds =
          golden.Find(owner, owner.request.sequences.size(), "inputs_embeds");
      owner.request.sequences.push_back(ReadSequence(sequence, embeds, owner));
    }
  }
  return golden;
}

}  // namespace encoderd
