// Goal: a request means to the engine what its bytes say, or is refused; an answer's bytes are
// those that protobuf itself would write, without a copy of its tensors.
// Method: messages built by protobuf, bytes changed by hand, answers filled by the fake engine.
#include "server/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/server/fake_engine.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

grpc::ByteBuffer Buffered(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Joined(grpc::ByteBuffer buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::optional<Refusal> Decode(const std::string& bytes, DecodedRequest& decoded,
                              DecodeLimits limits = {}) {
  return DecodeEncodeRequest(Buffered(bytes), limits, decoded);
}

// ---- Requests ---------------------------------------------------------------------------------

TEST(DecodeTest, KeepsEveryField) {
  v1::EncodeRequest message;
  message.set_priority(v1::PRIORITY_BULK);
  v1::Sequence& ids = *message.add_sequences();
  for (const int id : {5, 6, -7}) ids.add_input_ids(id);
  for (const int type : {0, 1, 1}) ids.add_token_type_ids(type);
  for (const int position : {2, 1, 0}) ids.add_position_ids(position);
  ids.mutable_mask()->set_keys(std::string("\1\0\1", 3));
  ids.mutable_mask()->set_pairs(std::string(9, '\1'));
  ids.mutable_mask()->set_head_pairs("");
  ids.mutable_mask()->set_causal(true);
  ids.mutable_mask()->add_segment_ids(-4);
  v1::Span& span = *ids.add_spans();
  span.set_begin(1);
  span.set_end(3);
  v1::Tensor& tensor = *message.add_sequences()->mutable_inputs_embeds();
  tensor.set_dtype(v1::DATA_TYPE_BF16);
  tensor.add_shape(-1);
  tensor.add_shape(int64_t{1} << 40);
  tensor.set_data("abc");
  v1::OutputSpec& outputs = *message.mutable_outputs();
  outputs.set_dtype(v1::DATA_TYPE_FP16);
  outputs.set_last_hidden_state(true);
  outputs.add_hidden_states(-1);
  outputs.set_all_hidden_states(true);
  outputs.mutable_attentions()->add_layers(1);
  outputs.mutable_attentions()->add_heads(2);
  outputs.mutable_attentions()->add_query_rows(3);
  v1::PoolingSpec& pooled = *outputs.add_pooled();
  pooled.set_kind(v1::POOLING_MAX);
  pooled.set_normalize(false);
  pooled.set_layer(0);
  pooled.set_dimensions(4);
  outputs.add_pooled();
  outputs.set_logits(true);
  outputs.set_contacts(true);

  DecodedRequest decoded;
  ASSERT_FALSE(Decode(message.SerializeAsString(), decoded).has_value());
  EXPECT_EQ(decoded.faults.total, 0);
  EXPECT_EQ(decoded.priority, Priority::kBulk);
  ASSERT_THAT(decoded.request.sequences, SizeIs(2));

  const Sequence& first = decoded.request.sequences[0];
  EXPECT_THAT(first.input_ids, ElementsAre(5, 6, -7));
  EXPECT_THAT(first.token_type_ids, ElementsAre(0, 1, 1));
  EXPECT_THAT(first.position_ids, ElementsAre(2, 1, 0));
  EXPECT_FALSE(first.inputs_embeds.has_value());
  EXPECT_THAT(first.mask.keys, ElementsAre(1, 0, 1));
  EXPECT_THAT(first.mask.pairs, SizeIs(9));
  EXPECT_THAT(first.mask.head_pairs, IsEmpty());
  EXPECT_TRUE(first.mask.keys_present);
  EXPECT_TRUE(first.mask.pairs_present);
  EXPECT_TRUE(first.mask.head_pairs_present);
  EXPECT_TRUE(first.mask.causal);
  EXPECT_THAT(first.mask.segment_ids, ElementsAre(-4));
  ASSERT_THAT(first.spans, SizeIs(1));
  EXPECT_EQ(first.spans[0].begin, 1);
  EXPECT_EQ(first.spans[0].end, 3);

  const Sequence& second = decoded.request.sequences[1];
  ASSERT_TRUE(second.inputs_embeds.has_value());
  EXPECT_EQ(second.inputs_embeds->dtype, DataType::kBf16);
  EXPECT_THAT(second.inputs_embeds->shape, ElementsAre(-1, int64_t{1} << 40));
  EXPECT_THAT(second.inputs_embeds->data, SizeIs(3));
  EXPECT_FALSE(second.mask.keys_present);

  const OutputSpec& spec = decoded.request.outputs;
  EXPECT_EQ(spec.dtype, DataType::kFp16);
  EXPECT_TRUE(spec.last_hidden_state);
  EXPECT_THAT(spec.hidden_states, ElementsAre(-1));
  EXPECT_TRUE(spec.all_hidden_states);
  ASSERT_TRUE(spec.attentions.has_value());
  EXPECT_THAT(spec.attentions->layers, ElementsAre(1));
  EXPECT_THAT(spec.attentions->heads, ElementsAre(2));
  EXPECT_THAT(spec.attentions->query_rows, ElementsAre(3));
  ASSERT_THAT(spec.pooled, SizeIs(2));
  EXPECT_EQ(spec.pooled[0].kind, Pooling::kMax);
  EXPECT_EQ(spec.pooled[0].normalize, false);
  EXPECT_EQ(spec.pooled[0].layer, 0);
  EXPECT_EQ(spec.pooled[0].dimensions, 4);
  EXPECT_EQ(spec.pooled[1].kind, std::nullopt);
  EXPECT_EQ(spec.pooled[1].normalize, std::nullopt);
  EXPECT_EQ(spec.pooled[1].layer, std::nullopt);
  EXPECT_TRUE(spec.logits);
  EXPECT_TRUE(spec.contacts);
}

TEST(DecodeTest, AMaskWithNothingInItIsAnEmptyListOfKeys) {
  v1::EncodeRequest message;
  message.add_sequences()->mutable_mask();
  message.add_sequences()->mutable_mask()->set_causal(true);
  message.add_sequences();
  DecodedRequest decoded;
  ASSERT_FALSE(Decode(message.SerializeAsString(), decoded).has_value());
  EXPECT_TRUE(decoded.request.sequences[0].mask.keys_present);
  EXPECT_FALSE(decoded.request.sequences[1].mask.keys_present);
  EXPECT_FALSE(decoded.request.sequences[2].mask.keys_present);
}

TEST(DecodeTest, NumbersThatAnEnumerationDoesNotHaveAreFaults) {
  v1::EncodeRequest message;
  message.set_priority(static_cast<v1::Priority>(3));
  message.add_sequences();
  message.add_sequences()->mutable_inputs_embeds()->set_dtype(static_cast<v1::DataType>(9));
  message.mutable_outputs()->set_dtype(static_cast<v1::DataType>(-1));
  message.mutable_outputs()->add_pooled()->set_kind(static_cast<v1::Pooling>(5));
  DecodedRequest decoded;
  ASSERT_FALSE(Decode(message.SerializeAsString(), decoded).has_value());
  std::vector<std::string> fields;
  for (const Violation& fault : decoded.faults.listed) {
    EXPECT_EQ(fault.reason, "UNSUPPORTED_VALUE");
    fields.push_back(fault.field);
  }
  EXPECT_THAT(fields, ElementsAre("priority", "sequences[1].inputs_embeds.dtype", "outputs.dtype",
                                  "outputs.pooled[0].kind"));
}

TEST(DecodeTest, RefusesBytesThatAreNotTheMessage) {
  v1::EncodeRequest message;
  message.add_sequences()->add_input_ids(7);
  message.set_model("m");
  const std::string good = message.SerializeAsString();
  const std::string cases[] = {
      good.substr(0, good.size() - 1),     // cut off
      "\xff\xff\xff\xff\xff\xff\xff\xff",  // no tag
      "hello, world",
      std::string(1, '\0'),               // field number 0
      std::string("\x12\x7f\x0a", 3),     // a sequence longer than the message
      std::string("\x12\x02\x0a\x05", 4)  // ids longer than their sequence
          + std::string(5, '\1'),
      std::string("\x0a\x01\xff", 3),          // a model name that is not UTF-8
      std::string("\x10\x05", 2),              // sequences as a number
      std::string("\x12\x03\x0a\x01\x80", 5),  // a number that does not end
  };
  for (const std::string& bytes : cases) {
    DecodedRequest decoded;
    const auto refusal = Decode(bytes, decoded);
    ASSERT_TRUE(refusal.has_value()) << testing::PrintToString(bytes);
    EXPECT_EQ(refusal->reason, "MALFORMED") << testing::PrintToString(bytes);
    EXPECT_EQ(refusal->status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refusal->status.message()), HasSubstr("encoderd.v1."));
  }
}

TEST(DecodeTest, EveryCutOfAMessageIsRefusedOrParsedWhole) {
  v1::EncodeRequest message;
  v1::Sequence& sequence = *message.add_sequences();
  for (int i = 0; i < 5; ++i) sequence.add_input_ids(i * 100);
  sequence.mutable_mask()->set_keys("\1\1\1\1\1");
  message.mutable_outputs()->add_pooled()->set_layer(-1);
  message.set_request_id("abc");
  const std::string whole = message.SerializeAsString();
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string bytes = whole.substr(0, length);
    DecodedRequest decoded;
    v1::EncodeRequest parsed;
    EXPECT_EQ(Decode(bytes, decoded).has_value(), !parsed.ParseFromString(bytes)) << length;
  }
}

