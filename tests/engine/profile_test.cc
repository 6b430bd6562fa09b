// Goal:   a profile holds every operation of a pass, each with the operations that its shape has.
// Method: a small BERT, whose numbers are counted by hand; a thread without a profile beside.
#include "engine/profile.h"

#include <gtest/gtest.h>

#include "tests/engine/ask.h"
#include "tests/engine/random_model.h"

namespace encoderd {
namespace {

TEST(ProfileTest, HasEveryOperationOfThePass) {
  const BertShape shape = {
      .layers = 3, .hidden = 64, .heads = 4, .ffn = 96, .vocab = 50, .positions = 40};
  const TempFolder folder;
  WriteRandomBert(shape, folder);
  const auto engine = LoadEngine(folder.path());
  const auto worker = NewWorker(*engine);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5}, more = {6, 7, 8};
  Request request = {.sequences = {{.input_ids = ids}, {.input_ids = more}}};
  request.outputs.last_hidden_state = true;

  Profile profile;
  {
    const ProfiledThread here(profile);
    Ask(*engine, *worker, request);
  }
  const auto expect = [&](OpKind kind, int64_t calls, double operations) {
    SCOPED_TRACE(kOpNames[static_cast<size_t>(kind)]);
    EXPECT_EQ(profile[kind].calls, calls);
    EXPECT_EQ(profile[kind].operations, operations);
    EXPECT_GT(profile[kind].seconds, 0);
  };
  expect(OpKind::kEmbedding, 1, 0);
  expect(OpKind::kQkv, 3, 3.0 * 2 * 8 * 64 * 192);
  expect(OpKind::kAttention, 6, 3.0 * 4 * (5 * 5 + 3 * 3) * 64);
  expect(OpKind::kAttentionOutput, 3, 3.0 * 2 * 8 * 64 * 64);
  expect(OpKind::kNorm, 6, 0);
  expect(OpKind::kFfnIn, 3, 3.0 * 2 * 8 * 64 * 96);
  expect(OpKind::kFfnOut, 3, 3.0 * 2 * 8 * 96 * 64);

  const Profile before = profile;
  Ask(*engine, *worker, request);
  EXPECT_EQ(profile[OpKind::kQkv].calls, before[OpKind::kQkv].calls) << "nobody asked";
}

}  // namespace
}  // namespace encoderd
