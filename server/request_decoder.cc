#include "server/request_decoder.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::RepeatedField;

void AddFault(Violations& faults, std::string field, int number, const char* expected) {
  ++faults.total;
  if (faults.listed.size() == kMaxViolations) return;
  faults.listed.push_back({.reason = "UNSUPPORTED_VALUE",
                           .field = std::move(field),
                           .description = absl::StrCat("expected ", expected, ", got ", number)});
}

DataType FromWire(v1::DataType type, const std::string& field, Violations& faults) {
  switch (type) {
    case v1::DATA_TYPE_UNSPECIFIED:
    case v1::DATA_TYPE_FP32:
      return DataType::kFp32;
    case v1::DATA_TYPE_BF16:
      return DataType::kBf16;
    case v1::DATA_TYPE_FP16:
      return DataType::kFp16;
    default:
      AddFault(faults, field, type, "a DataType from 0 to 3");
      return DataType::kFp32;
  }
}

std::optional<Pooling> FromWire(v1::Pooling kind, const std::string& field, Violations& faults) {
  switch (kind) {
    case v1::POOLING_UNSPECIFIED:
      return std::nullopt;
    case v1::POOLING_CLS:
      return Pooling::kCls;
    case v1::POOLING_MEAN:
      return Pooling::kMean;
    case v1::POOLING_MAX:
      return Pooling::kMax;
    case v1::POOLING_POOLER:
      return Pooling::kPooler;
    default:
      AddFault(faults, field, kind, "a Pooling from 0 to 4");
      return std::nullopt;
  }
}

Priority FromWire(v1::Priority priority, Violations& faults) {
  switch (priority) {
    case v1::PRIORITY_UNSPECIFIED:
    case v1::PRIORITY_INTERACTIVE:
      return Priority::kInteractive;
    case v1::PRIORITY_BULK:
      return Priority::kBulk;
    default:
      AddFault(faults, "priority", priority, "a Priority from 0 to 2");
      return Priority::kInteractive;
  }
}

std::span<const int32_t> View(const RepeatedField<int32_t>& values) {
  return {values.data(), static_cast<size_t>(values.size())};
}
std::span<const uint8_t> View(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}
std::vector<int32_t> Copy(const RepeatedField<int32_t>& values) {
  return {values.begin(), values.end()};
}

Mask FromWire(const v1::Mask& mask) {
  Mask view = {.keys = View(mask.keys()),
               .pairs = View(mask.pairs()),
               .head_pairs = View(mask.head_pairs()),
               .causal = mask.causal(),
               .segment_ids = View(mask.segment_ids()),
               .keys_present = mask.has_keys(),
               .pairs_present = mask.has_pairs(),
               .head_pairs_present = mask.has_head_pairs()};
  // A client whose language has no presence sends an empty list of keys as a mask with nothing in
  // it. That is a mistake of the caller's, not "everything may be seen".
  if (!view.pairs_present && !view.head_pairs_present && !view.causal && view.segment_ids.empty()) {
    view.keys_present = true;
  }
  return view;
}

Sequence FromWire(const v1::Sequence& sequence, int index, Violations& faults) {
  Sequence view = {.input_ids = View(sequence.input_ids()),
                   .token_type_ids = View(sequence.token_type_ids()),
                   .position_ids = View(sequence.position_ids())};
  if (sequence.has_inputs_embeds()) {
    const v1::Tensor& tensor = sequence.inputs_embeds();
    view.inputs_embeds = InputTensor{
        .dtype = FromWire(tensor.dtype(),
                          absl::StrCat("sequences[", index, "].inputs_embeds.dtype"), faults),
        .shape = {tensor.shape().data(), static_cast<size_t>(tensor.shape_size())},
        .data = std::as_bytes(View(tensor.data()))};
  }
  if (sequence.has_mask()) view.mask = FromWire(sequence.mask());
  view.spans.reserve(static_cast<size_t>(sequence.spans_size()));
  for (const v1::Span& span : sequence.spans()) view.spans.push_back({span.begin(), span.end()});
  return view;
}

