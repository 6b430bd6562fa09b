// Goal:   every spec that is accepted runs, and gives what it says, also where no family has that
//         combination.
// Method: random specs and weights, written as custom models; the judge is the plain encoder of
//         reference_encoder.h.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/model_folder.h"
#include "engine/model/spec_json.h"
#include "engine/model/tensor_list.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/io/safetensors_writer.h"
#include "tests/engine/io/temp_folder.h"
#include "tests/engine/reference_encoder.h"

namespace encoderd {
namespace {

class SpecMaker {
 public:
  explicit SpecMaker(unsigned seed) : rng_(seed) {}

  EncoderSpec Make() {
    EncoderSpec spec;
    spec.family = "custom";
    spec.num_heads = Pick({1, 2, 3});
    spec.hidden_size = spec.num_heads * Pick({1, 3, 8, 17});
    spec.num_layers = Pick({1, 2, 3, 4});
    spec.score_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim()));
    spec.norm_eps = 1e-5;
    spec.activation = PickOf({Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
                              Activation::kSilu, Activation::kTanh});
    // Attention alone, or blocks with residuals.
    spec.residual = !Chance(6);
    spec.norm = PickOf({NormPlacement::kNone, NormPlacement::kPost, NormPlacement::kPre});
    spec.ffn_size = Chance(4) ? 0 : Pick({5, 24, 40});
    if (!spec.residual) {
      spec.norm = NormPlacement::kNone;
      spec.ffn_size = 0;
    }
    spec.qkv = PickOf({QkvLayout::kSeparate, QkvLayout::kFused, QkvLayout::kFusedByHead,
                       QkvLayout::kSharedByHeads});
    MakeInput(spec);
    MakeBlocks(spec);
    MakeHeads(spec);
    return spec;
  }

  int64_t Pick(std::vector<int64_t> choices) { return choices[rng_() % choices.size()]; }
  bool Chance(unsigned one_in) { return rng_() % one_in == 0; }
  std::mt19937& rng() { return rng_; }

 private:
  template <typename T>
  T PickOf(std::initializer_list<T> choices) {
    return choices.begin()[rng_() % choices.size()];
  }

  TensorNames Names(const std::string& name) {
    return {name + ".weight", Chance(4) ? "" : name + ".bias"};
  }

  Step Linear(const std::string& name, int64_t out) {
    return {.kind = Step::Kind::kLinear,
            .names = Names(name),
            .out = out,
            .activation = PickOf({Activation::kNone, Activation::kTanh})};
  }
  Step Norm(const std::string& name, int64_t width) {
    return {.kind = Step::Kind::kNorm,
            .names = Names(name),
            .out = width,
            .activation = PickOf({Activation::kNone, Activation::kRelu})};
  }

  void MakeInput(EncoderSpec& spec) {
    spec.input = PickOf({InputKind::kTokenIds, InputKind::kVectors});
    if (spec.input == InputKind::kTokenIds) {
      spec.vocab_size = 30;
      spec.word_embedding = {"words", ""};
      if (Chance(2)) spec.word_width = 10;
    } else {
      spec.input_dim = Chance(2) ? spec.hidden_size : 9;
    }
    if (Chance(3) || (spec.input == InputKind::kVectors && spec.input_dim != spec.hidden_size &&
                      spec.residual)) {
      spec.input_steps = {Linear("in.0", 11), Norm("in.1", 11), Linear("in.2", spec.hidden_size)};
    }
    if (spec.input == InputKind::kVectors && spec.input_steps.empty() &&
        spec.qkv == QkvLayout::kSharedByHeads) {
      spec.input_dim = spec.hidden_size;
    }
    spec.positions =
        PickOf({PositionKind::kNone, PositionKind::kLearned, PositionKind::kSinusoidal});
    if (spec.table_width() != spec.hidden_size && spec.word_width > 0) {
      spec.embedding_steps = {Linear("out.0", 12), Norm("out.1", 12),
                              Linear("out.2", spec.hidden_size)};
    }
    if (spec.head_dim() > 1 && Chance(2)) {
      spec.rotary_width = 2 * Pick({1, spec.head_dim() / 2});
      spec.rotary_base = 1000;
      spec.rotary_base_local = 50;
      spec.rotary_divisor = 1.5;
      if (Chance(3)) spec.rotary_frequencies = {"frequencies", ""};
    }
    if (spec.has_positions()) spec.max_positions = 300;
    if (spec.input == InputKind::kTokenIds && Chance(3)) {
      spec.token_dropout = true;
      spec.mask_token_id = 7;
    }
    if (spec.positions != PositionKind::kNone && spec.vocab_size > 0 && Chance(2)) {
      spec.position_padding_id = Pick({0, 1, 4});
    }
    if (spec.positions == PositionKind::kLearned) spec.position_embedding = {"positions", ""};
    if (Chance(2)) {
      spec.type_vocab_size = 3;
      spec.type_embedding = {"types", ""};
    }
    if (Chance(2)) spec.embedding_norm = Names("embedding_norm");
  }

