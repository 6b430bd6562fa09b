// Goal: a request means to the engine what its bytes say, or is refused.
// Method: messages built by protobuf, bytes changed by hand.
#include "server/request_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::optional<Refusal> Decode(const std::string& bytes, DecodedRequest& decoded,
                              DecodeLimits limits = {}) {
  grpc::Slice slice(bytes);
  return DecodeEncodeRequest(grpc::ByteBuffer(&slice, 1), limits, decoded);
}

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

}  // namespace
}  // namespace encoderd