OutputSpec FromWire(const v1::OutputSpec& outputs, Violations& faults) {
  OutputSpec spec = {.dtype = FromWire(outputs.dtype(), "outputs.dtype", faults),
                     .last_hidden_state = outputs.last_hidden_state(),
                     .hidden_states = Copy(outputs.hidden_states()),
                     .all_hidden_states = outputs.all_hidden_states(),
                     .logits = outputs.logits(),
                     .contacts = outputs.contacts()};
  if (outputs.has_attentions()) {
    spec.attentions = AttentionSpec{.layers = Copy(outputs.attentions().layers()),
                                    .heads = Copy(outputs.attentions().heads()),
                                    .query_rows = Copy(outputs.attentions().query_rows())};
  }
  for (int i = 0; i < outputs.pooled_size(); ++i) {
    const v1::PoolingSpec& asked = outputs.pooled(i);
    PoolingSpec pooled = {
        .kind = FromWire(asked.kind(), absl::StrCat("outputs.pooled[", i, "].kind"), faults),
        .dimensions = asked.dimensions()};
    if (asked.has_normalize()) pooled.normalize = asked.normalize();
    if (asked.has_layer()) pooled.layer = asked.layer();
    spec.pooled.push_back(pooled);
  }
  return spec;
}

// What the parser may allocate for, by the name of the list.
ElementLimit ElementLimitOf(const FieldDescriptor& field, const DecodeLimits& limits) {
  if (field.name() == "sequences") return {limits.max_request_sequences, "TOO_MANY_SEQUENCES"};
  if (field.name() == "input_ids") return {limits.max_request_tokens, "TOO_MANY_TOKENS"};
  if (field.name() == "spans") return {limits.max_request_tokens, "TOO_MANY_SPANS"};
  if (field.name() == "pooled") return {kMaxPooledOutputs, "TOO_MANY_OUTPUTS"};
  if (field.name() == "shape") return {8 * limits.max_request_sequences, "SHAPE_MISMATCH"};
  return {limits.max_request_tokens, "TOO_MANY_ELEMENTS"};
}

}  // namespace

std::optional<Refusal> ParseMessage(const grpc::ByteBuffer& bytes, int64_t max_bytes,
                                    const ElementLimits& limits,
                                    google::protobuf::Message& message) {
  if (bytes.Length() > static_cast<size_t>(max_bytes)) {
    return Refusal{.status = absl::InvalidArgumentError(absl::StrCat(
                       "the request has ", bytes.Length(), " bytes; expected at most ", max_bytes)),
                   .reason = "REQUEST_TOO_LARGE"};
  }
  // Readers take the buffer by a pointer that is not const and leave it as it is.
  grpc::ByteBuffer view(bytes);
  grpc::ProtoBufferReader scanned(&view);
  Violations dropped;
  const absl::Status well_formed = ScanMessage(*message.GetDescriptor(), scanned, limits, dropped);
  if (!well_formed.ok()) return Refusal{.status = well_formed, .reason = "MALFORMED"};
  if (dropped.total > 0) return RefusalOf(std::move(dropped));

  grpc::ProtoBufferReader parsed(&view);
  if (message.ParseFromZeroCopyStream(&parsed)) return std::nullopt;
  return Refusal{.status = absl::InvalidArgumentError(absl::StrCat(
                     "the bytes are not a ", message.GetTypeName(), ": expected text in UTF-8")),
                 .reason = "MALFORMED"};
}

std::optional<Refusal> DecodeEncodeRequest(const grpc::ByteBuffer& bytes,
                                           const DecodeLimits& limits, DecodedRequest& decoded) {
  const auto element_limits = [&](const FieldDescriptor& field) {
    return ElementLimitOf(field, limits);
  };
  if (auto refusal =
          ParseMessage(bytes, limits.max_request_bytes, element_limits, *decoded.message)) {
    return refusal;
  }
  const v1::EncodeRequest& message = *decoded.message;
  decoded.priority = FromWire(message.priority(), decoded.faults);
  decoded.request.sequences.reserve(static_cast<size_t>(message.sequences_size()));
  for (int i = 0; i < message.sequences_size(); ++i) {
    decoded.request.sequences.push_back(FromWire(message.sequences(i), i, decoded.faults));
  }
  decoded.request.outputs = FromWire(message.outputs(), decoded.faults);
  return std::nullopt;
}

}  // namespace encoderd
