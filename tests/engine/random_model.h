// random_model.h — a model folder with random weights and the shapes of a real model, for tests and
// benchmarks of speed and bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/log/check.h"
#include "engine/model/families.h"
#include "engine/model/spec.h"
#include "engine/model/tensor_list.h"
#include "tests/engine/io/safetensors_writer.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd {

struct BertShape {
  int64_t layers, hidden, heads, ffn, vocab, positions;
};

inline constexpr BertShape kMiniLmL6 = {6, 384, 12, 1536, 30522, 512};
inline constexpr BertShape kBertBase = {12, 768, 12, 3072, 30522, 512};

// Writes config.json and model.safetensors of a model of any family. Weights are normal with the
// scale of trained models, so that activations neither vanish nor blow up.
inline void WriteRandomModel(const nlohmann::json& config, const TempFolder& folder) {
  // Through text, as a file would come: only there are these numbers unsigned.
  auto spec = SpecFromConfig(nlohmann::json::parse(config.dump()));
  CHECK(spec.ok()) << spec.status();
  std::mt19937 rng(20240301);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<TestTensor> tensors;
  for (const ExpectedTensor& expected : ExpectedTensors(*spec)) {
    size_t count = 1;
    for (const int64_t axis : expected.shape) count *= static_cast<size_t>(axis);
    std::vector<float> values(count);
    for (float& value : values) value = normal(rng);
    const bool norm = expected.shape.size() == 1 && expected.name.ends_with(".weight");
    for (float& value : values) value += norm ? 1.0f : 0.0f;
    tensors.push_back(FloatTensor(expected.name, expected.shape, values));
  }
  folder.Write("config.json", config.dump());
  folder.Write("model.safetensors", Safetensors(tensors));
}

inline void WriteRandomBert(const BertShape& shape, const TempFolder& folder) {
  WriteRandomModel({{"model_type", "bert"},
                    {"num_hidden_layers", shape.layers},
                    {"hidden_size", shape.hidden},
                    {"num_attention_heads", shape.heads},
                    {"intermediate_size", shape.ffn},
                    {"vocab_size", shape.vocab},
                    {"max_position_embeddings", shape.positions},
                    {"type_vocab_size", 2}},
                   folder);
}

}  // namespace encoderd
