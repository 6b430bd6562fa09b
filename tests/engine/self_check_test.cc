// Goal:   a model is loaded only if it gives what its folder's self-check expects; a self-check
//         that is none is an error, whatever it holds.
// Method: a small random BERT; its own answers written as the expected ones, then changed.
#include "engine/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/ops/runtime.h"
#include "tests/engine/ask.h"
#include "tests/engine/random_model.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::StartsWith;

constexpr int64_t kHidden = 16;
constexpr BertShape kTiny = {
    .layers = 1, .hidden = kHidden, .heads = 2, .ffn = 24, .vocab = 20, .positions = 8};

class SelfCheckTest : public ::testing::Test {
 protected:
  SelfCheckTest() { WriteRandomBert(kTiny, folder_); }

  // Also called to begin anew.
  void SetUp() override {
    std::filesystem::remove(folder_.Path("selfcheck.safetensors"));
    const auto engine = LoadEngine(folder_.path());
    OutputSpec outputs;
    outputs.last_hidden_state = true;
    outputs.pooled = {{}, {.kind = Pooling::kPooler, .normalize = false}};
    const std::vector<int32_t> ids = {3, 1, 4};
    const std::vector<int32_t> types = {0, 1, 1};
    const Answer answer =
        Ask(*engine, *NewWorker(*engine),
            {.sequences = {{.input_ids = ids, .token_type_ids = types}}, .outputs = outputs});
    const auto values = [](const AnswerTensor& tensor) {
      return std::vector<float>(Floats(tensor).begin(), Floats(tensor).end());
    };
    tensors_ = {{"0/input_ids", "I64", {3}, BytesOf(std::vector<int64_t>{3, 1, 4})},
                {"0/token_type_ids", "I32", {3}, BytesOf(types)},
                FloatTensor("0/last_hidden_state", {3, kHidden}, values(answer.last_hidden_state)),
                FloatTensor("0/sentence_embedding", {kHidden}, values(answer.pooled[0])),
                FloatTensor("0/pooler_output", {kHidden}, values(answer.pooled[1]))};
  }

  TestTensor& Tensor(std::string_view name) {
    for (TestTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors_.front();
  }

  // Loads the folder with the self-check of `tensors_`.
  absl::StatusOr<std::unique_ptr<Engine>> Load() {
    folder_.Write("selfcheck.safetensors", Safetensors(tensors_, 0, metadata_));
    return Engine::Load({.model_dir = folder_.path()});
  }

  void ExpectRefused(const Matcher<absl::string_view>& message) {
    EXPECT_THAT(Load(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith(folder_.Path("selfcheck.safetensors") + ": "), message)));
  }

  TempFolder folder_;
  std::vector<TestTensor> tensors_;
  nlohmann::json metadata_ = {{"format", "encoderd_selfcheck_1"}, {"tolerance", "1e-4"}};
};

TEST_F(SelfCheckTest, AFolderWithoutOneHasNoResult) {
  EXPECT_FALSE(LoadEngine(folder_.path())->info().self_check.has_value());
}

TEST_F(SelfCheckTest, PassesOnTheModelThatItWasWrittenFrom) {
  tensors_.push_back({"1/input_ids", "I32", {1}, BytesOf(std::vector<int32_t>{3})});
  tensors_.push_back(FloatTensor("1/last_hidden_state", {1, kHidden}, std::vector<float>(kHidden)));
  metadata_["tolerance"] = "100";
  const auto loose = Load();
  ASSERT_THAT(loose.status(), IsOk());
  EXPECT_EQ((*loose)->info().self_check->sequences, 2);
  EXPECT_THAT((*loose)->info().self_check->where, StartsWith("1/last_hidden_state element "));
  EXPECT_GT((*loose)->info().self_check->error, 1e-3);

  tensors_.resize(5);
  metadata_["tolerance"] = "1e-30";
  const auto exact = Load();
  ASSERT_THAT(exact.status(), IsOk());
  EXPECT_EQ((*exact)->info().self_check->error, 0);
  EXPECT_EQ((*exact)->info().self_check->tolerance, 1e-30);
}

TEST_F(SelfCheckTest, InARoundedPrecisionComparesTensorsAsAWhole) {
  for (const Precision precision : {Precision::kBf16, Precision::kInt8}) {
    if (!ops::RequirePrecision(precision).ok()) GTEST_SKIP() << PrecisionName(precision);
    SetUp();
    const auto load = [&] {
      folder_.Write("selfcheck.safetensors", Safetensors(tensors_, 0, metadata_));
      return Engine::Load({.model_dir = folder_.path(), .precision = precision});
    };
    metadata_["tolerance"] = "1e-30";
    const auto right = load();
    ASSERT_THAT(right.status(), IsOk());
    EXPECT_GT((*right)->info().self_check->error, 0);
    EXPECT_LT((*right)->info().self_check->error, (*right)->info().self_check->tolerance);
    metadata_["tolerance"] = "100";
    Tensor("0/pooler_output") =
        FloatTensor("0/pooler_output", {kHidden}, std::vector<float>(kHidden, 0.5f));
    EXPECT_THAT(load(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("0/pooler_output: is off by "),
                                       HasSubstr("of its length; the tolerance in this"))));
  }
}

