// Goal:   every model gives what PyTorch gives: each hidden state, attention map, logit, contact and
//         pooled vector, with every mask part.
// Method: the goldens of tests/goldens, all sequences of a case in one batch.
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/model_folder.h"
#include "engine/model/spec_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/golden.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd {
namespace {

// The goldens are float64 rounded once; float32 PyTorch itself is up to 7·10⁻⁶ away from them
// (cases.json: float32_error). Wrong maths moves them by 10⁻⁴ and more (mutations.md).
constexpr double kTolerance = 1e-5;

// Everything that the model can give.
OutputSpec AllOutputs(const EncoderSpec& spec) {
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  outputs.all_hidden_states = true;
  outputs.attentions = AttentionSpec();
  outputs.pooled = {PoolingSpec(),
                    {.kind = Pooling::kCls, .normalize = false},
                    {.kind = Pooling::kMean, .normalize = false},
                    {.kind = Pooling::kMax, .normalize = false}};
  if (!spec.pooler.empty())
    outputs.pooled.push_back({.kind = Pooling::kPooler, .normalize = false});
  outputs.logits = spec.has_logits();
  outputs.contacts = spec.has_contacts();
  return outputs;
}

// The worst difference of an answer to a golden, and where it is.
class Comparison {
 public:
  void Compare(std::span<const float> got, const GoldenTensor& expected, const std::string& where) {
    ASSERT_EQ(got.size(), expected.values.size()) << where;
    for (size_t i = 0; i < got.size(); ++i) {
      double difference = std::abs(static_cast<double>(got[i]) - expected.values[i]);
      if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
      if (difference <= worst_) continue;
      worst_ = difference;
      where_ =
          absl::StrCat(where, " element ", i, ": expected ", expected.values[i], ", got ", got[i]);
    }
    ++compared_;
  }

  double worst() const { return worst_; }
  const std::string& where() const { return where_; }
  size_t compared() const { return compared_; }

 private:
  double worst_ = 0;
  std::string where_ = "nowhere";
  size_t compared_ = 0;
};

void CompareCase(const Golden& golden, const GoldenCase& golden_case, const Engine& engine,
                 const Answer& answer, Comparison& comparison) {
  const EncoderSpec& spec = engine.spec();
  const auto& sequences = golden_case.request.sequences;
  int64_t row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t tokens = sequences[i].tokens();
    auto compare = [&](const std::string& output, std::span<const float> all, int64_t width,
                       int64_t first, int64_t rows) {
      const GoldenTensor* expected = golden.Find(golden_case, i, output);
      if (expected == nullptr) return;
      comparison.Compare(
          all.subspan(static_cast<size_t>(first * width), static_cast<size_t>(rows * width)),
          *expected, absl::StrCat(golden_case.name, "/", i, "/", output));
    };
    for (int64_t layer = 0; layer <= spec.num_layers; ++layer) {
      compare(absl::StrCat("hidden_states/", layer),
              Floats(answer.hidden_states[static_cast<size_t>(layer)]), spec.hidden_width(layer),
              row, tokens);
    }
    compare("last_hidden_state", Floats(answer.last_hidden_state), spec.hidden_size, row, tokens);
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
      const auto index = i * static_cast<size_t>(spec.num_layers) + static_cast<size_t>(layer);
      compare(absl::StrCat("attentions/", layer), Floats(answer.attentions[index].tensor),
              tokens * tokens, 0, spec.num_heads);
    }
    if (!spec.logits.empty()) {
      compare("logits", Floats(answer.logits), spec.logits_width(), row, tokens);
    } else if (!spec.classifier.empty()) {
      compare("logits", Floats(answer.logits), spec.logits_width(), static_cast<int64_t>(i), 1);
    }
    if (spec.has_contacts()) {
      const int64_t inner = ContactTokens(tokens);
      compare("contacts", Floats(answer.contacts[i]), inner, 0, inner);
    }
    constexpr const char* kPooled[] = {"default", "cls", "mean", "max", "pooler"};
    for (size_t p = 0; p < answer.pooled.size(); ++p) {
      compare(absl::StrCat("pooled/", kPooled[p]), Floats(answer.pooled[p]),
              answer.pooled[p].shape.back(), static_cast<int64_t>(i), 1);
    }
    row += tokens;
  }
}

