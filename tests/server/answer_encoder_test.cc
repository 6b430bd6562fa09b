// Goal: an answer's bytes are those that protobuf itself would write, without a copy of its tensors.
// Method: answers filled by the fake engine, beside messages built by protobuf.
#include "server/answer_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/server/fake_engine.h"

namespace encoderd {
namespace {

std::string Joined(grpc::ByteBuffer buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

struct Encoded {
  Plan plan;
  std::shared_ptr<const Answer> answer;
  ResponseInfo info;
};

// Everything that can be asked for, from the fake engine.
Encoded EncodeEverything(DataType type, const std::vector<int32_t>& ids) {
  FakeEngine engine;
  engine.mutable_spec().contact = WithBias("contact");
  Request request;
  request.sequences.resize(2);
  request.sequences[0].input_ids = std::span(ids).first(2);
  request.sequences[1].input_ids = ids;
  request.sequences[1].spans = {{0, 1}, {1, 3}};
  request.outputs = {.dtype = type,
                     .last_hidden_state = true,
                     .hidden_states = {2, 0},
                     .attentions = AttentionSpec{.layers = {1, 0}, .heads = {1}},
                     .pooled = {{.kind = Pooling::kMean}, {.dimensions = 3}},
                     .contacts = true};
  auto checked = Validate(engine.spec(), {}, request);
  EXPECT_TRUE(std::holds_alternative<Plan>(checked));
  Encoded encoded = {.plan = std::get<Plan>(checked),
                     .info = {.timing = CallTiming{.queue = absl::Microseconds(5),
                                                   .compute = absl::Milliseconds(7),
                                                   .batches = 2,
                                                   .batch_tokens = 300},
                              .numerics_id = "bits",
                              .request_id = "id-1"}};
  auto answer = engine.AllocateAnswer(encoded.plan);
  EXPECT_TRUE(answer.ok());
  std::vector<BatchItem> items;
  for (size_t i = 0; i < 2; ++i) {
    items.push_back(
        {.request = &request, .plan = &encoded.plan, .sequence = i, .answer = &*answer});
  }
  auto worker = engine.CreateWorker();
  EXPECT_TRUE((*worker)->Run(items, NeverAbandoned).ok());
  encoded.answer = std::make_shared<const Answer>(*std::move(answer));
  return encoded;
}

void Set(v1::Tensor& message, const AnswerTensor& tensor, v1::DataType type) {
  message.set_dtype(type);
  for (const int64_t axis : tensor.shape) message.add_shape(axis);
  message.set_data(tensor.data.data(), tensor.data.size());
}

// The response as somebody would build it who knows nothing of slices.
v1::EncodeResponse PlainResponse(const Encoded& encoded, v1::DataType type) {
  v1::EncodeResponse response;
  for (const int64_t offset : encoded.plan.token_offsets) {
    response.add_token_offsets(static_cast<uint32_t>(offset));
  }
  Set(*response.mutable_last_hidden_state(), encoded.answer->last_hidden_state, type);
  for (size_t i = 0; i < 2; ++i) {
    v1::LayerTensor& layer = *response.add_hidden_states();
    layer.set_layer(encoded.plan.hidden_layers[i]);
    Set(*layer.mutable_tensor(), encoded.answer->hidden_states[i], type);
  }
  for (const AttentionMap& map : encoded.answer->attentions) {
    v1::AttentionMap& message = *response.add_attentions();
    message.set_sequence(map.sequence);
    message.set_layer(map.layer);
    message.add_heads(1);
    Set(*message.mutable_tensor(), map.tensor, type);
  }
  for (const AnswerTensor& pooled : encoded.answer->pooled) {
    Set(*response.add_pooled(), pooled, type);
  }
  for (const AnswerTensor& contacts : encoded.answer->contacts) {
    Set(*response.add_contacts(), contacts, type);
  }
  response.mutable_timing()->set_queue_us(5);
  response.mutable_timing()->set_compute_us(7000);
  response.mutable_timing()->set_batches(2);
  response.mutable_timing()->set_batch_tokens(300);
  response.mutable_timing()->set_layers_run(2);
  response.set_numerics_id("bits");
  response.set_request_id("id-1");
  return response;
}

TEST(EncodeTest, ParsesAsTheMessageThatProtobufWouldBuild) {
  const struct {
    DataType type;
    v1::DataType wire;
  } types[] = {{DataType::kFp32, v1::DATA_TYPE_FP32},
               {DataType::kBf16, v1::DATA_TYPE_BF16},
               {DataType::kFp16, v1::DATA_TYPE_FP16}};
  for (const size_t tokens : {size_t{3}, size_t{200}}) {  // copied and borrowed data
    for (const auto& [type, wire] : types) {
      const Encoded encoded = EncodeEverything(type, std::vector<int32_t>(tokens, 42));
      const std::string bytes =
          Joined(EncodeResponseBytes(encoded.answer, encoded.plan, encoded.info));
      v1::EncodeResponse parsed;
      ASSERT_TRUE(parsed.ParseFromString(bytes));
      const v1::EncodeResponse plain = PlainResponse(encoded, wire);
      EXPECT_EQ(parsed.SerializeAsString(), plain.SerializeAsString());
      EXPECT_EQ(bytes.size(), plain.ByteSizeLong());
    }
  }
}

TEST(EncodeTest, LeavesOutWhatWasNotAskedFor) {
  const std::vector<int32_t> ids = {1};
  Request request;
  request.sequences = {{.input_ids = ids}};
  request.outputs.pooled = {{}};
  FakeEngine engine;
  const Plan plan = std::get<Plan>(Validate(engine.spec(), {}, request));
  auto answer = std::make_shared<const Answer>(*engine.AllocateAnswer(plan));
  v1::EncodeResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(Joined(EncodeResponseBytes(answer, plan, {}))));
  EXPECT_FALSE(parsed.has_last_hidden_state());
  EXPECT_FALSE(parsed.has_logits());
  EXPECT_EQ(parsed.hidden_states_size(), 0);
  EXPECT_EQ(parsed.attentions_size(), 0);
  EXPECT_EQ(parsed.pooled_size(), 1);
  EXPECT_EQ(parsed.contacts_size(), 0);
}

TEST(EncodeTest, BorrowsTensorsUntilTheBytesAreGone) {
  Encoded encoded = EncodeEverything(DataType::kFp32, std::vector<int32_t>(200, 42));
  const std::weak_ptr<const Answer> answer = encoded.answer;
  const std::byte* states = encoded.answer->last_hidden_state.data.data();
  {
    grpc::ByteBuffer buffer =
        EncodeResponseBytes(std::move(encoded.answer), encoded.plan, encoded.info);
    EXPECT_FALSE(answer.expired());
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    EXPECT_TRUE(std::any_of(slices.begin(), slices.end(), [&](const grpc::Slice& slice) {
      return reinterpret_cast<const std::byte*>(slice.begin()) == states;
    }));
  }
  EXPECT_TRUE(answer.expired());
}

TEST(EncodeTest, NeverNeedsMoreThanItsBound) {
  for (const size_t tokens : {size_t{3}, size_t{500}}) {
    const Encoded encoded = EncodeEverything(DataType::kFp16, std::vector<int32_t>(tokens, 42));
    ResponseInfo info = encoded.info;
    info.timing = {.queue = absl::Hours(1000000),
                   .compute = absl::Hours(1000000),
                   .batches = 4294967295,
                   .batch_tokens = 4294967295};
    const int64_t framing =
        static_cast<int64_t>(EncodeResponseBytes(encoded.answer, encoded.plan, info).Length()) -
        encoded.plan.answer_bytes;
    const int64_t bound =
        FramingBytes(encoded.plan, info.numerics_id.size() + info.request_id.size());
    EXPECT_GT(framing, 0);
    EXPECT_GE(bound, framing);
    EXPECT_LE(bound, framing + 1500);
  }
}

}  // namespace
}  // namespace encoderd
