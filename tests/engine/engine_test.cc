// Goal:   the answer for a sequence depends on that sequence and on nothing else; only what was
//         asked for is computed; bad weights are reported where they are.
// Method: a small BERT with the row widths of a real one, so that the real kernels run; bits
//         compared, not tolerances.
#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "absl/status/status_matchers.h"
#include "engine/io/file.h"
#include "engine/io/safetensors.h"
#include "engine/ops/row_buckets.h"
#include "engine/ops/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/model/tiny_models.h"
#include "tests/engine/random_model.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr BertShape kSmallBert = {
    .layers = 2, .hidden = 384, .heads = 12, .ffn = 1536, .vocab = 100, .positions = 128};

std::vector<std::byte> BytesOf(const AnswerTensor& tensor) {
  return {tensor.data.bytes().begin(), tensor.data.bytes().end()};
}

class EngineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    WriteRandomBert(kSmallBert, *folder_);
    engine_ = LoadEngine(folder_->path()).release();
  }
  static void TearDownTestSuite() {
    delete engine_;
    delete folder_;
  }

  // A sequence of random ids; its memory lives as long as the test.
  Sequence RandomSequence(int64_t tokens) {
    auto& ids = ids_.emplace_back(static_cast<size_t>(tokens));
    for (int32_t& id : ids) id = static_cast<int32_t>(rng_() % kSmallBert.vocab);
    return {.input_ids = ids};
  }

  int64_t RandomLength() { return 1 + static_cast<int64_t>(rng_() % 40); }

  static const TempFolder* folder_;
  static const Engine* engine_;
  std::mt19937 rng_{11};
  std::vector<std::vector<int32_t>> ids_;
};

const TempFolder* EngineTest::folder_ = nullptr;
const Engine* EngineTest::engine_ = nullptr;

OutputSpec HiddenAndPooled() {
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  outputs.pooled = {{}};
  return outputs;
}

// ---- Bits ---------------------------------------------------------------------------------------

// Runs `fixed` among random neighbours, some of which want maps, and compares its answer with
// `alone`.
void ExpectUnchangedAmongNeighbours(const Engine& engine, Worker& worker, const Sequence& fixed,
                                    const Answer& alone, std::mt19937 rng, int batches) {
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<std::unique_ptr<Prepared>> calls;
    const size_t neighbours = rng() % 12;
    const size_t place = rng() % (neighbours + 1);
    int64_t tokens = fixed.tokens();
    for (size_t i = 0; i <= neighbours; ++i) {
      Request request = {.sequences = {fixed}, .outputs = HiddenAndPooled()};
      if (i != place) {
        auto& neighbour = ids.emplace_back(1 + rng() % 40);
        for (int32_t& id : neighbour) id = static_cast<int32_t>(rng() % kSmallBert.vocab);
        request.sequences = {{.input_ids = neighbour}};
        tokens += static_cast<int64_t>(neighbour.size());
        if (rng() % 3 == 0) request.outputs.hidden_states = {static_cast<int32_t>(rng() % 3)};
      }
      if (rng() % 2 == 0) request.outputs.attentions = AttentionSpec();
      calls.push_back(std::make_unique<Prepared>(engine, request));
    }
    ASSERT_LE(tokens, engine.info().max_batch_tokens);
    std::vector<BatchItem> items;
    for (auto& call : calls) call->AppendItems(items);
    ASSERT_THAT(worker.Run(items, NeverAbandoned), IsOk());
    const Answer& got = calls[place]->answer;
    ASSERT_EQ(BytesOf(got.last_hidden_state), BytesOf(alone.last_hidden_state))
        << "batch " << batch;
    ASSERT_EQ(BytesOf(got.pooled[0]), BytesOf(alone.pooled[0])) << "batch " << batch;
  }
}

TEST_F(EngineTest, AnswerIsBitwiseTheSameAloneAndIn200RandomBatches) {
  for (const int64_t tokens : {1, 3, 37}) {
    const Sequence fixed = RandomSequence(tokens);
    const auto worker = NewWorker(*engine_);
    const Answer alone =
        Ask(*engine_, *worker, {.sequences = {fixed}, .outputs = HiddenAndPooled()});
    ExpectUnchangedAmongNeighbours(*engine_, *worker, fixed, alone, rng_, 200);
  }
}

