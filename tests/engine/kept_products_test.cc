// Goal:   an int8 model stays near fp32 although some of its products cannot be rounded so far.
// Method: a random BERT, and the same with an activation a hundred times as large as its neighbours,
//         in front of one product.
#include "engine/kept_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/status/status_matchers.h"
#include "engine/accuracy.h"
#include "engine/io/file.h"
#include "engine/io/safetensors.h"
#include "engine/ops/runtime.h"
#include "tests/engine/ask.h"
#include "tests/engine/random_model.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::testing::Contains;
using ::testing::Not;

class KeptProductsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Precision precision : {Precision::kBf16, Precision::kInt8}) {
      if (!ops::RequirePrecision(precision).ok()) GTEST_SKIP() << PrecisionName(precision);
    }
    WriteRandomBert(
        {.layers = 3, .hidden = 64, .heads = 4, .ffn = 256, .vocab = 50, .positions = 64}, folder_);
  }

  void Put(const char* tensor, uint64_t element, float value) {
    const std::string path = folder_.Path("model.safetensors");
    const auto file = SafetensorsFile::Open(path);
    ASSERT_THAT(file, IsOk());
    auto text = ReadTextFile(path, uint64_t{1} << 30);
    ASSERT_THAT(text, IsOk());
    const TensorEntry* const entry = file->Find(tensor);
    ASSERT_NE(entry, nullptr) << tensor;
    std::memcpy(text->data() + entry->begin + element * sizeof(value), &value, sizeof(value));
    folder_.Write("model.safetensors", *text);
  }

  std::unique_ptr<Engine> Load(Precision precision) {
    auto engine = Engine::Load({.model_dir = folder_.path(), .precision = precision});
    EXPECT_THAT(engine, IsOk());
    return *std::move(engine);
  }

  // Of int8 to fp32, on sequences of this test's own.
  double ErrorOfInt8() {
    const auto exact = Load(Precision::kFp32), rounded = Load(Precision::kInt8);
    const auto exactly = NewWorker(*exact), roughly = NewWorker(*rounded);
    double largest = 0;
    for (int32_t first = 0; first < 20; ++first) {
      const std::vector<int32_t> ids = {first, 7, first + 13, 21, first + 29};
      const auto a = LastHiddenState(exact->spec(), *exactly, {.input_ids = ids});
      const auto b = LastHiddenState(exact->spec(), *roughly, {.input_ids = ids});
      EXPECT_THAT(a, IsOk());
      EXPECT_THAT(b, IsOk());
      largest = std::max(largest, LargestError(a->data.floats(), b->data.floats(), 64));
    }
    return largest;
  }

  TempFolder folder_;
};

TEST_F(KeptProductsTest, AProductBehindALargeActivationStaysInBf16) {
  EXPECT_THAT(Load(Precision::kInt8)->info().kept_in_bf16, Not(Contains("1.ffn_out")));
  Put("encoder.layer.1.intermediate.dense.bias", 3, 60);
  const EngineInfo info = Load(Precision::kInt8)->info();
  EXPECT_THAT(info.kept_in_bf16, Contains("1.ffn_out"));
  EXPECT_EQ(info.precision, "int8");
  EXPECT_LE(ErrorOfInt8(), 0.01);
  EXPECT_TRUE(Load(Precision::kBf16)->info().kept_in_bf16.empty());
  EXPECT_TRUE(Load(Precision::kFp32)->info().kept_in_bf16.empty());
}

TEST_F(KeptProductsTest, ABadRowOfAnEmbeddingTableIsNoMatterOfTheProducts) {
  for (uint64_t element = 0; element < 64; ++element) {
    Put("embeddings.word_embeddings.weight", 5 * 64 + element, NAN);
  }
  EXPECT_NE(Load(Precision::kInt8), nullptr);
}

}  // namespace
}  // namespace encoderd