TEST(DecodeTest, RefusesNumbersThatAParserWouldCutOff) {
  // input_ids of sequence 1, packed: 7, then −2⁶³, whose lower half is 0.
  const std::string huge("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 10);
  const std::string packed = std::string("\x12\x00\x12\x0d\x0a\x0b\x07", 7) + huge;
  // The same, one value a field.
  const std::string unpacked = std::string("\x12\x00\x12\x0d\x08\x07\x08", 7) + huge;
  for (const std::string& bytes : {packed, unpacked}) {
    v1::EncodeRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    ASSERT_THAT(parsed.sequences(1).input_ids(), ElementsAre(7, 0));
    DecodedRequest decoded;
    const auto refusal = Decode(bytes, decoded);
    ASSERT_TRUE(refusal.has_value());
    ASSERT_THAT(refusal->violations.listed, SizeIs(1));
    EXPECT_EQ(refusal->reason, "UNSUPPORTED_VALUE");
    EXPECT_EQ(refusal->violations.listed[0].field, "sequences[1].input_ids[1]");
    EXPECT_THAT(refusal->violations.listed[0].description, HasSubstr("-9223372036854775808"));
  }
}

TEST(DecodeTest, TakesNumbersOneValueAField) {
  DecodedRequest decoded;
  ASSERT_FALSE(Decode(std::string("\x12\x06\x08\x07\x0a\x02\x08\x09", 8), decoded).has_value());
  EXPECT_THAT(decoded.request.sequences[0].input_ids, ElementsAre(7, 8, 9));
}

TEST(DecodeTest, RefusesFieldsThatItDoesNotKnow) {
  v1::EncodeRequest message;
  message.mutable_outputs()->set_logits(true);
  // Field 9 of the outputs, a flag; field 30 of the request, some text.
  const std::string bytes = std::string("\x1a\x04\x38\x01\x48\x01\xf2\x01\x02hi", 11);
  DecodedRequest decoded;
  const auto refusal = Decode(bytes, decoded);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, "UNKNOWN_FIELD");
  ASSERT_THAT(refusal->violations.listed, SizeIs(2));
  EXPECT_EQ(refusal->violations.listed[0].field, "outputs");
  EXPECT_THAT(refusal->violations.listed[0].description, HasSubstr("field 9 of"));
  EXPECT_THAT(refusal->violations.listed[1].description, HasSubstr("field 30 of"));
}

