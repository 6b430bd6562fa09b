// Goal:   contacts are symmetric, defined for every sequence, and fail where they are no numbers.
// Method: a golden's model; parity_test, alone_and_batched_test and spec_test judge the numbers.
#include "engine/contacts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "engine/io/file.h"
#include "engine/io/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/golden.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A copy of the golden's model with the weight of the first map, and the bias, of its own.
class ContactsTest : public ::testing::Test {
 protected:
  void Load(float first_weight, float bias) {
    const std::string model = ReadGolden("esm").folder + "/model";
    auto file = SafetensorsFile::Open(model + "/model.safetensors");
    ASSERT_THAT(file, IsOk());
    auto bytes = ReadTextFile(model + "/model.safetensors", uint64_t{1} << 20);
    auto config = ReadTextFile(model + "/config.json", uint64_t{1} << 20);
    ASSERT_THAT(bytes, IsOk());
    ASSERT_THAT(config, IsOk());
    const auto set = [&](const char* name, float value) {
      const TensorEntry* const entry = file->Find(name);
      ASSERT_NE(entry, nullptr);
      std::memcpy(bytes->data() + entry->begin, &value, sizeof(value));
    };
    set("contact_head.regression.weight", first_weight);
    set("contact_head.regression.bias", bias);
    folder_.Write("model.safetensors", *bytes);
    folder_.Write("config.json", *config);
    engine_ = LoadEngine(folder_.path());
    worker_ = NewWorker(*engine_);
  }

  Answer Contacts(const std::vector<Sequence>& sequences) {
    return Ask(*engine_, *worker_, {.sequences = sequences, .outputs = {.contacts = true}});
  }

  const TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Worker> worker_;
};

TEST_F(ContactsTest, AreSymmetricToTheBit) {
  Load(1, -2);
  const std::vector<int32_t> ids = {0, 5, 9, 8, 7, 6, 11, 2};
  const Answer answer = Contacts({{.input_ids = ids}});
  EXPECT_THAT(answer.contacts[0].shape, ElementsAre(6, 6));
  const auto contacts = Floats(answer.contacts[0]);
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < 6; ++j) EXPECT_EQ(contacts[i * 6 + j], contacts[j * 6 + i]);
  }
  EXPECT_NE(contacts[1], contacts[2]);
}

TEST_F(ContactsTest, AreNoneOfFewerThanThreeTokens) {
  Load(1, -2);
  const std::vector<int32_t> one = {0}, two = {0, 2}, three = {0, 5, 2};
  const Answer answer = Contacts({{.input_ids = two}, {.input_ids = three}, {.input_ids = one}});
  EXPECT_THAT(answer.contacts[0].shape, ElementsAre(0, 0));
  EXPECT_THAT(answer.contacts[1].shape, ElementsAre(1, 1));
  EXPECT_THAT(answer.contacts[2].shape, ElementsAre(0, 0));
}

TEST_F(ContactsTest, AreTheBiasAloneWhereNoTokenCounts) {
  Load(1, -2);
  const auto nothing_known = static_cast<float>(1 / (1 + std::exp(2.0)));
  const std::vector<int32_t> ends = {0, 2, 2, 3}, some = {0, 5, 6, 7};
  const std::vector<uint8_t> keys = {1, 0, 0, 1};
  const Answer answer = Contacts(
      {{.input_ids = ends}, {.input_ids = some, .mask = {.keys = keys, .keys_present = true}}});
  EXPECT_THAT(Floats(answer.contacts[0]), Each(nothing_known));
  EXPECT_THAT(Floats(answer.contacts[1]), Each(nothing_known));
}

// The sigmoid would make a plausible 1 of an infinity.
TEST_F(ContactsTest, ThatOverflowFailTheirOwnSequenceAlone) {
  Load(std::numeric_limits<float>::max(), std::numeric_limits<float>::max());
  const std::vector<int32_t> touching = {0, 5, 9, 2}, alone = {0, 2};
  Prepared call(*engine_, {.sequences = {{.input_ids = touching}, {.input_ids = alone}},
                           .outputs = {.contacts = true}});
  std::vector<BatchItem> items;
  call.AppendItems(items);
  ASSERT_THAT(worker_->Run(items, NeverAbandoned), IsOk());
  EXPECT_THAT(items[0].status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("contacts is not finite")));
  EXPECT_THAT(items[1].status, IsOk());
}

}  // namespace
}  // namespace encoderd
