// Goal: an answer is decoded exactly, and one that contradicts itself is refused before use.
// Method: messages built by hand, right ones and each kind of wrong one.
#include "deploy/client/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>

#include "absl/status/status_matchers.h"

namespace encoderd::client {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Tensor RawTensor(v1::DataType dtype, std::vector<int64_t> shape, std::string data) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(std::move(data));
  return tensor;
}

// fp32 values 0, 1, 2 … of that shape.
v1::Tensor Counting(std::vector<int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t length : shape) elements *= length;
  std::vector<float> values(static_cast<size_t>(elements));
  std::iota(values.begin(), values.end(), 0.0f);
  return RawTensor(v1::DATA_TYPE_FP32, std::move(shape),
                   std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
}

// Two sequences of 2 and 1 tokens with everything that an answer can have.
v1::EncodeResponse FullResponse() {
  v1::EncodeResponse response;
  for (const uint32_t offset : {0, 2, 3}) response.add_token_offsets(offset);
  *response.mutable_last_hidden_state() = Counting({3, 4});
  v1::LayerTensor& state = *response.add_hidden_states();
  state.set_layer(1);
  *state.mutable_tensor() = Counting({3, 2});
  v1::AttentionMap& map = *response.add_attentions();
  map.set_sequence(0);
  map.set_layer(5);
  map.add_heads(3);
  map.add_heads(7);
  *map.mutable_tensor() = Counting({2, 2, 2});
  *response.add_pooled() = Counting({2, 4});
  *response.mutable_logits() = Counting({3, 9});
  *response.add_contacts() = Counting({0, 0});
  *response.add_contacts() = Counting({0, 0});
  response.set_numerics_id("n");
  response.set_request_id("r");
  return response;
}

TEST(DecodeTensorTest, WidensEveryType) {
  EXPECT_THAT(DecodeTensor(Counting({2, 2}), "t")->values, ElementsAre(0, 1, 2, 3));
  // 1 and -2.5 as bfloat16 and as binary16.
  const auto bf16 =
      DecodeTensor(RawTensor(v1::DATA_TYPE_BF16, {2}, std::string("\x80\x3f\x20\xc0", 4)), "t");
  const auto fp16 =
      DecodeTensor(RawTensor(v1::DATA_TYPE_FP16, {2}, std::string("\x00\x3c\x00\xc1", 4)), "t");
  ASSERT_THAT(bf16, IsOk());
  ASSERT_THAT(fp16, IsOk());
  EXPECT_THAT(bf16->values, ElementsAre(1, -2.5f));
  EXPECT_THAT(fp16->values, ElementsAre(1, -2.5f));
  EXPECT_EQ(fp16->wire_type, DataType::kFp16);
}

