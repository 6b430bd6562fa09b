// Goal: the flags that choose outputs say in the request what they say on the command line.
// Method: flags set and restored around each test, compared with the OutputSpec.
#include "deploy/client/output_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status_matchers.h"

using StringList = std::vector<std::string>;
ABSL_DECLARE_FLAG(bool, attentions);
ABSL_DECLARE_FLAG(bool, last_hidden_state);
ABSL_DECLARE_FLAG(StringList, hidden_states);
ABSL_DECLARE_FLAG(StringList, layers);
ABSL_DECLARE_FLAG(StringList, heads);
ABSL_DECLARE_FLAG(StringList, query_rows);
ABSL_DECLARE_FLAG(StringList, pooled);
ABSL_DECLARE_FLAG(bool, logits);
ABSL_DECLARE_FLAG(bool, contacts);
ABSL_DECLARE_FLAG(std::string, dtype);

namespace encoderd::client {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OutputsFromFlagsTest : public testing::Test {
 private:
  absl::FlagSaver saver_;
};

TEST_F(OutputsFromFlagsTest, ChooseNothingByDefault) {
  const auto spec = OutputsFromFlags();
  ASSERT_THAT(spec, IsOk());
  v1::OutputSpec nothing;
  nothing.set_dtype(v1::DATA_TYPE_FP32);
  EXPECT_EQ(spec->SerializeAsString(), nothing.SerializeAsString());
}

TEST_F(OutputsFromFlagsTest, CarryEveryChoice) {
  absl::SetFlag(&FLAGS_last_hidden_state, true);
  absl::SetFlag(&FLAGS_hidden_states, StringList{"0", "-2"});
  absl::SetFlag(&FLAGS_attentions, true);
  absl::SetFlag(&FLAGS_layers, StringList{"-1"});
  absl::SetFlag(&FLAGS_heads, StringList{"0", "3"});
  absl::SetFlag(&FLAGS_query_rows, StringList{"2"});
  absl::SetFlag(&FLAGS_pooled, StringList{"mean:normalize", "cls"});
  absl::SetFlag(&FLAGS_logits, true);
  absl::SetFlag(&FLAGS_contacts, true);
  absl::SetFlag(&FLAGS_dtype, "bf16");
  const auto spec = OutputsFromFlags();
  ASSERT_THAT(spec, IsOk());
  EXPECT_TRUE(spec->last_hidden_state());
  EXPECT_THAT(spec->hidden_states(), ElementsAre(0, -2));
  EXPECT_FALSE(spec->all_hidden_states());
  EXPECT_THAT(spec->attentions().layers(), ElementsAre(-1));
  EXPECT_THAT(spec->attentions().heads(), ElementsAre(0, 3));
  EXPECT_THAT(spec->attentions().query_rows(), ElementsAre(2));
  ASSERT_EQ(spec->pooled_size(), 2);
  EXPECT_TRUE(spec->pooled(0).normalize());
  EXPECT_EQ(spec->pooled(1).kind(), v1::POOLING_CLS);
  EXPECT_TRUE(spec->logits());
  EXPECT_TRUE(spec->contacts());
  EXPECT_EQ(spec->dtype(), v1::DATA_TYPE_BF16);
}

TEST_F(OutputsFromFlagsTest, AskForEveryMapWithoutALayer) {
  absl::SetFlag(&FLAGS_attentions, true);
  EXPECT_TRUE(OutputsFromFlags()->has_attentions());
}

TEST_F(OutputsFromFlagsTest, AskForEveryHiddenState) {
  absl::SetFlag(&FLAGS_hidden_states, StringList{"all"});
  EXPECT_TRUE(OutputsFromFlags()->all_hidden_states());
}

TEST_F(OutputsFromFlagsTest, RefuseALayerOfNoMap) {
  absl::SetFlag(&FLAGS_layers, StringList{"1"});
  EXPECT_THAT(OutputsFromFlags(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--attentions")));
}

TEST_F(OutputsFromFlagsTest, RefuseWhatIsNoNumberAndNoType) {
  absl::SetFlag(&FLAGS_hidden_states, StringList{"0", "last"});
  EXPECT_THAT(OutputsFromFlags(), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("--hidden_states: expected integers")));
  absl::SetFlag(&FLAGS_dtype, "int8");
  EXPECT_THAT(OutputsFromFlags(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int8")));
}

TEST(ParsePoolingTest, ReadsEveryOption) {
  const auto spec = ParsePooling("max:raw:layer=-2:dimensions=64");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(spec->kind(), v1::POOLING_MAX);
  EXPECT_TRUE(spec->has_normalize());
  EXPECT_FALSE(spec->normalize());
  EXPECT_EQ(spec->layer(), -2);
  EXPECT_EQ(spec->dimensions(), 64u);
}

TEST(ParsePoolingTest, LeavesOpenWhatIsNotSaid) {
  const auto spec = ParsePooling("default");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(spec->kind(), v1::POOLING_UNSPECIFIED);
  EXPECT_FALSE(spec->has_normalize());
  EXPECT_FALSE(spec->has_layer());
}

TEST(ParsePoolingTest, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "median", "mean:", "mean:layer", "mean:layer=x",
                           "mean:dimensions=-1", "mean:normalise"}) {
    EXPECT_THAT(ParsePooling(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--pooled")))
        << text;
  }
}

}  // namespace
}  // namespace encoderd::client