TEST(DecodeTest, RefusesMoreElementsThanAnyCallMayHaveBeforeParsingThem) {
  const DecodeLimits limits = {.max_request_sequences = 3, .max_request_tokens = 10};
  v1::EncodeRequest message;
  for (int i = 0; i < 3; ++i) message.add_sequences();
  for (int i = 0; i < 10; ++i) message.mutable_sequences(i % 3)->add_input_ids(i);
  for (int i = 0; i < 10; ++i) message.mutable_sequences(2)->add_spans();
  DecodedRequest at_limit;
  EXPECT_FALSE(Decode(message.SerializeAsString(), at_limit, limits).has_value());

  const struct {
    void (*add)(v1::EncodeRequest&);
    const char* field;
    const char* text;
    const char* reason;
  } cases[] = {
      {[](v1::EncodeRequest& m) { m.add_sequences(); }, "sequences", "more than 3 sequences",
       "TOO_MANY_SEQUENCES"},
      {[](v1::EncodeRequest& m) { m.mutable_sequences(1)->add_input_ids(1); },
       "sequences[2].input_ids", "more than 10 input_ids", "TOO_MANY_TOKENS"},
      {[](v1::EncodeRequest& m) { m.mutable_sequences(2)->add_spans(); }, "sequences[2].spans",
       "more than 10 spans", "TOO_MANY_SPANS"},
      {[](v1::EncodeRequest& m) {
         for (int i = 0; i < 11; ++i) m.mutable_outputs()->add_hidden_states(0);
       },
       "outputs.hidden_states", "more than 10 hidden_states", "TOO_MANY_ELEMENTS"},
      {[](v1::EncodeRequest& m) {
         for (int i = 0; i < 25; ++i) m.mutable_sequences(0)->mutable_inputs_embeds()->add_shape(1);
       },
       "sequences[0].inputs_embeds.shape", "more than 24 shape", "SHAPE_MISMATCH"},
      {[](v1::EncodeRequest& m) {
         for (int i = 0; i < 257; ++i) m.mutable_outputs()->add_pooled();
       },
       "outputs.pooled", "more than 256 pooled", "TOO_MANY_OUTPUTS"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.field);
    v1::EncodeRequest changed = message;
    test.add(changed);
    DecodedRequest decoded;
    const auto refusal = Decode(changed.SerializeAsString(), decoded, limits);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->reason, test.reason);
    EXPECT_EQ(refusal->violations.listed[0].field, test.field);
    EXPECT_THAT(refusal->violations.listed[0].description, HasSubstr(test.text));
    EXPECT_EQ(decoded.message->sequences_size(), 0);
  }
}