// Runs all cases of the golden through the model in `folder`; `change` may alter each request
// before it is sent.
template <typename F>
Comparison CompareModel(const Golden& golden, const std::string& folder, F&& change) {
  const std::unique_ptr<Engine> engine = LoadEngine(folder);
  const std::unique_ptr<Worker> worker = NewWorker(*engine);
  Comparison comparison;
  for (const auto& golden_case : golden.cases) {
    Request request = golden_case->request;
    request.outputs = AllOutputs(engine->spec());
    change(request);
    CompareCase(golden, *golden_case, *engine, Ask(*engine, *worker, request), comparison);
  }
  return comparison;
}

Comparison CompareModel(const Golden& golden, const std::string& folder) {
  return CompareModel(golden, folder, [](Request&) {});
}

// A folder that serves `spec`, written out as a custom model, with the golden's weights.
void WriteCustomModel(const Golden& golden, const EncoderSpec& spec, const TempFolder& folder) {
  folder.Write("config.json", SpecToJson(spec).dump());
  std::filesystem::copy_file(golden.folder + "/model/model.safetensors",
                             folder.Path("model.safetensors"));
}

EncoderSpec SpecOf(const Golden& golden) {
  auto folder = OpenModelFolder(golden.folder + "/model");
  CHECK(folder.ok()) << folder.status();
  return folder->spec;
}

class ParityTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ParityTest, EqualsPyTorchHoweverTheModelIsSaved) {
  const Golden golden = ReadGolden(GetParam());
  for (const std::string& model : golden.models) {
    const Comparison comparison = CompareModel(golden, golden.folder + "/" + model);
    EXPECT_LE(comparison.worst(), kTolerance) << model << ": " << comparison.where();
    RecordProperty(absl::StrCat("largest_error_of_", model), absl::StrCat(comparison.worst()));
    EXPECT_EQ(comparison.compared(),
              golden.tensors.size() -
                  static_cast<size_t>(std::count_if(
                      golden.tensors.begin(), golden.tensors.end(),
                      [](const auto& tensor) { return tensor.first.ends_with("inputs_embeds"); })))
        << "not every golden tensor was compared";
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, ParityTest, ::testing::ValuesIn(GoldenNames()),
                         [](const auto& instance) { return instance.param; });

// ---- The test of the test: deliberate mistakes must not pass ------------------------------------

// How far the golden is from a model whose spec has been changed.
double DistanceFrom(const Golden& golden, const std::function<void(EncoderSpec&)>& mutate) {
  EncoderSpec spec = SpecOf(golden);
  mutate(spec);
  const TempFolder folder;
  WriteCustomModel(golden, spec, folder);
  return CompareModel(golden, folder.path()).worst();
}

class MutationTest : public ::testing::TestWithParam<std::string> {
 protected:
  double Mistake(const std::function<void(EncoderSpec&)>& mutate) {
    return DistanceFrom(golden_, mutate);
  }

