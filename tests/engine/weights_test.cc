// Goal:   blocks that share tensors share them in memory, too.
// Method: the same shape with more blocks, and with more groups.
#include <gtest/gtest.h>

#include "engine/model/families.h"
#include "tests/engine/ask.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

EngineInfo InfoOf(int64_t layers, int64_t groups) {
  nlohmann::json config = TinyAlbert();
  config["num_hidden_layers"] = layers;
  config["num_hidden_groups"] = groups;
  const EncoderSpec spec = SpecFromConfig(config).value();
  const TempFolder folder;
  folder.Write("config.json", config.dump());
  folder.Write("model.safetensors", Safetensors(TinyWeights(spec)));
  return LoadEngine(folder.path())->info();
}

TEST(WeightsTest, OfAGroupAreHeldOnceHoweverManyBlocksUseThem) {
  const EngineInfo one = InfoOf(1, 1), shared = InfoOf(12, 1);
  EXPECT_EQ(shared.weights_bytes, one.weights_bytes);
  EXPECT_EQ(shared.parameters, one.parameters);
  const EngineInfo two = InfoOf(12, 2), three = InfoOf(12, 3);
  EXPECT_GT(two.weights_bytes, shared.weights_bytes);
  EXPECT_EQ(three.weights_bytes - two.weights_bytes, two.weights_bytes - shared.weights_bytes);
}

}  // namespace
}  // namespace encoderd
