// Goal:   every model folder of the goldens opens, and the ways in which one model was saved hold
//         the same weights.
// Method: all folders under tests/goldens; tensors compared to the bit by the spec's names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "engine/model/model_folder.h"
#include "engine/model/tensor_list.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::testing::Each;
using ::testing::StartsWith;

std::vector<std::filesystem::path> FoldersIn(const std::filesystem::path& parent) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(parent)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  return folders;
}

void ExpectSameWeights(const ModelFolder& a, const ModelFolder& b) {
  ASSERT_EQ(a.spec, b.spec);
  for (const ExpectedTensor& tensor : ExpectedTensors(a.spec)) {
    const auto left = a.checkpoint.Read(tensor.name);
    const auto right = b.checkpoint.Read(tensor.name);
    ASSERT_THAT(left.status(), IsOk());
    ASSERT_THAT(right.status(), IsOk());
    ASSERT_EQ(left->size(), right->size());
    EXPECT_EQ(std::memcmp(left->data(), right->data(), left->size()), 0) << tensor.name;
  }
}

TEST(GoldenModelsTest, OpenAndHoldTheSameWeightsHoweverTheyWereSaved) {
  size_t opened = 0;
  for (const auto& golden : FoldersIn(ENCODERD_SOURCE_DIR "/tests/goldens")) {
    if (!std::filesystem::exists(golden / "cases.json")) continue;
    const auto model = OpenModelFolder(golden / "model");
    ASSERT_THAT(model.status(), IsOk());
    EXPECT_THAT(model->checkpoint.unused(), Each(StartsWith("cls."))) << golden;
    for (const auto& folder : FoldersIn(golden)) {
      const auto other = OpenModelFolder(folder);
      ASSERT_THAT(other.status(), IsOk());
      EXPECT_THAT(other->checkpoint.unused(), Each(StartsWith("cls."))) << folder;
      // A class with a head has tensors of its own; that it gives the same is for the parity test.
      if (model->spec.has_logits() == other->spec.has_logits()) ExpectSameWeights(*model, *other);
      ++opened;
    }
  }
  EXPECT_GE(opened, 40u);
}

}  // namespace
}  // namespace encoderd