TEST(DecodeTest, RefusesMoreBytesThanACallMayHave) {
  v1::EncodeRequest message;
  message.set_model("m");
  const std::string bytes = message.SerializeAsString();
  DecodedRequest decoded;
  EXPECT_FALSE(Decode(bytes, decoded, {.max_request_bytes = 3}).has_value());
  const auto refusal = Decode(bytes, decoded, {.max_request_bytes = 2});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, "REQUEST_TOO_LARGE");
  EXPECT_THAT(std::string(refusal->status.message()), HasSubstr("3 bytes; expected at most 2"));
}

TEST(DecodeTest, WhatItAcceptsIsWhatProtobufReadsAndNothingIsDropped) {
  v1::EncodeRequest message;
  for (int i = 0; i < 3; ++i) {
    v1::Sequence& sequence = *message.add_sequences();
    for (int id = 0; id < 6; ++id) sequence.add_input_ids(id * 200 - 400);
    sequence.mutable_mask()->set_keys("\1\1\1\1\1\1");
    sequence.mutable_mask()->add_segment_ids(-3);
    sequence.mutable_inputs_embeds()->add_shape(int64_t{1} << 40);
    sequence.add_spans()->set_end(5);
  }
  message.mutable_outputs()->mutable_attentions()->add_layers(-1);
  message.mutable_outputs()->add_pooled()->set_normalize(true);
  const std::string good = message.SerializeAsString();

  std::mt19937 random(static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed()));
  const auto below = [&](size_t limit) { return random() % limit; };
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (size_t changes = 1 + below(2); changes > 0; --changes) {
      const size_t at = below(bytes.size());
      switch (below(3)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes.erase(at, 1 + below(4));
          break;
        default:
          bytes.insert(at, 1 + below(3), static_cast<char>(below(256)));
      }
    }
    DecodedRequest decoded;
    if (Decode(bytes, decoded).has_value()) continue;
    ++accepted;
    v1::EncodeRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes)) << testing::PrintToString(bytes);
    const size_t parsed_bytes = parsed.ByteSizeLong();
    parsed.DiscardUnknownFields();
    ASSERT_EQ(parsed.ByteSizeLong(), parsed_bytes) << testing::PrintToString(bytes);
    ASSERT_EQ(decoded.message->SerializeAsString(), parsed.SerializeAsString());
  }
  EXPECT_GT(accepted, 1000);  // else the test is about nothing
}

// ---- Answers ----------------------------------------------------------------------------------

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
