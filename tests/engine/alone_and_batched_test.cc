// Goal:   a sequence has the same bits alone and beside any others, in every family and precision.
// Method: the models of tests/goldens; random sequences of 1, 2, 33 and the longest number of tokens
//         that the model takes, and of numbers around its window; alone, all in one batch in two
//         orders, and each behind one that is not finite.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/ops/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/golden.h"

namespace encoderd {
namespace {

// Longest of a family without positions of its own: more than one tile of rows.
constexpr int64_t kLongest = 200;

std::set<int64_t> LengthsFor(const EncoderSpec& spec) {
  std::set<int64_t> lengths = {1, 2, 33};
  const int64_t longest =
      spec.max_positions > 0 ? std::min(spec.max_positions, kLongest) : kLongest;
  lengths.insert(longest);
  if (const int64_t window = spec.local_window; window > 0) {
    for (const int64_t tokens : {window - 1, window, window + 1, 2 * window + 1}) {
      lengths.insert(std::max<int64_t>(tokens, 1));
    }
  }
  std::erase_if(lengths, [&](int64_t tokens) { return tokens > longest; });
  return lengths;
}

// Random ids or vectors, which live as long as the object.
class Sequences {
 public:
  explicit Sequences(const EncoderSpec& spec) {
    for (const int64_t tokens : LengthsFor(spec)) {
      sequences_.push_back(spec.input == InputKind::kTokenIds ? Ids(spec, tokens)
                                                              : Vectors(spec, tokens));
    }
  }

  const std::vector<Sequence>& all() const { return sequences_; }

 private:
  Sequence Ids(const EncoderSpec& spec, int64_t tokens) {
    auto& ids = ids_.emplace_back(std::make_unique<std::vector<int32_t>>());
    std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(spec.vocab_size) - 1);
    std::generate_n(std::back_inserter(*ids), tokens, [&] { return id(random_); });
    return {.input_ids = *ids};
  }

  Sequence Vectors(const EncoderSpec& spec, int64_t tokens) {
    auto& values = values_.emplace_back(std::make_unique<std::vector<float>>());
    std::normal_distribution<float> value;
    std::generate_n(std::back_inserter(*values), tokens * spec.input_dim,
                    [&] { return value(random_); });
    auto& shape = shapes_.emplace_back(
        std::make_unique<std::vector<int64_t>>(std::vector<int64_t>{tokens, spec.input_dim}));
    return {.inputs_embeds = InputTensor{.dtype = DataType::kFp32,
                                         .shape = *shape,
                                         .data = std::as_bytes(std::span(*values))}};
  }

  std::mt19937 random_{7};
  std::vector<std::unique_ptr<std::vector<int32_t>>> ids_;
  std::vector<std::unique_ptr<std::vector<float>>> values_;
  std::vector<std::unique_ptr<std::vector<int64_t>>> shapes_;
  std::vector<Sequence> sequences_;
};

OutputSpec Outputs(const EncoderSpec& spec) {
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  outputs.attentions = AttentionSpec();
  outputs.pooled = {PoolingSpec()};
  outputs.logits = spec.has_logits();
  outputs.contacts = spec.has_contacts();
  return outputs;
}

// The answer to one sequence, tensor by tensor.
std::vector<std::vector<std::byte>> BytesOf(const Answer& answer) {
  std::vector<std::vector<std::byte>> bytes;
  const auto add = [&](const AnswerTensor& tensor) {
    bytes.emplace_back(tensor.data.bytes().begin(), tensor.data.bytes().end());
  };
  add(answer.last_hidden_state);
  add(answer.logits);
  for (const auto& map : answer.attentions) add(map.tensor);
  for (const auto& pooled : answer.pooled) add(pooled);
  for (const auto& contacts : answer.contacts) add(contacts);
  return bytes;
}

struct Case {
  std::string golden;
  Precision precision;
};

class AloneAndBatchedTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const absl::Status runs = ops::RequirePrecision(GetParam().precision);
    if (!runs.ok()) GTEST_SKIP() << runs;
    engine_ = LoadEngine(ReadGolden(GetParam().golden).folder + "/model", GetParam().precision);
    worker_ = NewWorker(*engine_);
    sequences_.emplace(engine_->spec());
    outputs_ = Outputs(engine_->spec());
    for (const Sequence& sequence : sequences_->all()) {
      alone_.push_back(
          BytesOf(Ask(*engine_, *worker_, {.sequences = {sequence}, .outputs = outputs_})));
    }
  }

  std::unique_ptr<Prepared> Prepare(const Sequence& sequence) const {
    return std::make_unique<Prepared>(*engine_,
                                      Request{.sequences = {sequence}, .outputs = outputs_});
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Worker> worker_;
  std::optional<Sequences> sequences_;
  OutputSpec outputs_;
  std::vector<std::vector<std::vector<std::byte>>> alone_;  // the answers
};