TEST_F(SelfCheckTest, NamesTheWorstElementOfAnOutputThatDiffers) {
  for (const char* name : {"0/last_hidden_state", "0/sentence_embedding", "0/pooler_output"}) {
    SetUp();
    TestTensor& tensor = Tensor(name);
    float values[2];
    std::memcpy(values, tensor.bytes.data(), sizeof(values));
    values[0] += 3e-4f;
    values[1] += 0.5f;
    std::memcpy(tensor.bytes.data(), values, sizeof(values));
    ExpectRefused(AllOf(HasSubstr(absl::StrCat(name, ": element 1: expected ", values[1], ", got")),
                        HasSubstr("the tolerance is 0.0001")));
  }
}

// Large outputs, as logits are, are held to a relative error.
TEST_F(SelfCheckTest, ErrorsAreRelativeAboveOne) {
  std::vector<float> expected(kHidden, 1e4f);
  Tensor("0/pooler_output") = FloatTensor("0/pooler_output", {kHidden}, expected);
  metadata_["tolerance"] = "1.1";
  EXPECT_THAT(Load(), IsOk());
  metadata_["tolerance"] = "0.9";
  ExpectRefused(HasSubstr("expected 10000"));
}

TEST_F(SelfCheckTest, RefusesWhatTheModelCannotTakeOrGive) {
  Tensor("0/input_ids").bytes = BytesOf(std::vector<int64_t>{3, 20, 4});
  ExpectRefused(HasSubstr("input_ids[1]"));
  SetUp();
  Tensor("0/input_ids").bytes = BytesOf(std::vector<int64_t>{3, int64_t{1} << 32, 4});
  ExpectRefused(HasSubstr("element 1 is 4294967296"));
  SetUp();
  tensors_.push_back(FloatTensor("0/logits", {3, 2}, std::vector<float>(6)));
  ExpectRefused(HasSubstr("this model has no logits"));
  SetUp();
  Tensor("0/last_hidden_state").shape = {kHidden, 3};
  ExpectRefused(HasSubstr("in shape [16, 3], but the model gives [3, 16]"));
  SetUp();
  tensors_ = {{"0/input_ids", "I64", {9}, std::string(72, '\0')},
              FloatTensor("0/last_hidden_state", {9, kHidden}, std::vector<float>(9 * kHidden))};
  ExpectRefused(HasSubstr("at most 8"));
  tensors_ = {FloatTensor("0/inputs_embeds", {2, 5}, std::vector<float>(10)),
              FloatTensor("0/last_hidden_state", {2, kHidden}, std::vector<float>(2 * kHidden))};
  ExpectRefused(HasSubstr("inputs_embeds"));
}

TEST_F(SelfCheckTest, RefusesTensorsThatItsFormatDoesNotHave) {
  for (const char* name :
       {"input_ids", "0/attention_mask", "0/", "/input_ids", "-1/input_ids", "01/input_ids",
        "64/input_ids", "1x/input_ids", "18446744073709551616/input_ids"}) {
    SetUp();
    tensors_.push_back({name, "I64", {1}, std::string(8, '\0')});
    ExpectRefused(AllOf(HasSubstr(absl::StrCat("tensor \"", name, "\"")), HasSubstr("expected")));
  }
  SetUp();
  tensors_.push_back({"1/input_ids", "I64", {1}, std::string(8, '\0')});
  ExpectRefused(HasSubstr("sequence 1: expected"));
  SetUp();
  tensors_.push_back(FloatTensor("0/inputs_embeds", {3, kHidden}, std::vector<float>(3 * kHidden)));
  ExpectRefused(HasSubstr("sequence 0: expected input_ids or inputs_embeds"));
  tensors_ = {};
  ExpectRefused(HasSubstr("no tensors"));
}

TEST_F(SelfCheckTest, RefusesValuesAndTypesThatMeanNothing) {
  Tensor("0/input_ids") = FloatTensor("0/input_ids", {3}, {3, 1, 4});
  ExpectRefused(HasSubstr("expected I64 or I32 of shape [S], got F32"));
  SetUp();
  Tensor("0/input_ids").shape = {1, 3};
  ExpectRefused(HasSubstr("got I64 of shape [1, 3]"));
  SetUp();
  Tensor("0/pooler_output") = {"0/pooler_output", "I64", {1}, std::string(8, '\0')};
  ExpectRefused(HasSubstr("expected dtype F32, F16, BF16 or F64, got I64"));
  for (const float value : {NAN, INFINITY}) {
    SetUp();
    Tensor("0/pooler_output") =
        FloatTensor("0/pooler_output", {kHidden}, std::vector<float>(kHidden, value));
    ExpectRefused(HasSubstr("expected finite numbers"));
  }
}

TEST_F(SelfCheckTest, RefusesAToleranceThatIsNone) {
  for (const char* tolerance : {"", "nan", "inf", "0", "-1", "1e-4x", "one"}) {
    metadata_["tolerance"] = tolerance;
    ExpectRefused(HasSubstr(absl::StrCat("tolerance is \"", tolerance, "\"")));
  }
  metadata_ = {{"format", "encoderd_selfcheck_1"}};
  ExpectRefused(HasSubstr("tolerance is \"\""));
  metadata_ = {{"format", "pt"}, {"tolerance", "1e-4"}};
  ExpectRefused(HasSubstr("format is \"pt\"; expected \"encoderd_selfcheck_1\""));
}

TEST_F(SelfCheckTest, RefusesAFileThatIsNoSafetensorsFile) {
  for (const char* bytes : {"", "x", "\xff\xff\xff\xff\xff\xff\xff\xff{}"}) {
    folder_.Write("selfcheck.safetensors", bytes);
    EXPECT_THAT(Engine::Load({.model_dir = folder_.path()}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("selfcheck.safetensors")));
  }
}

}  // namespace
}  // namespace encoderd
