// Goal:   an answer given part by part is the whole answer: the same outputs, once each, with the
//         same bits, wherever the pass is cut and whatever runs beside the part.
// Method: the goldens' models of every kind, all that they can give; the judge is the whole answer.
#include "engine/parts.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/golden.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;

OutputSpec AllOutputs(const EncoderSpec& spec) {
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  outputs.all_hidden_states = true;
  outputs.attentions = AttentionSpec();
  outputs.pooled = {PoolingSpec(),
                    {.kind = Pooling::kCls, .layer = 0},
                    {.kind = Pooling::kMean, .layer = 1},
                    {.kind = Pooling::kMax, .layer = static_cast<int32_t>(spec.num_layers)}};
  if (!spec.pooler.empty()) outputs.pooled.push_back({.kind = Pooling::kPooler});
  outputs.logits = !spec.logits.empty();
  return outputs;
}

// What a sequence got, by the name of the output.
using Outputs = std::map<std::string, std::string>;

void Add(Outputs& outputs, const std::string& name, const AnswerTensor& tensor, int64_t first_row,
         int64_t end_row) {
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis) rows *= tensor.shape[axis];
  const auto row_bytes = static_cast<int64_t>(tensor.data.size()) / rows;
  const std::string bytes(reinterpret_cast<const char*>(tensor.data.data()) + first_row * row_bytes,
                          static_cast<size_t>((end_row - first_row) * row_bytes));
  EXPECT_TRUE(outputs.emplace(name, bytes).second) << name << " comes twice";
}

// Adds the rows of one sequence in an answer to `plan`.
void Add(Outputs& outputs, const Plan& plan, const Answer& answer, size_t sequence) {
  const size_t place = plan.PlaceOf(sequence);
  const int64_t row = plan.token_offsets[place], end = plan.token_offsets[place + 1];
  if (plan.last_hidden_state) Add(outputs, "last", answer.last_hidden_state, row, end);
  if (plan.logits) Add(outputs, "logits", answer.logits, row, end);
  for (size_t i = 0; i < plan.hidden_layers.size(); ++i) {
    Add(outputs, absl::StrCat("hidden ", plan.hidden_layers[i]), answer.hidden_states[i], row, end);
  }
  for (const AttentionMap& map : answer.attentions) {
    if (map.sequence != sequence) continue;
    Add(outputs, absl::StrCat("map ", map.layer), map.tensor, 0,
        map.tensor.shape[0] * map.tensor.shape[1]);
  }
  for (size_t i = 0; i < plan.pooled.size(); ++i) {
    Add(outputs, absl::StrCat("pooled ", plan.pooled[i].index), answer.pooled[i],
        plan.pooled_offsets[place], plan.pooled_offsets[place + 1]);
  }
}

int64_t BytesOf(const Answer& answer) {
  size_t bytes = answer.last_hidden_state.data.size() + answer.logits.data.size();
  for (const AnswerTensor& tensor : answer.hidden_states) bytes += tensor.data.size();
  for (const AttentionMap& map : answer.attentions) bytes += map.tensor.data.size();
  for (const AnswerTensor& tensor : answer.pooled) bytes += tensor.data.size();
  for (const AnswerTensor& tensor : answer.contacts) bytes += tensor.data.size();
  return static_cast<int64_t>(bytes);
}

class PartsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = ReadGolden(GetParam());
    engine_ = LoadEngine(golden_.folder + "/model");
    worker_ = NewWorker(*engine_);
  }

  // Runs one part, among the sequences of `beside` where there are any.
  Answer RunPart(const Request& request, const Plan& plan, std::vector<float>& hidden,
                 Prepared* beside) {
    auto answer = engine_->AllocateAnswer(plan);
    CHECK(answer.ok()) << answer.status();
    EXPECT_EQ(BytesOf(*answer), plan.answer_bytes);
    std::vector<BatchItem> items;
    if (beside != nullptr) beside->AppendItems(items);
    items.push_back({.request = &request,
                     .plan = &plan,
                     .sequence = plan.first_sequence,
                     .answer = &*answer,
                     .hidden = hidden});
    if (beside != nullptr) beside->AppendItems(items);
    EXPECT_THAT(worker_->Run(items, NeverAbandoned), IsOk());
    for (const BatchItem& item : items) EXPECT_THAT(item.status, IsOk());
    return *std::move(answer);
  }

  // The parts of one sequence between these borders, put together.
  Outputs InParts(const Prepared& whole, size_t sequence, const std::vector<int64_t>& borders,
                  Prepared* beside) {
    const auto tokens = whole.request.sequences[sequence].tokens();
    std::vector<float> hidden(static_cast<size_t>(tokens * engine_->spec().hidden_size));
    Outputs outputs;
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      const Plan part =
          PartOf(engine_->spec(), whole.plan,
                 {.sequence = sequence, .first_block = borders[i], .end_block = borders[i + 1]});
      const Answer answer = RunPart(whole.request, part, hidden, beside);
      Add(outputs, part, answer, sequence);
    }
    return outputs;
  }

  // Every case of the golden with `outputs`, run whole.
  std::vector<std::unique_ptr<Prepared>> RunWhole(const OutputSpec& outputs) {
    std::vector<std::unique_ptr<Prepared>> calls;
    for (const auto& golden_case : golden_.cases) {
      Request request = golden_case->request;
      request.outputs = outputs;
      auto& call = calls.emplace_back(std::make_unique<Prepared>(*engine_, request));
      std::vector<BatchItem> items;
      call->AppendItems(items);
      EXPECT_THAT(worker_->Run(items, NeverAbandoned), IsOk());
    }
    return calls;
  }

  void ExpectPartsAreTheWhole(const Prepared& whole, Prepared* beside) {
    const int64_t blocks = BlocksOf(whole.plan);
    std::vector<std::vector<int64_t>> cuts = {{0, blocks}, {}};
    for (int64_t block = 0; block <= blocks; ++block) cuts[1].push_back(block);
    for (int64_t cut = 1; cut < blocks; ++cut) cuts.push_back({0, cut, blocks});
    if (blocks == 0) cuts = {{0, 0}};
    for (size_t i = 0; i < whole.request.sequences.size(); ++i) {
      Outputs expected;
      Add(expected, whole.plan, whole.answer, i);
      for (const auto& borders : cuts) {
        EXPECT_EQ(InParts(whole, i, borders, beside), expected)
            << "sequence " << i << " cut into " << borders.size() - 1 << " at " << borders[1];
      }
    }
  }

  Golden golden_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Worker> worker_;
};

TEST_P(PartsTest, AreTheWholeWhereverItIsCut) {
  for (const auto& whole : RunWhole(AllOutputs(engine_->spec()))) {
    ExpectPartsAreTheWhole(*whole, nullptr);
  }
}

TEST_P(PartsTest, AreTheWholeBesideOtherSequences) {
  const auto calls = RunWhole(AllOutputs(engine_->spec()));
  Prepared beside(*engine_, calls[0]->request);
  ExpectPartsAreTheWhole(*calls[0], &beside);
  Outputs ran_beside, alone;
  Add(ran_beside, beside.plan, beside.answer, 0);
  Add(alone, calls[0]->plan, calls[0]->answer, 0);
  EXPECT_EQ(ran_beside, alone);
}

// A pass that ends with a map ends in the middle of a block.
TEST_P(PartsTest, AreTheWholeWhereTheLastBlockHasOnlyAMap) {
  OutputSpec outputs;
  outputs.hidden_states = {0};
  outputs.attentions = AttentionSpec{.layers = {-1}, .heads = {0}};
  for (const auto& whole : RunWhole(outputs)) ExpectPartsAreTheWhole(*whole, nullptr);
}

TEST_P(PartsTest, AreTheWholeWhereNoBlockIsRun) {
  OutputSpec outputs;
  outputs.hidden_states = {0};
  for (const auto& whole : RunWhole(outputs)) ExpectPartsAreTheWhole(*whole, nullptr);
}

