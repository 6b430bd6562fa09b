// Goal:   a model with windows and rotary positions takes its longest sequence in memory that grows
//         with the sequence and never with its square, and computes it right.
// Method: random ModernBERTs; what the engine says of its memory at doubled lengths; the plain
//         encoder for a sequence of many windows and tiles; an engine with helpers for the longest.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/model/model_folder.h"
#include "engine/ops/attention.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/random_model.h"
#include "tests/engine/reference_encoder.h"

namespace encoderd {
namespace {

constexpr int64_t kLongest = 8192;

// Two blocks see all tokens, two a window of the usual 64 tokens on either side.
nlohmann::json ModernBert(int64_t hidden, int64_t heads, int64_t ffn) {
  return {{"model_type", "modernbert"},
          {"vocab_size", 100},
          {"hidden_size", hidden},
          {"num_attention_heads", heads},
          {"intermediate_size", ffn},
          {"num_hidden_layers", 4},
          {"layer_types",
           {"full_attention", "sliding_attention", "sliding_attention", "full_attention"}},
          {"local_attention", 128},
          {"max_position_embeddings", kLongest}};
}

std::vector<int32_t> RandomIds(int64_t tokens) {
  std::mt19937 rng(5);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 100);
  return ids;
}

std::unique_ptr<Engine> Load(const TempFolder& folder, const EngineOptions& options) {
  EngineOptions here = options;
  here.model_dir = folder.path();
  auto engine = Engine::Load(here);
  CHECK(engine.ok()) << engine.status();
  return *std::move(engine);
}

TEST(LongSequenceTest, TakesScratchMemoryThatGrowsWithItsLengthAlone) {
  constexpr int64_t kHidden = 768, kHeads = 12;
  const TempFolder folder;
  WriteRandomModel(ModernBert(kHidden, kHeads, 1152), folder);
  const auto scratch_for = [&](int64_t tokens) {
    return Load(folder, {.max_sequence_tokens = tokens})->info().scratch_bytes_per_worker;
  };
  const int64_t half = scratch_for(kLongest / 2), whole = scratch_for(kLongest);
  EXPECT_LE(whole, 2 * half);
  // For each token: hidden rows, q, k and v in two generations; in attention one head of q, k and v,
  // the scores of a block of queries, and a few rows of biases.
  constexpr int64_t kFew = 16;
  const int64_t per_token =
      4 * (2 * 4 * kHidden + 3 * (kHidden / kHeads) + ops::Attention::kQueryBlock + kFew);
  EXPECT_LE(whole - half, kLongest / 2 * per_token);
}

// What a random model makes of one sequence, and what the plain encoder does.
class Comparison {
 public:
  Comparison(const nlohmann::json& config, int64_t tokens) : ids_(RandomIds(tokens)) {
    WriteRandomModel(config, folder_);
    auto opened = OpenModelFolder(folder_.path());
    CHECK(opened.ok()) << opened.status();
    opened_.emplace(*std::move(opened));
    const auto engine = Load(folder_, {});
    const Answer answer = Ask(*engine, *NewWorker(*engine),
                              {.sequences = {sequence()}, .outputs = {.last_hidden_state = true}});
    const auto rows = Floats(answer.last_hidden_state);
    rows_.assign(rows.begin(), rows.end());
  }

  const EncoderSpec& spec() const { return opened_->spec; }

  // The largest difference from what `spec` gives with the model's weights.
  double DistanceTo(const EncoderSpec& spec) const {
    const std::vector<float> expected =
        reference::RunEncoder(spec, opened_->checkpoint, sequence()).last_hidden_state;
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      worst = std::max<double>(worst, std::abs(rows_[i] - expected[i]));
    }
    return worst;
  }

 private:
  Sequence sequence() const { return {.input_ids = ids_}; }

  const TempFolder folder_;
  const std::vector<int32_t> ids_;
  std::optional<ModelFolder> opened_;
  std::vector<float> rows_;
};

constexpr double kTolerance = 2e-5;

TEST(LongSequenceTest, EqualsTheReferenceOverManyWindowsAndTiles) {
  // Three tiles, whose last ends within a block of queries.
  const Comparison comparison(ModernBert(48, 3, 64), 1111);
  EXPECT_LE(comparison.DistanceTo(comparison.spec()), kTolerance);
  // What a mistake would look like.
  EncoderSpec wrong = comparison.spec();
  wrong.local_window = 63;
  EXPECT_GE(comparison.DistanceTo(wrong), 10 * kTolerance);
  wrong = comparison.spec();
  wrong.rotary_base_local = 160000;
  EXPECT_GE(comparison.DistanceTo(wrong), 10 * kTolerance);
}

// A small model of one block of either kind: the plain encoder's time and memory do grow with the
// square.
TEST(LongSequenceTest, EqualsTheReferenceAtTheLongestLength) {
  nlohmann::json config = ModernBert(8, 1, 12);
  config.update(
      {{"num_hidden_layers", 2}, {"layer_types", {"full_attention", "sliding_attention"}}});
  const Comparison comparison(config, kLongest);
  EXPECT_LE(comparison.DistanceTo(comparison.spec()), kTolerance);
}

TEST(LongSequenceTest, OfTheLongestLengthHasTheSameBitsWithHelpersAndPositionsOfItsOwn) {
  const TempFolder folder;
  WriteRandomModel(ModernBert(48, 3, 64), folder);
  const std::vector<int32_t> ids = RandomIds(kLongest);
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.rbegin(), positions.rend(), 0);
  const Request request = {.sequences = {{.input_ids = ids, .position_ids = positions}},
                           .outputs = {.last_hidden_state = true}};
  const auto alone = Load(folder, {.workers = 1}), helped = Load(folder, {.workers = 2});
  const Answer a = Ask(*alone, *NewWorker(*alone), request);
  const Answer b = Ask(*helped, *NewWorker(*helped), request);
  EXPECT_TRUE(std::ranges::equal(Floats(a.last_hidden_state), Floats(b.last_hidden_state)));
  EXPECT_TRUE(
      std::ranges::all_of(Floats(a.last_hidden_state), [](float x) { return std::isfinite(x); }));
  // The positions count: in the usual order there are other rows.
  const Answer usual =
      Ask(*alone, *NewWorker(*alone),
          {.sequences = {{.input_ids = ids}}, .outputs = {.last_hidden_state = true}});
  EXPECT_FALSE(std::ranges::equal(Floats(a.last_hidden_state), Floats(usual.last_hidden_state)));
}

}  // namespace
}  // namespace encoderd