  const Golden golden_ = ReadGolden(GetParam());
};

TEST_P(MutationTest, UnchangedSpecPassesAsCustomModel) {
  EXPECT_LE(Mistake([](EncoderSpec&) {}), kTolerance);
}

TEST_P(MutationTest, WrongEpsilonFails) {
  EXPECT_GT(Mistake([](EncoderSpec& spec) { spec.norm_eps = spec.norm_eps < 1e-8 ? 1e-5 : 1e-12; }),
            10 * kTolerance);
}

TEST_P(MutationTest, WrongScaleFails) {
  EXPECT_GT(Mistake([](EncoderSpec& spec) {
              const double by_head = 1 / std::sqrt(static_cast<double>(spec.head_dim()));
              const double by_size = 1 / std::sqrt(static_cast<double>(spec.hidden_size));
              spec.score_scale = std::abs(spec.score_scale - by_head) < 1e-9 ? by_size : by_head;
            }),
            10 * kTolerance);
}

TEST_P(MutationTest, WrongActivationFails) {
  EXPECT_GT(Mistake([](EncoderSpec& spec) {
              spec.activation =
                  spec.activation == Activation::kGelu ? Activation::kGeluTanh : Activation::kGelu;
            }),
            10 * kTolerance);
}

TEST_P(MutationTest, TransposedMaskFails) {
  std::vector<std::vector<uint8_t>> transposed;
  const Comparison comparison =
      CompareModel(golden_, golden_.folder + "/model", [&](Request& request) {
        for (Sequence& sequence : request.sequences) {
          if (sequence.mask.pairs.empty()) continue;
          const auto tokens = static_cast<size_t>(sequence.tokens());
          auto& pairs = transposed.emplace_back(sequence.mask.pairs.size());
          for (size_t i = 0; i < pairs.size(); ++i) {
            pairs[i] = sequence.mask.pairs[i % tokens * tokens + i / tokens];
          }
          sequence.mask.pairs = pairs;
        }
      });
  EXPECT_FALSE(transposed.empty()) << "the golden has no pairs mask";
  EXPECT_GT(comparison.worst(), 10 * kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Goldens, MutationTest,
                         ::testing::Values("fused_qkv_stack", "shared_projection", "token_encoder",
                                           "torch_pre_gelu", "bert"),
                         [](const auto& instance) { return instance.param; });

// Short sequences never leave the buckets of one distance each; the long golden must.
TEST(PositionBiasMutationTest, WrongReachFails) {
  const auto halve = [](EncoderSpec& spec) { spec.bias_max_distance = 64; };
  EXPECT_GT(DistanceFrom(ReadGolden("mpnet_long"), halve), 10 * kTolerance);
}

// The two directions of a disentangled table, its buckets, and the products that divide its scores.
TEST(PositionBiasMutationTest, WrongTableFails) {
  const Golden golden = ReadGolden("deberta_v3");
  for (const std::function<void(EncoderSpec&)>& mutate :
       std::initializer_list<std::function<void(EncoderSpec&)>>{
           [](EncoderSpec& spec) { spec.content_to_position = false; },
           [](EncoderSpec& spec) { spec.position_to_content = false; },
           [](EncoderSpec& spec) { spec.bias_max_distance += 8; },
           [](EncoderSpec& spec) { spec.relative_embedding_norm = {}; },
           [](EncoderSpec& spec) { spec.score_scale *= std::sqrt(3.0); }}) {
    EXPECT_GT(DistanceFrom(golden, mutate), 10 * kTolerance);
  }
}

TEST(ContactsMutationTest, EndTokensThatCountFail) {
  const auto count = [](EncoderSpec& spec) { spec.contact_end_id = -1; };
  EXPECT_GT(DistanceFrom(ReadGolden("esm"), count), 10 * kTolerance);
}

// ---- Custom specs -------------------------------------------------------------------------------

// A founding model written out as a custom spec is the same model, to the bit.
TEST(CustomModelTest, GivesTheBitsOfTheFamilyItDescribes) {
  for (const char* name :
       {"fused_qkv_attention", "fused_qkv_stack", "shared_projection", "token_encoder"}) {
    const Golden golden = ReadGolden(name);
    const TempFolder folder;
    WriteCustomModel(golden, SpecOf(golden), folder);
    const std::unique_ptr<Engine> family = LoadEngine(golden.folder + "/model");
    const std::unique_ptr<Engine> custom = LoadEngine(folder.path());
    const std::unique_ptr<Worker> family_worker = NewWorker(*family);
    const std::unique_ptr<Worker> custom_worker = NewWorker(*custom);
    for (const auto& golden_case : golden.cases) {
      Request request = golden_case->request;
      request.outputs = AllOutputs(family->spec());
      const Answer a = Ask(*family, *family_worker, request);
      const Answer b = Ask(*custom, *custom_worker, request);
      EXPECT_TRUE(
          std::ranges::equal(a.last_hidden_state.data.bytes(), b.last_hidden_state.data.bytes()));
      EXPECT_TRUE(std::ranges::equal(a.attentions.back().tensor.data.bytes(),
                                     b.attentions.back().tensor.data.bytes()));
    }
  }
}

// ---- Padding ------------------------------------------------------------------------------------

// Where positions skip the padding, a text means the same with and without it on its left. (Sums
// over keys begin elsewhere, so the last bits may differ.)
TEST(PaddingTest, OnTheLeftLeavesTheTextOfRobertaAlone) {
  const Golden golden = ReadGolden("roberta");
  const auto engine = LoadEngine(golden.folder + "/model");
  const auto worker = NewWorker(*engine);
  const std::vector<int32_t> text = {0, 9, 2}, padded = {1, 1, 0, 9, 2};
  const std::vector<uint8_t> keys = {0, 0, 1, 1, 1};
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  const Answer alone =
      Ask(*engine, *worker, {.sequences = {{.input_ids = text}}, .outputs = outputs});
  const Answer behind =
      Ask(*engine, *worker,
          {.sequences = {{.input_ids = padded, .mask = {.keys = keys}}}, .outputs = outputs});
  const auto width = static_cast<size_t>(engine->spec().hidden_size);
  const std::span<const float> rows = Floats(behind.last_hidden_state).subspan(2 * width);
  for (size_t i = 0; i < 3 * width; ++i) {
    ASSERT_NEAR(rows[i], Floats(alone.last_hidden_state)[i], 5e-6) << i;
  }
}

// ---- Order --------------------------------------------------------------------------------------

// Without positions a permutation of the tokens permutes the outputs, up to the order of summation.
TEST(PermutationTest, MovesTheRowsOfModelsWithoutPositions) {
  for (const char* name : {"shared_projection", "token_encoder"}) {
    const Golden golden = ReadGolden(name);
    const auto engine = LoadEngine(golden.folder + "/model");
    const auto worker = NewWorker(*engine);
    for (const auto& golden_case : golden.cases) {
      if (golden_case->name != "no_mask") continue;
      for (const Sequence& sequence : golden_case->request.sequences) {
        const auto tokens = static_cast<size_t>(sequence.tokens());
        auto mirrored_row = [&](size_t row) { return tokens - 1 - row; };
        Sequence mirrored = sequence;
        const std::vector<int32_t> ids(sequence.input_ids.rbegin(), sequence.input_ids.rend());
        std::vector<std::byte> vectors;
        if (sequence.inputs_embeds.has_value()) {
          const size_t row_bytes = sequence.inputs_embeds->data.size() / tokens;
          for (size_t row = 0; row < tokens; ++row) {
            const auto bytes =
                sequence.inputs_embeds->data.subspan(mirrored_row(row) * row_bytes, row_bytes);
            vectors.insert(vectors.end(), bytes.begin(), bytes.end());
          }
          mirrored.inputs_embeds->data = vectors;
        } else {
          mirrored.input_ids = ids;
        }
        OutputSpec outputs;
        outputs.last_hidden_state = true;
        const Answer straight =
            Ask(*engine, *worker, {.sequences = {sequence}, .outputs = outputs});
        const Answer turned = Ask(*engine, *worker, {.sequences = {mirrored}, .outputs = outputs});
        const auto width = static_cast<size_t>(engine->spec().hidden_size);
        for (size_t row = 0; row < tokens; ++row) {
          for (size_t i = 0; i < width; ++i) {
            ASSERT_NEAR(Floats(straight.last_hidden_state)[row * width + i],
                        Floats(turned.last_hidden_state)[mirrored_row(row) * width + i], 5e-6)
                << name << " row " << row;
          }
        }
      }
    }
  }
}

// Every token sees every other: changing one input moves every row.
TEST(PermutationTest, EveryTokenSeesEveryOther) {
  const Golden golden = ReadGolden("token_encoder");
  const auto engine = LoadEngine(golden.folder + "/model");
  const auto worker = NewWorker(*engine);
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5};
  const Answer before =
      Ask(*engine, *worker, {.sequences = {{.input_ids = ids}}, .outputs = outputs});
  const auto width = static_cast<size_t>(engine->spec().hidden_size);
  for (size_t changed = 0; changed < ids.size(); ++changed) {
    std::vector<int32_t> other = ids;
    other[changed] = 6;
    const Answer after =
        Ask(*engine, *worker, {.sequences = {{.input_ids = other}}, .outputs = outputs});
    for (size_t row = 0; row < ids.size(); ++row) {
      EXPECT_FALSE(std::ranges::equal(Floats(before.last_hidden_state).subspan(row * width, width),
                                      Floats(after.last_hidden_state).subspan(row * width, width)))
          << "token " << changed << " does not reach row " << row;
    }
  }
}

}  // namespace
}  // namespace encoderd