TEST(DecodeTensorTest, RefusesShapesThatDoNotFitTheData) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> shapes[] = {
      {5}, {3}, {-4}, {-2, -2}, {kMax, kMax}, {int64_t{1} << 32, int64_t{1} << 32, 4}, {0}, {}};
  for (const std::vector<int64_t>& shape : shapes) {
    EXPECT_THAT(DecodeTensor(RawTensor(v1::DATA_TYPE_FP32, shape, std::string(16, '\0')), "t"),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("t: expected data of shape")));
  }
  for (const size_t bytes : {15u, 17u}) {
    EXPECT_THAT(DecodeTensor(RawTensor(v1::DATA_TYPE_FP32, {4}, std::string(bytes, '\0')), "t"),
                StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(DecodeTensorTest, RefusesUnknownTypes) {
  for (const int type : {0, 4, -1}) {
    const auto decoded = DecodeTensor(RawTensor(static_cast<v1::DataType>(type), {0}, ""), "t");
    EXPECT_THAT(decoded, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("element type")));
  }
}

TEST(DecodeTensorTest, AcceptsTensorsWithoutElements) {
  EXPECT_THAT(DecodeTensor(RawTensor(v1::DATA_TYPE_FP32, {0, 4}, ""), "t"), IsOk());
}

TEST(ReadAnswerTest, ReadsEveryField) {
  const absl::StatusOr<Answer> answer = ReadAnswer(FullResponse());
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->sequences(), 2);
  EXPECT_EQ(answer->tokens(), 3);
  EXPECT_THAT(answer->last_hidden_state->Row(2), ElementsAre(8, 9, 10, 11));
  EXPECT_EQ(answer->hidden_states[0].first, 1);
  EXPECT_THAT(answer->hidden_states[0].second.Row(0), ElementsAre(0, 1));
  EXPECT_EQ(answer->attentions[0].layer, 5);
  EXPECT_THAT(answer->attentions[0].heads, ElementsAre(3, 7));
  EXPECT_THAT(answer->attentions[0].Head(1), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(answer->pooled[0].Row(1), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(answer->logits->Row(1)[0], 9);
  EXPECT_EQ(answer->numerics_id, "n");
  EXPECT_EQ(answer->request_id, "r");
}

TEST(ReadAnswerTest, NamesAllRowsOfAMapThatNamesNone) {
  v1::EncodeResponse response = FullResponse();
  EXPECT_THAT(ReadAnswer(response)->attentions[0].query_rows, ElementsAre(0, 1));
  response.mutable_attentions(0)->add_query_rows(1);
  *response.mutable_attentions(0)->mutable_tensor() = Counting({2, 1, 2});
  EXPECT_THAT(ReadAnswer(response)->attentions[0].query_rows, ElementsAre(1));
}

TEST(ReadAnswerTest, ContactsHaveNoFirstAndNoLastToken) {
  v1::EncodeResponse response;
  for (const uint32_t offset : {0, 5, 6}) response.add_token_offsets(offset);
  *response.add_contacts() = Counting({3, 3});
  *response.add_contacts() = Counting({0, 0});
  const auto answer = ReadAnswer(response);
  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(answer->contacts[0].Row(1), ElementsAre(3, 4, 5));
  EXPECT_THAT(answer->contacts[1].values, ElementsAre());
}

TEST(ReadAnswerTest, RefusesAnswersThatContradictThemselves) {
  using Change = std::function<void(v1::EncodeResponse&)>;
  const std::pair<const char*, Change> changes[] = {
      {"token_offsets", [](auto& r) { r.clear_token_offsets(); }},
      {"token_offsets", [](auto& r) { r.set_token_offsets(0, 1); }},
      {"token_offsets", [](auto& r) { r.set_token_offsets(1, 4); }},
      {"last_hidden_state", [](auto& r) { *r.mutable_last_hidden_state() = Counting({2, 4}); }},
      {"last_hidden_state", [](auto& r) { *r.mutable_last_hidden_state() = Counting({12}); }},
      {"hidden_states[0]",
       [](auto& r) { *r.mutable_hidden_states(0)->mutable_tensor() = Counting({4, 2}); }},
      {"attentions[0].sequence", [](auto& r) { r.mutable_attentions(0)->set_sequence(2); }},
      {"attentions[0].sequence",
       [](auto& r) { r.mutable_attentions(0)->set_sequence(0xffffffffu); }},
      {"attentions[0].tensor", [](auto& r) { r.mutable_attentions(0)->set_sequence(1); }},
      {"attentions[0].tensor", [](auto& r) { r.mutable_attentions(0)->add_heads(8); }},
      {"attentions[0].tensor", [](auto& r) { r.mutable_attentions(0)->add_query_rows(0); }},
      {"pooled[0]", [](auto& r) { *r.mutable_pooled(0) = Counting({8}); }},
      {"logits", [](auto& r) { *r.mutable_logits() = Counting({4, 9}); }},
      {"contacts[1]", [](auto& r) { *r.mutable_contacts(1) = Counting({1, 1}); }},
      {"contacts: expected one for each of 2 sequences",
       [](auto& r) { r.mutable_contacts()->RemoveLast(); }},
  };
  for (const auto& [field, change] : changes) {
    v1::EncodeResponse response = FullResponse();
    change(response);
    EXPECT_THAT(ReadAnswer(response), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(field)));
  }
}

}  // namespace
}  // namespace encoderd::client