  void MakeBlocks(EncoderSpec& spec) {
    if (spec.embedding_size() == spec.hidden_size && Chance(3)) {
      spec.layer_groups = spec.num_layers == 4 ? 2 : 1;
    }
    if (spec.qkv == QkvLayout::kSeparate || spec.qkv == QkvLayout::kSharedByHeads) {
      spec.query = Names("b.{layer}.q");
      spec.key = Names("b.{layer}.k");
      spec.value = Names("b.{layer}.v");
    } else {
      spec.fused_qkv = Names("b.{layer}.qkv");
    }
    spec.position_bias =
        PickOf({PositionBiasKind::kNone, PositionBiasKind::kBuckets, PositionBiasKind::kAlibi});
    if (spec.position_bias == PositionBiasKind::kBuckets) {
      spec.bias_buckets = 2 * Pick({2, 5, 16});
      spec.bias_max_distance = Pick({20, 128});
      spec.relative_bias = {"relative_bias", ""};
    }
    if (spec.qkv == QkvLayout::kSeparate && spec.embedding_size() == spec.hidden_size &&
        spec.rotary_width == 0 && Chance(2)) {
      MakeDisentangled(spec);
    }
    if (Chance(3)) {
      spec.local_window = Pick({1, 9, 64});
      spec.global_every = Pick({2, 3});
      spec.rotary_frequencies = {};  // local blocks have a base of their own
    }
    spec.attention_output = Names("b.{layer}.o");
    spec.first_norm1 = spec.norm != NormPlacement::kPre || spec.layer_groups > 0 || Chance(2);
    if (spec.norm != NormPlacement::kNone && (spec.first_norm1 || spec.num_layers > 1))
      spec.norm1 = Names("b.{layer}.norm1");
    if (spec.ffn_size > 0) {
      // A gate squares what it is given: without norms, rounding errors grow with it.
      if (spec.norm != NormPlacement::kNone || spec.num_layers == 1)
        spec.gate = PickOf({Gate::kNone, Gate::kFirst, Gate::kSecond, Gate::kSeparate});
      if (spec.gate == Gate::kSeparate) spec.ffn_gate = Names("b.{layer}.gate");
      spec.ffn_in = Names("b.{layer}.in");
      spec.ffn_out = Names("b.{layer}.out");
      if (spec.norm != NormPlacement::kNone) spec.norm2 = Names("b.{layer}.norm2");
    }
    if (Chance(2)) {
      spec.final_norm = Names("final_norm");
      spec.final_norm_in_hidden_states = Chance(2);
    }
  }

  void MakeDisentangled(EncoderSpec& spec) {
    spec.position_bias = PositionBiasKind::kDisentangled;
    spec.bias_buckets = 4 * Pick({0, 2, 16});
    spec.bias_max_distance = Pick({20, 128});
    spec.relative_bias = {};
    spec.relative_embedding = {"relative", ""};
    spec.score_scale /= std::sqrt(3.0);
    if (Chance(2)) spec.relative_embedding_norm = Names("relative_norm");
    spec.content_to_position = !Chance(4);
    spec.position_to_content = !spec.content_to_position || !Chance(4);
    if (spec.content_to_position && Chance(2)) spec.position_key = Names("b.{layer}.pk");
    if (spec.position_to_content && Chance(2)) spec.position_query = Names("b.{layer}.pq");
  }

  void MakeHeads(EncoderSpec& spec) {
    if (Chance(2)) spec.logits = {Linear("head.0", 13), Norm("head.1", 13), Linear("head.2", 7)};
    if (Chance(2)) spec.pooler = {Linear("pooler.0", 6), Norm("pooler.1", 6)};
    if (Chance(2)) {
      spec.contact = Names("contact");
      if (spec.vocab_size > 0 && Chance(2)) spec.contact_end_id = 2;
    }
  }

  std::mt19937 rng_;
};