// Workers share weights and primitives, and each runs them at the same time as the other.
TEST_F(EngineTest, AnswerIsBitwiseTheSameOnTwoWorkersAtOnce) {
  const Sequence fixed = RandomSequence(29);
  const Answer alone =
      Ask(*engine_, *NewWorker(*engine_), {.sequences = {fixed}, .outputs = HiddenAndPooled()});
  std::vector<std::thread> threads;
  for (unsigned seed : {1u, 2u}) {
    threads.emplace_back([&, seed] {
      const auto worker = NewWorker(*engine_);
      ExpectUnchangedAmongNeighbours(*engine_, *worker, fixed, alone, std::mt19937(seed), 200);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(EngineTest, AnswerDoesNotDependOnWhichOutputsAreAskedFor) {
  const Sequence fixed = RandomSequence(23);
  const auto worker = NewWorker(*engine_);
  OutputSpec everything = HiddenAndPooled();
  everything.all_hidden_states = true;
  everything.attentions = AttentionSpec();
  const Answer all = Ask(*engine_, *worker, {.sequences = {fixed}, .outputs = everything});
  const Answer last = Ask(*engine_, *worker, {.sequences = {fixed}, .outputs = HiddenAndPooled()});
  EXPECT_EQ(BytesOf(all.last_hidden_state), BytesOf(last.last_hidden_state));
  OutputSpec second_map;
  second_map.attentions = AttentionSpec{.layers = {1}};
  const Answer map = Ask(*engine_, *worker, {.sequences = {fixed}, .outputs = second_map});
  EXPECT_EQ(BytesOf(map.attentions[0].tensor), BytesOf(all.attentions[1].tensor));
}

// One batch with every kind of mask: each sequence follows its own, has its whole length, and is
// what it is alone.
TEST_F(EngineTest, EachSequenceOfABatchFollowsItsOwnMask) {
  constexpr size_t kTokens = 6;
  const std::vector<uint8_t> ones(kTokens, 1), first_only = {1, 0, 0, 0, 0, 0};
  std::vector<uint8_t> not_four_to_zero(kTokens * kTokens, 1),
      row_one_sees_nothing(kTokens * kTokens, 1);
  not_four_to_zero[4 * kTokens] = 0;
  std::fill_n(row_one_sees_nothing.begin() + kTokens, kTokens, uint8_t{0});
  const Sequence plain = RandomSequence(kTokens);
  std::vector<Sequence> sequences(6, plain);
  sequences[1].mask.keys = ones;
  sequences[2].mask.keys = first_only;
  sequences[3].mask.pairs = not_four_to_zero;
  sequences[4].mask.pairs = row_one_sees_nothing;
  sequences[5].mask.causal = true;
  OutputSpec outputs = HiddenAndPooled();
  outputs.attentions = AttentionSpec{.layers = {0}};

  const auto worker = NewWorker(*engine_);
  const Answer batch = Ask(*engine_, *worker, {.sequences = sequences, .outputs = outputs});
  ASSERT_THAT(batch.last_hidden_state.shape, ::testing::ElementsAre(6 * kTokens, 384));
  const std::vector<std::byte> hidden = BytesOf(batch.last_hidden_state);
  const size_t bytes = hidden.size() / sequences.size();
  auto rows = [&](size_t i) { return std::span(hidden).subspan(i * bytes, bytes); };
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Answer alone = Ask(*engine_, *worker, {.sequences = {sequences[i]}, .outputs = outputs});
    EXPECT_TRUE(std::ranges::equal(rows(i), BytesOf(alone.last_hidden_state))) << i;
    EXPECT_EQ(BytesOf(batch.attentions[i].tensor), BytesOf(alone.attentions[0].tensor)) << i;
  }
  EXPECT_TRUE(std::ranges::equal(rows(0), rows(1))) << "all ones is no mask";
  for (size_t i = 2; i < sequences.size(); ++i) {
    EXPECT_FALSE(std::ranges::equal(rows(0), rows(i))) << "mask " << i << " changes nothing";
  }
  // Hiding token 0 from token 4 leaves every other row of the first block's maps as it was.
  const auto unmasked = Floats(batch.attentions[0].tensor),
             masked = Floats(batch.attentions[3].tensor);
  for (size_t row = 0; row < 12 * kTokens; ++row) {
    const bool same = std::ranges::equal(unmasked.subspan(row * kTokens, kTokens),
                                         masked.subspan(row * kTokens, kTokens));
    EXPECT_EQ(same, row % kTokens != 4) << row;
    if (row % kTokens == 4) {
      EXPECT_EQ(masked[row * kTokens], 0.0f);
    }
  }
}

// The middle batch must leave nothing behind in the buffers that the others use.
TEST_F(EngineTest, SmallerBatchInBetweenLeavesNothingBehind) {
  const auto worker = NewWorker(*engine_);
  std::vector<Sequence> ten;
  for (int i = 0; i < 10; ++i) ten.push_back(RandomSequence(12));
  auto run_ten = [&] {
    return BytesOf(
        Ask(*engine_, *worker, {.sequences = ten, .outputs = HiddenAndPooled()}).last_hidden_state);
  };
  const std::vector<std::byte> first = run_ten();
  Ask(*engine_, *worker,
      {.sequences = {RandomSequence(3), RandomSequence(5)}, .outputs = HiddenAndPooled()});
  EXPECT_EQ(run_ten(), first);
  Ask(*engine_, *worker, {.sequences = {RandomSequence(128)}, .outputs = HiddenAndPooled()});
  EXPECT_EQ(run_ten(), first);
}

TEST_F(EngineTest, AbsentTypesAreBitwiseZeros) {
  const Sequence absent = RandomSequence(9);
  Sequence zeros = absent, ones = absent;
  const std::vector<int32_t> zero(9, 0), one(9, 1);
  zeros.token_type_ids = zero;
  ones.token_type_ids = one;
  const auto worker = NewWorker(*engine_);
  const Answer answer =
      Ask(*engine_, *worker, {.sequences = {absent, zeros, ones}, .outputs = HiddenAndPooled()});
  const std::vector<std::byte> bytes = BytesOf(answer.pooled[0]);
  const size_t row = bytes.size() / 3;
  EXPECT_EQ(std::memcmp(bytes.data(), bytes.data() + row, row), 0);
  EXPECT_NE(std::memcmp(bytes.data(), bytes.data() + 2 * row, row), 0);
}

TEST_F(EngineTest, TwoLoadsGiveTheSameBitsAndTheSameNumericsId) {
  const auto second = LoadEngine(folder_->path());
  const Request request = {.sequences = {RandomSequence(17)}, .outputs = HiddenAndPooled()};
  EXPECT_EQ(BytesOf(Ask(*engine_, *NewWorker(*engine_), request).last_hidden_state),
            BytesOf(Ask(*second, *NewWorker(*second), request).last_hidden_state));
  EXPECT_EQ(engine_->info().numerics_id, second->info().numerics_id);
}

// The file is copied at load: nothing that happens to it afterwards matters.
TEST_F(EngineTest, WeightsFileMayBeTruncatedAndOverwrittenWhileServing) {
  const TempFolder folder;
  WriteRandomBert(kSmallBert, folder);
  const auto engine = LoadEngine(folder.path());
  const auto worker = NewWorker(*engine);
  const Request request = {.sequences = {RandomSequence(17)}, .outputs = HiddenAndPooled()};
  const std::vector<std::byte> before = BytesOf(Ask(*engine, *worker, request).last_hidden_state);
  folder.Write("model.safetensors", "");
  EXPECT_EQ(BytesOf(Ask(*engine, *worker, request).last_hidden_state), before);
  folder.Write("model.safetensors", std::string(1 << 20, 'x'));
  EXPECT_EQ(BytesOf(Ask(*engine, *worker, request).last_hidden_state), before);
}

// ---- Pooling ------------------------------------------------------------------------------------

TEST_F(EngineTest, PoolsWithoutNeighboursOrHiddenTokens) {
  Sequence sequence = RandomSequence(4);
  const std::vector<uint8_t> keys = {1, 1, 0, 1};
  sequence.mask.keys = keys;
  sequence.spans = {{0, 4}, {1, 3}, {3, 4}};
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  outputs.pooled = {{.kind = Pooling::kMean, .normalize = false},
                    {.kind = Pooling::kMax, .normalize = false, .dimensions = 5},
                    {.kind = Pooling::kCls, .normalize = true}};
  const auto worker = NewWorker(*engine_);
  const Answer answer =
      Ask(*engine_, *worker, {.sequences = {RandomSequence(128), sequence}, .outputs = outputs});
  const auto hidden = Floats(answer.last_hidden_state).subspan(128 * 384);
  auto h = [&](size_t row, size_t i) { return hidden[row * 384 + i]; };
  // Row 0 belongs to the neighbour; rows 1–3 are the spans.
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_FLOAT_EQ(Floats(answer.pooled[0])[1 * 384 + i], (h(0, i) + h(1, i) + h(3, i)) / 3);
    EXPECT_EQ(Floats(answer.pooled[0])[2 * 384 + i], h(1, i));
    EXPECT_EQ(Floats(answer.pooled[0])[3 * 384 + i], h(3, i));
    EXPECT_EQ(Floats(answer.pooled[1])[1 * 5 + i], std::max({h(0, i), h(1, i), h(3, i)}));
  }
  EXPECT_THAT(answer.pooled[1].shape, ::testing::ElementsAre(4, 5));
  double norm = 0;
  for (size_t i = 0; i < 384; ++i) norm += std::pow(Floats(answer.pooled[2])[1 * 384 + i], 2);
  EXPECT_NEAR(norm, 1, 1e-6);
}

// ---- Only what was asked for --------------------------------------------------------------------

// Work of one batch, as counted by the operations.
ops::OpCounts CountsOf(const Engine& engine, Worker& worker, const Request& request) {
  const ops::OpCounts before = ops::ThreadOpCounts();
  Ask(engine, worker, request);
  const ops::OpCounts after = ops::ThreadOpCounts();
  return {.executes = after.executes - before.executes,
          .ukernels = after.ukernels - before.ukernels,
          .creations = after.creations - before.creations,
          .packings = after.packings - before.packings};
}

class EngineCountsTest : public EngineTest, public ::testing::WithParamInterface<Precision> {};

TEST_P(EngineCountsTest, BatchRunsAsManyOperationsAsTheDesignHasAndCreatesNone) {
  const absl::Status runs = ops::RequirePrecision(GetParam());
  if (!runs.ok()) GTEST_SKIP() << runs;
  const auto engine = LoadEngine(folder_->path(), GetParam());
  const auto worker = NewWorker(*engine);
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  const ops::OpCounts counts =
      CountsOf(*engine, *worker,
               {.sequences = {RandomSequence(64), RandomSequence(64)}, .outputs = outputs});
  // The embedding norm, then q·k·v, attention output, norm, FFN in and out, norm per block.
  EXPECT_EQ(counts.executes, 1 + 2 * 6);
  // Per head of a sequence: a query block times a key block, scores and context.
  const bool tiles = engine->info().isa == "amx" && GetParam() != Precision::kFp32;
  const int64_t attention = 2 * 2 * 12 * 2;
  // Panels of 64 columns: q·k·v, attention output, FFN in and out. By kernels of our own each is one
  // sum for all rows, by oneDNN's one for each 64. The last one's depth of 1536 is cut in two in fp32.
  const bool fp32 = GetParam() == Precision::kFp32;
  const int64_t products = 2 * (fp32 || tiles ? 1 : 2) * (18 + 6 + 24 + (fp32 ? 2 : 1) * 6);
  EXPECT_EQ(counts.ukernels, attention + products);
  EXPECT_EQ(counts.creations, 0);
  EXPECT_EQ(counts.packings, 0);
}

INSTANTIATE_TEST_SUITE_P(Precisions, EngineCountsTest, ::testing::ValuesIn(kPrecisions),
                         [](const auto& instance) {
                           return std::string(PrecisionName(instance.param));
                         });

// So memory does not grow with the number of shapes, and no call waits for a kernel to be built.
TEST_F(EngineTest, ShapesThatNeverRepeatCreateNothing) {
  const auto worker = NewWorker(*engine_);
  std::uniform_int_distribution<int64_t> sequences(1, 32);
  for (int call = 0; call < 40; ++call) {
    Request request = {.outputs = HiddenAndPooled()};
    // Together as many tokens as a batch has, at the most.
    const int64_t count = sequences(rng_);
    const int64_t longest =
        std::min(kSmallBert.positions, engine_->info().max_batch_tokens / count);
    for (int64_t i = 0; i < count; ++i) {
      request.sequences.push_back(RandomSequence(1 + static_cast<int64_t>(rng_()) % longest));
    }
    const ops::OpCounts counts = CountsOf(*engine_, *worker, request);
    ASSERT_EQ(counts.creations, 0) << "call " << call;
    ASSERT_EQ(counts.packings, 0) << "call " << call;
    ids_.clear();
  }
}

TEST_F(EngineTest, BlocksAboveTheHighestOneAskedForAreNotRun) {
  const auto worker = NewWorker(*engine_);
  auto executes = [&](const OutputSpec& outputs) {
    return CountsOf(*engine_, *worker, {.sequences = {RandomSequence(16)}, .outputs = outputs})
        .executes;
  };
  OutputSpec embeddings, first, first_map;
  embeddings.hidden_states = {0};
  first.hidden_states = {1};
  first_map.attentions = AttentionSpec{.layers = {0}};
  EXPECT_EQ(executes(embeddings), 1);
  EXPECT_EQ(executes(first), 1 + 6);
  EXPECT_EQ(executes(first_map), 1 + 1)
      << "a map needs the projection of its block and nothing behind it";
}

// ---- Stopping -----------------------------------------------------------------------------------

TEST_F(EngineTest, AsksOncePerBlockWhetherTheBatchIsAbandoned) {
  const auto worker = NewWorker(*engine_);
  auto questions = [&](const OutputSpec& outputs) {
    Prepared call(*engine_, {.sequences = {RandomSequence(9)}, .outputs = outputs});
    std::vector<BatchItem> items;
    call.AppendItems(items);
    int asked = 0;
    EXPECT_THAT(worker->Run(items, [&] { return ++asked == 0; }), IsOk());
    return asked;
  };
  OutputSpec embeddings, first_map;
  embeddings.hidden_states = {0};
  first_map.attentions = AttentionSpec{.layers = {0}};
  EXPECT_EQ(questions(HiddenAndPooled()), kSmallBert.layers);
  EXPECT_EQ(questions(first_map), 1);
  EXPECT_EQ(questions(embeddings), 0);
}

TEST_F(EngineTest, AbandonedBatchStopsAtTheNextBlockAndLeavesTheWorkerAsItWas) {
  const auto worker = NewWorker(*engine_);
  const Request request = {.sequences = {RandomSequence(31)}, .outputs = HiddenAndPooled()};
  const std::vector<std::byte> before = BytesOf(Ask(*engine_, *worker, request).last_hidden_state);
  Prepared call(*engine_, {.sequences = {RandomSequence(128)}, .outputs = HiddenAndPooled()});
  std::vector<BatchItem> items;
  call.AppendItems(items);
  const int64_t executes = ops::ThreadOpCounts().executes;
  int asked = 0;
  EXPECT_THAT(worker->Run(items, [&] { return ++asked == 2; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("before block 1 of 2")));
  EXPECT_EQ(asked, 2);
  // The embedding norm, the first block, and the projection that the second one would start with.
  EXPECT_EQ(ops::ThreadOpCounts().executes - executes, 1 + 6 + 1);
  EXPECT_EQ(BytesOf(Ask(*engine_, *worker, request).last_hidden_state), before);
}

// ---- Bad numbers --------------------------------------------------------------------------------

// A row of the word table that is NaN reaches the sequences that use its token and no other: at
// widths of whole vectors, and at those that leave a tail, where kernels read beyond a row's end.
TEST(EngineNumbersTest, NonFiniteResultFailsItsOwnSequenceAlone) {
  for (const BertShape& shape :
       {kSmallBert,
        BertShape{.layers = 2, .hidden = 40, .heads = 5, .ffn = 72, .vocab = 100, .positions = 128},
        BertShape{
            .layers = 2, .hidden = 72, .heads = 1, .ffn = 40, .vocab = 100, .positions = 128}}) {
    SCOPED_TRACE(shape.hidden);
    const TempFolder folder;
    WriteRandomBert(shape, folder);
    // The whole row of token 5.
    auto file = SafetensorsFile::Open(folder.Path("model.safetensors"));
    ASSERT_THAT(file, IsOk());
    const TensorEntry* words = file->Find("embeddings.word_embeddings.weight");
    ASSERT_NE(words, nullptr);
    auto text = ReadTextFile(folder.Path("model.safetensors"), uint64_t{1} << 30);
    ASSERT_THAT(text, IsOk());
    const auto width = static_cast<size_t>(shape.hidden);
    const std::vector<float> nans(width, NAN);
    std::memcpy(text->data() + words->begin + 5 * width * 4, nans.data(), width * 4);
    folder.Write("model.safetensors", *text);

    const auto engine = LoadEngine(folder.path());
    const auto worker = NewWorker(*engine);
    const std::vector<int32_t> bad = {3, 5, 9}, clean = {3, 6, 9}, before = {7},
                               after = {1, 2, 3, 4};
    auto run = [&](const std::vector<int32_t>& middle, const OutputSpec& outputs) {
      Prepared a(*engine, {.sequences = {{.input_ids = before}}, .outputs = HiddenAndPooled()});
      Prepared b(*engine, {.sequences = {{.input_ids = middle}}, .outputs = outputs});
      Prepared c(*engine, {.sequences = {{.input_ids = after}}, .outputs = HiddenAndPooled()});
      std::vector<BatchItem> items;
      for (Prepared* call : {&a, &b, &c}) call->AppendItems(items);
      EXPECT_THAT(worker->Run(items, NeverAbandoned), IsOk());
      EXPECT_THAT(items[0].status, IsOk());
      EXPECT_THAT(items[2].status, IsOk());
      return std::tuple(items[1].status, BytesOf(a.answer.last_hidden_state),
                        BytesOf(c.answer.last_hidden_state), BytesOf(c.answer.pooled[0]));
    };
    OutputSpec map;
    map.attentions = AttentionSpec();
    for (const OutputSpec& outputs : {HiddenAndPooled(), map}) {
      const auto beside_bad = run(bad, outputs);
      const auto beside_clean = run(clean, outputs);
      EXPECT_THAT(std::get<0>(beside_bad),
                  StatusIs(absl::StatusCode::kInternal, HasSubstr("not finite")));
      EXPECT_THAT(std::get<0>(beside_clean), IsOk());
      EXPECT_EQ(std::get<1>(beside_bad), std::get<1>(beside_clean));
      EXPECT_EQ(std::get<2>(beside_bad), std::get<2>(beside_clean));
      EXPECT_EQ(std::get<3>(beside_bad), std::get<3>(beside_clean));
    }
  }
}

// Overwrites an element of a tensor in the folder's file.
void Put(const TempFolder& folder, const char* name, uint64_t element, float value) {
  const auto file = SafetensorsFile::Open(folder.Path("model.safetensors"));
  ASSERT_THAT(file, IsOk());
  auto text = ReadTextFile(folder.Path("model.safetensors"), uint64_t{1} << 30);
  ASSERT_THAT(text, IsOk());
  const TensorEntry* entry = file->Find(name);
  ASSERT_NE(entry, nullptr) << name;
  std::memcpy(text->data() + entry->begin + element * 4, &value, 4);
  folder.Write("model.safetensors", *text);
}

// ReLU would turn the NaN that such a weight makes into a plausible number.
TEST(EngineNumbersTest, NonFiniteWeightsAreRefusedByNameAllTogether) {
  const TempFolder folder;
  WriteRandomBert(kSmallBert, folder);
  Put(folder, "encoder.layer.1.intermediate.dense.weight", 7, INFINITY);
  Put(folder, "encoder.layer.1.intermediate.dense.weight", 9, NAN);
  Put(folder, "encoder.layer.0.attention.self.key.bias", 3, -INFINITY);
  Put(folder, "embeddings.LayerNorm.weight", 0, NAN);
  EXPECT_THAT(
      Engine::Load({.model_dir = folder.path()}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(folder.Path("model.safetensors") + ": 3 faults:"),
                     HasSubstr("\"embeddings.LayerNorm.weight\": element 0 is nan, the first of 1"),
                     HasSubstr("key.bias\": element 3 is -inf, the first of 1"),
                     HasSubstr("\"encoder.layer.1.intermediate.dense.weight\": element 7 is inf, "
                               "the first of 2"))));
}

TEST(EngineNumbersTest, NonFiniteWeightsThatAreAllowedFailWhatTheyReach) {
  const TempFolder folder;
  WriteRandomBert(kSmallBert, folder);
  Put(folder, "encoder.layer.1.output.dense.weight", 7, NAN);
  const auto engine = Engine::Load({.model_dir = folder.path(), .allow_nonfinite_weights = true});
  ASSERT_THAT(engine, IsOk());
  EXPECT_THAT((*engine)->info().tensors_nonfinite,
              ElementsAre(HasSubstr("\"encoder.layer.1.output.dense.weight\": element 7 is nan")));
  const auto worker = NewWorker(**engine);
  const std::vector<int32_t> ids = {3, 6, 9};
  OutputSpec below, behind;
  below.hidden_states = {1};
  behind.last_hidden_state = true;
  Prepared finite(**engine, {.sequences = {{.input_ids = ids}}, .outputs = below});
  Prepared reached(**engine, {.sequences = {{.input_ids = ids}}, .outputs = behind});
  std::vector<BatchItem> items;
  for (Prepared* call : {&finite, &reached}) call->AppendItems(items);
  EXPECT_THAT(worker->Run(items, NeverAbandoned), IsOk());
  EXPECT_THAT(items[0].status, IsOk());
  EXPECT_THAT(items[1].status, StatusIs(absl::StatusCode::kInternal, HasSubstr("not finite")));
}

TEST(EngineNumbersTest, ANonFiniteWeightThatIsReadTwiceIsToldOnce) {
  nlohmann::json config = TinyDebertaV2();
  config["share_att_key"] = false;  // the table's products are made of matrices of their own
  const TempFolder folder;
  WriteRandomModel(config, folder);
  Put(folder, "encoder.layer.0.attention.self.value_proj.weight", 5, NAN);
  EXPECT_THAT(Engine::Load({.model_dir = folder.path()}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("value_proj.weight\": element 5 is nan"),
                             Not(HasSubstr("faults")))));
}

TEST_F(EngineTest, NarrowTypesAreTheRoundedFp32) {
  const Sequence sequence = RandomSequence(6);
  const auto worker = NewWorker(*engine_);
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  const Answer wide = Ask(*engine_, *worker, {.sequences = {sequence}, .outputs = outputs});
  for (const auto& [type, relative] :
       {std::pair(DataType::kBf16, 0x1p-8), std::pair(DataType::kFp16, 0x1p-10)}) {
    outputs.dtype = type;
    const Answer narrow = Ask(*engine_, *worker, {.sequences = {sequence}, .outputs = outputs});
    std::vector<float> values(6 * 384);
    ASSERT_EQ(narrow.last_hidden_state.data.size(), values.size() * 2);
    WidenToFp32(type, narrow.last_hidden_state.data.bytes(), values);
    for (size_t i = 0; i < values.size(); ++i) {
      const float exact = Floats(wide.last_hidden_state)[i];
      ASSERT_NEAR(values[i], exact, relative * std::abs(exact) + 1e-7);
    }
  }
}

TEST(EngineLoadTest, RefusesALimitAboveTheModelsPositions) {
  const TempFolder folder;
  WriteRandomBert(kSmallBert, folder);
  EXPECT_THAT(Engine::Load({.model_dir = folder.path(), .max_sequence_tokens = 129}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("128 positions")));
}

TEST(EngineLoadTest, RefusesLessThanOneWorkerOrTokenABatch) {
  const TempFolder folder;
  WriteRandomBert(kSmallBert, folder);
  EXPECT_THAT(Engine::Load({.model_dir = folder.path(), .workers = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("workers: expected at least 1, got 0")));
  EXPECT_THAT(Engine::Load({.model_dir = folder.path(), .max_batch_tokens = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_batch_tokens: expected at least 1, got -1")));
}

// Threads are refused as under a limit on them: no stack can be had for one.
TEST(EngineLoadTest, ThreadsThatCannotBeHadAreAnError) {
  const TempFolder folder;
  WriteRandomBert(kSmallBert, folder);
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const auto engine = Engine::Load({.model_dir = folder.path(), .workers = 3});
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_THAT(engine, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("expected to start 2 threads beside 3 workers, got 0")));
}

TEST(EngineLoadTest, StrictRefusesTensorsThatAreNotUsed) {
  const TempFolder folder;
  WriteRandomBert(kSmallBert, folder);
  auto text = ReadTextFile(folder.Path("model.safetensors"), uint64_t{1} << 30);
  ASSERT_THAT(text, IsOk());
  // An extra tensor of no bytes, in front of all others in the header.
  uint64_t length = 0;
  std::memcpy(&length, text->data(), 8);
  const std::string extra = R"("stray.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)";
  text->insert(9, extra);
  length += extra.size();
  std::memcpy(text->data(), &length, 8);
  folder.Write("model.safetensors", *text);
  const auto lenient = LoadEngine(folder.path());
  EXPECT_THAT(lenient->info().tensors_unused, ::testing::ElementsAre("stray.weight"));
  EXPECT_THAT(Engine::Load({.model_dir = folder.path(), .strict = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stray.weight")));
}

}  // namespace
}  // namespace encoderd