TEST_P(AloneAndBatchedTest, GiveTheSameBits) {
  std::vector<size_t> order(alone_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int turn = 0; turn < 2; ++turn, std::ranges::reverse(order)) {
    std::vector<std::unique_ptr<Prepared>> calls;
    std::vector<BatchItem> items;
    for (const size_t i : order) {
      calls.push_back(Prepare(sequences_->all()[i]));
      calls.back()->AppendItems(items);
    }
    ASSERT_TRUE(worker_->Run(items, NeverAbandoned).ok());
    for (size_t call = 0; call < calls.size(); ++call) {
      ASSERT_TRUE(items[call].status.ok()) << items[call].status;
      EXPECT_EQ(BytesOf(calls[call]->answer), alone_[order[call]])
          << sequences_->all()[order[call]].tokens() << " tokens, turn " << turn;
    }
  }
}

// What one sequence computes never enters the sums of another, not even multiplied by 0.
TEST_P(AloneAndBatchedTest, ANeighbourThatIsNotFiniteChangesNoBit) {
  const int64_t width = engine_->spec().input_size();
  const int64_t most = *LengthsFor(engine_->spec()).rbegin();
  for (const float poison : {NAN, INFINITY, std::numeric_limits<float>::max()}) {
    std::vector<std::vector<float>> values(alone_.size());
    std::vector<std::vector<int64_t>> shapes(alone_.size());
    std::vector<std::unique_ptr<Prepared>> bad, good;
    std::vector<BatchItem> items;
    for (size_t i = 0; i < alone_.size(); ++i) {
      // An odd number of rows, so that tiles have some of both.
      shapes[i] = {std::min<int64_t>(most, 3 + 10 * static_cast<int64_t>(i)), width};
      values[i].assign(static_cast<size_t>(shapes[i][0] * width), 1);
      bad.push_back(
          Prepare({.inputs_embeds = InputTensor{.dtype = DataType::kFp32,
                                                .shape = shapes[i],
                                                .data = std::as_bytes(std::span(values[i]))}}));
      // Only now, as validation lets no such numbers in; they may well arise further on.
      std::ranges::fill(values[i], poison);
      bad.back()->AppendItems(items);
      good.push_back(Prepare(sequences_->all()[i]));
      good.back()->AppendItems(items);
    }
    ASSERT_TRUE(worker_->Run(items, NeverAbandoned).ok());
    for (size_t i = 0; i < alone_.size(); ++i) {
      if (std::isnan(poison)) {
        EXPECT_EQ(items[2 * i].status.code(), absl::StatusCode::kInternal);
      }
      ASSERT_TRUE(items[2 * i + 1].status.ok()) << items[2 * i + 1].status;
      EXPECT_EQ(BytesOf(good[i]->answer), alone_[i])
          << sequences_->all()[i].tokens() << " tokens beside " << poison;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Precision precision : kPrecisions) {
    for (const std::string& name : GoldenNames()) cases.push_back({name, precision});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Goldens, AloneAndBatchedTest, ::testing::ValuesIn(Cases()),
                         [](const auto& instance) {
                           return absl::StrCat(
                               instance.param.golden, "_",
                               std::string(PrecisionName(instance.param.precision)));
                         });

}  // namespace
}  // namespace encoderd