void WriteModel(const EncoderSpec& spec, std::mt19937& rng, const TempFolder& folder) {
  std::normal_distribution<float> normal;
  std::vector<TestTensor> tensors;
  for (const ExpectedTensor& expected : ExpectedTensors(spec)) {
    const bool matrix = expected.shape.size() == 2;
    size_t count = 1;
    for (const int64_t axis : expected.shape) count *= static_cast<size_t>(axis);
    const float scale = matrix ? 1 / std::sqrt(static_cast<float>(expected.shape[1])) : 0.3f;
    std::vector<float> values(count);
    for (float& value : values) value = scale * normal(rng) + (matrix ? 0.0f : 0.5f);
    tensors.push_back(FloatTensor(expected.name, expected.shape, values));
  }
  folder.Write("config.json", SpecToJson(spec).dump());
  folder.Write("model.safetensors", Safetensors(tensors));
}

void ExpectNear(std::span<const float> got, std::span<const float> expected,
                const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    // Values grow without norms, so the tolerance is relative above 1; 3 blocks of sums of up to 50
    // products, norms of rows of small variance (gain up to 1/√eps = 300) in between.
    ASSERT_NEAR(got[i], expected[i], 3e-4 * std::max(1.0f, std::abs(expected[i])))
        << what << " element " << i;
  }
}

class SpecTest : public ::testing::TestWithParam<unsigned> {};

TEST_P(SpecTest, RunsAsItSays) {
  SpecMaker maker(GetParam());
  const EncoderSpec spec = maker.Make();
  SCOPED_TRACE(SpecToJson(spec).dump());
  const TempFolder folder;
  WriteModel(spec, maker.rng(), folder);
  const auto engine = LoadEngine(folder.path());
  const auto opened = OpenModelFolder(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();

  // Three sequences of one batch; the second has types, positions and a mask.
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> vectors;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int32_t> types(5), positions(5);
  Request request;
  for (const int64_t tokens : {int64_t{1}, int64_t{5}, maker.Pick({70, 130, 260})}) {
    Sequence sequence;
    if (spec.input == InputKind::kTokenIds) {
      auto& own = ids.emplace_back(static_cast<size_t>(tokens));
      for (int32_t& id : own) id = static_cast<int32_t>(maker.rng()() % 30);
      sequence.input_ids = own;
    } else {
      std::normal_distribution<float> normal;
      auto& own = vectors.emplace_back(static_cast<size_t>(tokens * spec.input_dim));
      for (float& value : own) value = normal(maker.rng());
      sequence.inputs_embeds =
          InputTensor{.shape = shapes.emplace_back(std::vector<int64_t>{tokens, spec.input_dim}),
                      .data = std::as_bytes(std::span(own))};
    }
    request.sequences.push_back(sequence);
  }
  const std::vector<uint8_t> keys = {1, 0, 1, 1, 0};
  request.sequences[1].mask = {.keys = keys, .causal = true};
  for (size_t i = 0; i < 5; ++i) {
    types[i] = static_cast<int32_t>(maker.rng()() % 3);
    positions[i] = static_cast<int32_t>(maker.rng()() % 300);
  }
  if (spec.type_vocab_size > 0) request.sequences[1].token_type_ids = types;
  if (spec.has_positions()) request.sequences[1].position_ids = positions;
  request.outputs.last_hidden_state = true;
  request.outputs.all_hidden_states = true;
  request.outputs.attentions = AttentionSpec();
  request.outputs.logits = !spec.logits.empty();
  request.outputs.contacts = spec.has_contacts();
  if (!spec.pooler.empty())
    request.outputs.pooled = {{.kind = Pooling::kPooler, .normalize = false}};
  const Answer answer = Ask(*engine, *NewWorker(*engine), request);

  size_t row = 0;
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    const auto expected = reference::RunEncoder(spec, opened->checkpoint, request.sequences[i]);
    const auto tokens = static_cast<size_t>(request.sequences[i].tokens());
    auto rows = [&](const AnswerTensor& tensor) {
      const auto width = static_cast<size_t>(tensor.shape.back());
      return Floats(tensor).subspan(row * width, tokens * width);
    };
    for (size_t layer = 0; layer < expected.hidden_states.size(); ++layer) {
      ExpectNear(rows(answer.hidden_states[layer]), expected.hidden_states[layer],
                 absl::StrCat("hidden state ", layer, " of ", i));
    }
    ExpectNear(rows(answer.last_hidden_state), expected.last_hidden_state,
               absl::StrCat("last of ", i));
    for (size_t layer = 0; layer < expected.maps.size(); ++layer) {
      const std::vector<float> map(expected.maps[layer].begin(), expected.maps[layer].end());
      ExpectNear(Floats(answer.attentions[i * expected.maps.size() + layer].tensor), map,
                 absl::StrCat("map ", layer, " of ", i));
    }
    if (!spec.logits.empty())
      ExpectNear(rows(answer.logits), expected.logits, absl::StrCat("logits of ", i));
    if (spec.has_contacts()) {
      ExpectNear(Floats(answer.contacts[i]), expected.contacts, absl::StrCat("contacts of ", i));
    }
    if (!spec.pooler.empty()) {
      ExpectNear(
          Floats(answer.pooled[0]).subspan(i * expected.pooler.size(), expected.pooler.size()),
          expected.pooler, absl::StrCat("pooler of ", i));
    }
    row += tokens;
  }
}

