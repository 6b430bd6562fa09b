// Goal:   the drift of a precision is seen on a fair sample of what callers send, on spare time
//         alone, and nobody waits for it.
// Method: two fake engines, one of them off by a chosen error; workers that are said to be busy.
#include "server/shadow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/time/clock.h"
#include "tests/server/fake_engine.h"
#include "tests/server/metrics_text.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;

class ShadowTest : public ::testing::Test {
 protected:
  ~ShadowTest() override {
    served_.latch().Open();
    reference_.latch().Open();
  }

  void Start(int64_t rate, uint64_t seed = 0) {
    shadow_ = nullptr;
    metrics_ = *Metrics::Start("", "0", "test");
    auto shadow = Shadow::Start({.rate = rate, .workers = 1, .seed = seed}, served_, reference_,
                                *metrics_, SteadyClock());
    ASSERT_THAT(shadow, IsOk());
    shadow_ = *std::move(shadow);
  }

  void Offer(int32_t id) {
    const std::vector<int32_t> ids = {id, 2, 3};  // gone when this returns
    shadow_->Offer({.input_ids = ids});
  }
  // A sample is dropped, too, where the shadow's thread holds the lock at that moment.
  void OfferUntilTaken(int32_t id) {
    double dropped;
    do {
      dropped = Dropped("no_room");
      Offer(id);
    } while (Dropped("no_room") > dropped);
  }

  double Metric(const std::string& series) const {
    return ReadMetrics(metrics_->Text()).at(series);
  }
  double Sampled() const { return Metric("encoderd_shadow_sampled_total"); }
  double Compared() const { return Metric("encoderd_shadow_error_count"); }
  double Dropped(const std::string& reason) const {
    return Metric("encoderd_shadow_dropped_total{reason=\"" + reason + "\"}");
  }
  void AwaitCompared(double count) const {
    while (Compared() < count) absl::SleepFor(absl::Milliseconds(1));
  }

  FakeEngine served_, reference_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Shadow> shadow_;
};

TEST_F(ShadowTest, ShowsHowFarTheServedEngineIsFromTheReference) {
  Start(1);
  OfferUntilTaken(1);
  AwaitCompared(1);
  EXPECT_NEAR(Metric("encoderd_shadow_error_sum"), 0, 1e-12);
  Start(1);
  served_.SetError(50);
  OfferUntilTaken(1);
  AwaitCompared(1);
  EXPECT_GT(Metric("encoderd_shadow_error_sum"), 1e-3);
  EXPECT_EQ(Metric("encoderd_shadow_error_bucket{le=\"+Inf\"}"), 1);
}

TEST_F(ShadowTest, SamplesOneInNWhateverTheOrderAndTheSameEveryTime) {
  const auto sampled = [&](uint64_t seed) {
    Start(10, seed);
    for (int i = 0; i < 10'000; ++i) Offer(1);
    return Sampled();
  };
  const double first = sampled(1);
  EXPECT_NEAR(first, 1000, 100);
  EXPECT_EQ(sampled(1), first);
  EXPECT_NE(sampled(2), first);
}

TEST_F(ShadowTest, NobodyWaitsForASampleThatTakesForEver) {
  Start(1);
  reference_.latch().Close();
  OfferUntilTaken(1);
  reference_.latch().AwaitWaiting(1);
  const double sampled = Sampled();
  for (int i = 0; i < 100; ++i) Offer(1);
  EXPECT_EQ(Sampled(), sampled + 100);
  EXPECT_GE(Dropped("no_room"), 100 - static_cast<double>(Shadow::kMaxWaiting));
  reference_.latch().Open();
  AwaitCompared(Sampled() - Dropped("no_room"));
}

TEST_F(ShadowTest, GivesUpForABatchAndBeginsAnewLater) {
  Start(1);
  served_.latch().Close();
  OfferUntilTaken(1);
  served_.latch().AwaitWaiting(1);
  shadow_->BatchBegins();
  served_.latch().Open();
  // Long enough for several looks.
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(served_.sequences_run(), 0);
  OfferUntilTaken(2);
  shadow_->BatchEnds();
  AwaitCompared(2);
  EXPECT_EQ(served_.sequences_run(), 2);
  EXPECT_EQ(reference_.sequences_run(), 2);
}

TEST_F(ShadowTest, CountsWhatItCannotCompare) {
  Start(1);
  const std::vector<std::byte> large(Shadow::kMaxBytes + 4);
  const std::vector<int64_t> shape = {1, static_cast<int64_t>(large.size()) / 4};
  shadow_->Offer({.inputs_embeds = InputTensor{.shape = shape, .data = large}});
  EXPECT_EQ(Dropped("too_large"), 1);
  OfferUntilTaken(FakeEngine::kNonFinite);
  while (Dropped("failed") < 1) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(Compared(), 0);
}

TEST(OwnedSequenceTest, HasItsOwnCopyOfEveryPart) {
  std::vector<int32_t> numbers = {1, 2, 3};
  std::vector<uint8_t> bits = {1, 0, 1};
  std::vector<int64_t> shape = {3, 1};
  std::vector<float> vectors = {0.5f, 1.5f, 2.5f};
  const Sequence sequence = {
      .input_ids = numbers,
      .inputs_embeds = InputTensor{.shape = shape, .data = std::as_bytes(std::span(vectors))},
      .token_type_ids = numbers,
      .position_ids = numbers,
      .mask = {.keys = bits,
               .pairs = bits,
               .head_pairs = bits,
               .causal = true,
               .segment_ids = numbers,
               .keys_present = true}};
  const OwnedSequence owned(sequence);
  EXPECT_EQ(OwnedSequence::BytesOf(sequence), 4 * 12 + 3 * 3 + 12);
  numbers.assign(3, -1);
  bits.assign(3, 9);
  shape.assign(2, -1);
  vectors.assign(3, -1);
  const Sequence& copy = owned.sequence();
  for (const auto& ids :
       {copy.input_ids, copy.token_type_ids, copy.position_ids, copy.mask.segment_ids}) {
    EXPECT_THAT(std::vector<int32_t>(ids.begin(), ids.end()), ::testing::ElementsAre(1, 2, 3));
  }
  for (const auto& part : {copy.mask.keys, copy.mask.pairs, copy.mask.head_pairs}) {
    EXPECT_THAT(std::vector<uint8_t>(part.begin(), part.end()), ::testing::ElementsAre(1, 0, 1));
  }
  EXPECT_EQ(copy.tokens(), 3);
  EXPECT_EQ(std::memcmp(copy.inputs_embeds->data.data(), std::vector{0.5f, 1.5f, 2.5f}.data(), 12),
            0);
  EXPECT_TRUE(copy.mask.causal && copy.mask.keys_present && !copy.mask.pairs_present);
}

}  // namespace
}  // namespace encoderd
