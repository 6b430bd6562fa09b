// Goal:   what shares tensors shares them in memory, too.
// Method: the same shape with more blocks, and with more groups; a classifier that begins with the
//         pooler, with the pooler and without.
#include <gtest/gtest.h>

#include "engine/model/families.h"
#include "engine/model/spec_json.h"
#include "tests/engine/ask.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

EngineInfo InfoOf(const nlohmann::json& config) {
  const EncoderSpec spec = SpecFromConfig(config).value();
  const TempFolder folder;
  folder.Write("config.json", config.dump());
  folder.Write("model.safetensors", Safetensors(TinyWeights(spec)));
  return LoadEngine(folder.path())->info();
}

EngineInfo InfoOf(int64_t layers, int64_t groups) {
  nlohmann::json config = TinyAlbert();
  config["num_hidden_layers"] = layers;
  config["num_hidden_groups"] = groups;
  return InfoOf(config);
}

TEST(WeightsTest, OfAGroupAreHeldOnceHoweverManyBlocksUseThem) {
  const EngineInfo one = InfoOf(1, 1), shared = InfoOf(12, 1);
  EXPECT_EQ(shared.weights_bytes, one.weights_bytes);
  EXPECT_EQ(shared.parameters, one.parameters);
  const EngineInfo two = InfoOf(12, 2), three = InfoOf(12, 3);
  EXPECT_GT(two.weights_bytes, shared.weights_bytes);
  EXPECT_EQ(three.weights_bytes - two.weights_bytes, two.weights_bytes - shared.weights_bytes);
}

TEST(WeightsTest, OfAPoolerThatAClassifierBeginsWithAreHeldOnce) {
  for (auto [config, name] : {std::pair{TinyBert(), "BertForSequenceClassification"},
                              {TinyAlbert(), "AlbertForSequenceClassification"}}) {
    config["architectures"] = {name};
    nlohmann::json with_both = SpecToJson(SpecFromConfig(config).value());
    nlohmann::json classifier_alone = with_both;
    classifier_alone.erase("pooler");
    classifier_alone.erase("pooler_optional");
    EXPECT_EQ(InfoOf(with_both).weights_bytes, InfoOf(classifier_alone).weights_bytes) << name;
    // Not so with another activation, which is another product.
    with_both["pooler"][0]["activation"] = "relu";
    EXPECT_GT(InfoOf(with_both).weights_bytes, InfoOf(classifier_alone).weights_bytes) << name;
  }
}

}  // namespace
}  // namespace encoderd