// Blocks that look 64 tokens to either side, of a token model without positions.
EncoderSpec LocalSpec() {
  const auto names = [](const std::string& name) {
    return TensorNames{"b.{layer}." + name + ".weight", "b.{layer}." + name + ".bias"};
  };
  return {.family = "custom",
          .vocab_size = 30,
          .word_embedding = {"words", ""},
          .num_layers = 3,
          .hidden_size = 24,
          .num_heads = 3,
          .ffn_size = 32,
          .score_scale = 0.35,
          .local_window = 64,
          .global_every = 3,
          .query = names("q"),
          .key = names("k"),
          .value = names("v"),
          .attention_output = names("o"),
          .norm1 = names("norm1"),
          .ffn_in = names("in"),
          .ffn_out = names("out"),
          .norm2 = names("norm2")};
}

class LocalBlocksTest : public ::testing::Test {
 protected:
  LocalBlocksTest() {
    WriteModel(LocalSpec(), rng_, folder_);
    engine_ = LoadEngine(folder_.path());
  }

  std::vector<int32_t> RandomIds(int64_t tokens) {
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    for (int32_t& id : ids) id = static_cast<int32_t>(rng_() % 30);
    return ids;
  }

  std::mt19937 rng_{3};
  const TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

// The lengths are those of a neighbour that ends at, before and behind the edges of windows, blocks
// and tiles.
TEST_F(LocalBlocksTest, GiveAShortSequenceTheSameBitsBesideAnyLongOne) {
  const std::vector<int32_t> few = RandomIds(10);
  const OutputSpec outputs = {.last_hidden_state = true};
  const auto worker = NewWorker(*engine_);
  const Answer alone =
      Ask(*engine_, *worker, {.sequences = {{.input_ids = few}}, .outputs = outputs});
  for (const int64_t tokens : {127, 128, 129, 255, 256, 257, 288}) {
    const std::vector<int32_t> many = RandomIds(tokens);
    const Answer both =
        Ask(*engine_, *worker,
            {.sequences = {{.input_ids = few}, {.input_ids = many}}, .outputs = outputs});
    const Answer other =
        Ask(*engine_, *worker, {.sequences = {{.input_ids = many}}, .outputs = outputs});
    const auto rows = Floats(both.last_hidden_state);
    EXPECT_TRUE(std::ranges::equal(rows.first(10 * 24), Floats(alone.last_hidden_state))) << tokens;
    EXPECT_TRUE(std::ranges::equal(rows.subspan(10 * 24), Floats(other.last_hidden_state)))
        << tokens;
    EXPECT_TRUE(std::ranges::all_of(rows, [](float x) { return std::isfinite(x); })) << tokens;
  }
}

// A text of 10 tokens and padding that its client hides: rows of the padding see nothing in local
// blocks.
TEST_F(LocalBlocksTest, GiveFiniteRowsWhereAWindowHoldsPaddingAlone) {
  const auto opened = OpenModelFolder(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (const int64_t tokens : {127, 128, 129, 255, 256, 257, 288}) {
    const std::vector<int32_t> ids = RandomIds(tokens);
    std::vector<uint8_t> keys(ids.size(), 0);
    std::fill_n(keys.begin(), 10, uint8_t{1});
    const Sequence sequence = {.input_ids = ids, .mask = {.keys = keys, .keys_present = true}};
    const Answer answer =
        Ask(*engine_, *NewWorker(*engine_),
            {.sequences = {sequence},
             .outputs = {.last_hidden_state = true, .attentions = AttentionSpec()}});
    const auto expected = reference::RunEncoder(LocalSpec(), opened->checkpoint, sequence);
    ExpectNear(Floats(answer.last_hidden_state), expected.last_hidden_state, "last hidden state");
    for (size_t layer = 0; layer < 3; ++layer) {
      const std::vector<float> map(expected.maps[layer].begin(), expected.maps[layer].end());
      ExpectNear(Floats(answer.attentions[layer].tensor), map, absl::StrCat("map ", layer));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SpecTest, ::testing::Range(0u, 120u));

}  // namespace
}  // namespace encoderd