// A map in pieces of one head and two query rows, in between the parts of the pass.
TEST_P(PartsTest, MapsComeInPiecesOfHeadsAndRows) {
  const auto calls = RunWhole(AllOutputs(engine_->spec()));
  const Prepared& whole = *calls[0];
  const auto tokens = whole.request.sequences[0].tokens();
  std::vector<float> hidden(static_cast<size_t>(tokens * engine_->spec().hidden_size));
  Outputs expected, pieces;
  Add(expected, whole.plan, whole.answer, 0);
  for (int64_t block = 0; block < BlocksOf(whole.plan); ++block) {
    std::string& map = pieces[absl::StrCat("map ", block)];
    for (size_t head = 0; head < whole.plan.attention_heads.size(); ++head) {
      for (size_t row = 0; row < static_cast<size_t>(tokens); row += 2) {
        const Plan piece = MapPartOf(engine_->spec(), whole.plan,
                                     {.sequence = 0,
                                      .block = block,
                                      .first_head = head,
                                      .end_head = head + 1,
                                      .first_row = row,
                                      .end_row = std::min(row + 2, static_cast<size_t>(tokens))});
        const std::vector<float> before = hidden;
        const Answer answer = RunPart(whole.request, piece, hidden, nullptr);
        EXPECT_EQ(hidden, before);
        const auto bytes = answer.attentions[0].tensor.data.bytes();
        map.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
    const Plan part =
        PartOf(engine_->spec(), whole.plan,
               {.sequence = 0, .first_block = block, .end_block = block + 1, .maps = false});
    Add(pieces, part, RunPart(whole.request, part, hidden, nullptr), 0);
  }
  EXPECT_EQ(pieces, expected);
}

// Contacts come of all blocks: alone, and then all else without them, wherever that is cut.
TEST(ContactsPartTest, AndTheRestAreTheWhole) {
  const Golden golden = ReadGolden("esm_masked_lm");
  const auto engine = LoadEngine(golden.folder + "/model");
  const auto worker = NewWorker(*engine);
  const std::vector<int32_t> few = {0, 5, 2}, many = {0, 7, 8, 9, 6, 2};
  OutputSpec outputs = AllOutputs(engine->spec());
  outputs.contacts = true;
  const Request request = {.sequences = {{.input_ids = few}, {.input_ids = many}},
                           .outputs = outputs};
  const Prepared plain(*engine,
                       {.sequences = request.sequences, .outputs = AllOutputs(engine->spec())});
  Prepared whole(*engine, request);
  std::vector<BatchItem> items;
  whole.AppendItems(items);
  ASSERT_THAT(worker->Run(items, NeverAbandoned), IsOk());

  const Plan rest = WithoutContacts(engine->spec(), whole.plan);
  EXPECT_EQ(rest.answer_bytes, plain.plan.answer_bytes);
  EXPECT_FALSE(PartOf(engine->spec(), rest, {.end_block = BlocksOf(rest)}).contacts);
  EXPECT_FALSE(PartOf(engine->spec(), whole.plan, {.end_block = 1}).contacts);
  for (size_t i = 0; i < 2; ++i) {
    const Plan part = ContactsPartOf(engine->spec(), whole.plan, i);
    EXPECT_TRUE(part.last_map_only);
    EXPECT_EQ(BlocksOf(part), engine->spec().num_layers);
    auto answer = engine->AllocateAnswer(part);
    ASSERT_THAT(answer, IsOk());
    EXPECT_EQ(BytesOf(*answer), part.answer_bytes);
    std::vector<BatchItem> alone = {
        {.request = &request, .plan = &part, .sequence = i, .answer = &*answer}};
    ASSERT_THAT(worker->Run(alone, NeverAbandoned), IsOk());
    EXPECT_TRUE(std::ranges::equal(answer->contacts[0].data.bytes(),
                                   whole.answer.contacts[i].data.bytes()));
  }
}

TEST(ContactsPartTest, LeaveNothingWhereNothingElseIsAskedFor) {
  const auto engine = LoadEngine(ReadGolden("esm").folder + "/model");
  const std::vector<int32_t> ids = {0, 7, 8, 2};
  const Prepared whole(*engine, {.sequences = {{.input_ids = ids}}, .outputs = {.contacts = true}});
  EXPECT_EQ(WithoutContacts(engine->spec(), whole.plan).answer_bytes, 0);
}

// Deep ones, and one of each kind of input, norm placement and head.
INSTANTIATE_TEST_SUITE_P(Models, PartsTest,
                         ::testing::Values("bert_deep", "fused_qkv_attention", "fused_qkv_stack",
                                           "fused_qkv_predictor", "shared_projection_deep",
                                           "token_encoder_deep", "torch_pre_gelu_final_norm",
                                           "torch_post_relu"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace encoderd
