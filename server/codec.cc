#include "server/codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::RepeatedField;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// ---- Wire to engine ---------------------------------------------------------------------------

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

// ---- Engine to wire ---------------------------------------------------------------------------

v1::DataType ToWire(DataType type) {
  switch (type) {
    case DataType::kBf16:
      return v1::DATA_TYPE_BF16;
    case DataType::kFp16:
      return v1::DATA_TYPE_FP16;
    default:
      return v1::DATA_TYPE_FP32;
  }
}

// Puts a message together from pieces: small ones gathered in a string, tensors' data by reference.
class WireWriter {
 public:
  explicit WireWriter(std::shared_ptr<const Answer> answer) : answer_(std::move(answer)) {}

  void Message(const google::protobuf::MessageLite& message) { message.AppendToString(&pending_); }

  // The start of a field that holds `bytes` bytes, which are to follow.
  void Field(int number, size_t bytes) {
    uint8_t head[kMaxHeadBytes];
    uint8_t* end = CodedOutputStream::WriteTagToArray(Tag(number), head);
    end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(bytes), end);
    pending_.append(reinterpret_cast<const char*>(head), static_cast<size_t>(end - head));
  }

  static size_t FieldBytes(int number, size_t bytes) {
    return CodedOutputStream::VarintSize32(Tag(number)) +
           CodedOutputStream::VarintSize32(static_cast<uint32_t>(bytes)) + bytes;
  }

  // A slice of its own costs more than the copy of so few bytes.
  static constexpr size_t kCopiedBytes = 1024;

  void Data(std::span<const std::byte> bytes) {
    if (bytes.size() <= kCopiedBytes) {
      pending_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return;
    }
    Flush();
    // gRPC reads slices only; its interface has no word for it.
    slices_.emplace_back(
        const_cast<std::byte*>(bytes.data()), bytes.size(),
        [](void* owner) { delete static_cast<std::shared_ptr<const Answer>*>(owner); },
        new std::shared_ptr<const Answer>(answer_));
  }

  void Text(const std::string& bytes) { pending_ += bytes; }

  // Of a message without data by reference.
  std::string TakeText() { return std::move(pending_); }

  grpc::ByteBuffer Take() {
    Flush();
    return grpc::ByteBuffer(slices_.data(), slices_.size());
  }

 private:
  static constexpr size_t kMaxHeadBytes = 10;  // two varints of 32 bits

  static uint32_t Tag(int number) {
    return WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }

  void Flush() {
    if (pending_.empty()) return;
    slices_.emplace_back(pending_);
    pending_.clear();
  }

  std::shared_ptr<const Answer> answer_;
  std::string pending_;
  std::vector<grpc::Slice> slices_;
};

// A Tensor in the making: everything but its data, and how long it will be. One without data is a
// shape, on the wire as protobuf has it: the field left out.
struct TensorField {
  TensorField(const AnswerTensor& tensor, DataType type) : data(tensor.data.bytes()) {
    head.set_dtype(ToWire(type));
    head.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    bytes = head.ByteSizeLong();
    if (data.empty()) return;
    bytes += WireWriter::FieldBytes(v1::Tensor::kDataFieldNumber, data.size());
  }

  void Write(int field, WireWriter& out) const {
    out.Field(field, bytes);
    out.Message(head);
    if (data.empty()) return;
    out.Field(v1::Tensor::kDataFieldNumber, data.size());
    out.Data(data);
  }

  v1::Tensor head;
  std::span<const std::byte> data;
  size_t bytes;
};

// A message that has a few fields of its own and a tensor.
void WriteWithTensor(int field, const google::protobuf::MessageLite& head, int tensor_field,
                     const TensorField& tensor, WireWriter& out) {
  out.Field(field, head.ByteSizeLong() + WireWriter::FieldBytes(tensor_field, tensor.bytes));
  out.Message(head);
  tensor.Write(tensor_field, out);
}

v1::Timing ToWire(const Plan& plan, const CallTiming& timing) {
  v1::Timing wire;
  wire.set_queue_us(static_cast<uint64_t>(absl::ToInt64Microseconds(timing.queue)));
  wire.set_compute_us(static_cast<uint64_t>(absl::ToInt64Microseconds(timing.compute)));
  wire.set_batches(static_cast<uint32_t>(timing.batches));
  wire.set_batch_tokens(static_cast<uint32_t>(timing.batch_tokens));
  wire.set_layers_run(static_cast<uint32_t>(plan.layers_run + (plan.last_map_only ? 1 : 0)));
  return wire;
}

// The whole response; a tensor without data is written as its shape.
void WriteResponse(const Answer& answer, const Plan& plan, const ResponseInfo& info,
                   WireWriter& out) {
  using Response = v1::EncodeResponse;
  Response head;
  for (const int64_t offset : plan.token_offsets) {
    head.add_token_offsets(static_cast<uint32_t>(offset));
  }
  if (info.timing.has_value()) *head.mutable_timing() = ToWire(plan, *info.timing);
  head.set_numerics_id(info.numerics_id);
  head.set_request_id(info.request_id);
  out.Message(head);
  if (plan.last_hidden_state) {
    TensorField(answer.last_hidden_state, plan.dtype)
        .Write(Response::kLastHiddenStateFieldNumber, out);
  }
  for (size_t i = 0; i < plan.hidden_layers.size(); ++i) {
    v1::LayerTensor layer;
    layer.set_layer(plan.hidden_layers[i]);
    WriteWithTensor(Response::kHiddenStatesFieldNumber, layer, v1::LayerTensor::kTensorFieldNumber,
                    TensorField(answer.hidden_states[i], plan.dtype), out);
  }
  v1::AttentionMap map_head;
  map_head.mutable_heads()->Assign(plan.attention_heads.begin(), plan.attention_heads.end());
  map_head.mutable_query_rows()->Assign(plan.query_rows.begin(), plan.query_rows.end());
  for (const AttentionMap& map : answer.attentions) {
    map_head.set_sequence(map.sequence);
    map_head.set_layer(map.layer);
    WriteWithTensor(Response::kAttentionsFieldNumber, map_head,
                    v1::AttentionMap::kTensorFieldNumber, TensorField(map.tensor, plan.dtype), out);
  }
  for (const AnswerTensor& pooled : answer.pooled) {
    TensorField(pooled, plan.dtype).Write(Response::kPooledFieldNumber, out);
  }
  if (plan.logits) TensorField(answer.logits, plan.dtype).Write(Response::kLogitsFieldNumber, out);
  for (const AnswerTensor& contacts : answer.contacts) {
    TensorField(contacts, plan.dtype).Write(Response::kContactsFieldNumber, out);
  }
}

// ---- Parts of an answer in the whole ------------------------------------------------------------

size_t PlaceIn(const std::vector<int32_t>& list, int32_t value) {
  return static_cast<size_t>(std::ranges::find(list, value) - list.begin());
}

// Lists the stretches of one part.
class Stretches {
 public:
  Stretches(const Plan& whole, const Plan& part) : whole_(whole), part_(part) {}

  // A tensor whose rows are tokens, or pooled vectors: `offsets` says which.
  void AddRows(size_t tensor, const std::vector<int64_t> Plan::* offsets,
               const AnswerTensor& rows) {
    AddRows(tensor, (whole_.*offsets)[whole_.PlaceOf(part_.first_sequence)], rows);
  }
  void AddLogits(size_t tensor, const AnswerTensor& logits) {
    AddRows(tensor, whole_.FirstLogitsRow(whole_.PlaceOf(part_.first_sequence)), logits);
  }

  // All of one tensor, which may have no bytes.
  void AddWhole(size_t tensor, const AnswerTensor& whole) {
    if (whole.data.size() > 0) Add(tensor, 0, whole.data.bytes());
  }

  // A map of the part's heads and query rows, which follow each other in the whole plan's lists.
  void AddMap(size_t tensor, const AttentionMap& map) {
    const auto heads = static_cast<size_t>(map.tensor.shape[0]);
    const auto rows = static_cast<size_t>(map.tensor.shape[1]);
    const auto columns = static_cast<size_t>(map.tensor.shape[2]);
    const size_t row_bytes = columns * DataTypeBytes(part_.dtype);
    const size_t whole_rows = whole_.query_rows.empty() ? columns : whole_.query_rows.size();
    const size_t first_head = PlaceIn(whole_.attention_heads, part_.attention_heads[0]);
    size_t first_row = 0;
    if (!part_.query_rows.empty()) {
      first_row = whole_.query_rows.empty() ? static_cast<size_t>(part_.query_rows[0])
                                            : PlaceIn(whole_.query_rows, part_.query_rows[0]);
    }
    const auto offset_of = [&](size_t head) {
      return ((first_head + head) * whole_rows + first_row) * row_bytes;
    };
    if (rows == whole_rows) return Add(tensor, offset_of(0), map.tensor.data.bytes());
    for (size_t head = 0; head < heads; ++head) {
      Add(tensor, offset_of(head),
          map.tensor.data.bytes().subspan(head * rows * row_bytes, rows * row_bytes));
    }
  }

  std::vector<Stretch> Take() { return std::move(stretches_); }

 private:
  void AddRows(size_t tensor, int64_t first_row, const AnswerTensor& rows) {
    const size_t row_bytes = rows.data.size() / static_cast<size_t>(rows.shape[0]);
    Add(tensor, static_cast<size_t>(first_row) * row_bytes, rows.data.bytes());
  }
  void Add(size_t tensor, size_t offset, std::span<const std::byte> data) {
    stretches_.push_back({static_cast<uint32_t>(tensor), offset, data});
  }

  const Plan& whole_;
  const Plan& part_;
  std::vector<Stretch> stretches_;
};

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

grpc::ByteBuffer EncodeResponseBytes(std::shared_ptr<const Answer> answer, const Plan& plan,
                                     const ResponseInfo& info) {
  WireWriter out(answer);
  WriteResponse(*answer, plan, info, out);
  return out.Take();
}

int64_t FramingBytes(const Plan& plan, size_t ids_bytes) {
  // A tensor: its own tag and length, type, three axes, tag and length of the data, and the message
  // around it with a layer and a sequence. A varint of 32 bits takes at most 5 bytes, an axis 10.
  constexpr int64_t kTensorBytes = 96;
  constexpr int64_t kNumberBytes = 5;
  constexpr int64_t kHeadBytes = 96;  // timing, and the tags and lengths of what follows
  const auto sequences = static_cast<int64_t>(plan.token_offsets.size()) - 1;
  const int64_t maps =
      plan.attentions ? sequences * static_cast<int64_t>(plan.attention_layers.size()) : 0;
  const auto map_numbers =
      static_cast<int64_t>(plan.attention_heads.size() + plan.query_rows.size());
  const auto tensors = 2 + static_cast<int64_t>(plan.hidden_layers.size() + plan.pooled.size()) +
                       maps + (plan.contacts ? sequences : 0);
  return kHeadBytes + static_cast<int64_t>(ids_bytes) + kNumberBytes * (sequences + 1) +
         kTensorBytes * tensors + kNumberBytes * map_numbers * maps;
}

grpc::ByteBuffer EncodeHeadBytes(const Answer& shapes, const Plan& plan, const ResponseInfo& info) {
  WireWriter response(nullptr);
  WriteResponse(shapes, plan, info, response);
  const std::string bytes = response.TakeText();
  WireWriter out(nullptr);
  out.Field(v1::EncodeChunk::kHeadFieldNumber, bytes.size());
  out.Text(bytes);
  return out.Take();
}

std::vector<Stretch> StretchesOf(const Plan& whole, const Plan& part, const Answer& answer) {
  const size_t sequences = whole.token_offsets.size() - 1;
  const size_t first_hidden = whole.last_hidden_state ? 1 : 0;
  const size_t first_map = first_hidden + whole.hidden_layers.size();
  const size_t first_pooled =
      first_map + (whole.attentions ? sequences * whole.attention_layers.size() : 0);
  const size_t logits = first_pooled + whole.pooled.size();
  const size_t first_contacts = logits + (whole.logits ? 1 : 0);

  Stretches found(whole, part);
  if (part.last_hidden_state) found.AddRows(0, &Plan::token_offsets, answer.last_hidden_state);
  for (size_t i = 0; i < part.hidden_layers.size(); ++i) {
    found.AddRows(first_hidden + PlaceIn(whole.hidden_layers, part.hidden_layers[i]),
                  &Plan::token_offsets, answer.hidden_states[i]);
  }
  for (const AttentionMap& map : answer.attentions) {
    found.AddMap(first_map + whole.PlaceOf(map.sequence) * whole.attention_layers.size() +
                     PlaceIn(whole.attention_layers, map.layer),
                 map);
  }
  for (size_t i = 0; i < part.pooled.size(); ++i) {
    found.AddRows(first_pooled + part.pooled[i].index, &Plan::pooled_offsets, answer.pooled[i]);
  }
  if (part.logits) found.AddLogits(logits, answer.logits);
  for (size_t i = 0; i < answer.contacts.size(); ++i) {
    found.AddWhole(first_contacts + whole.PlaceOf(part.first_sequence) + i, answer.contacts[i]);
  }
  return found.Take();
}

grpc::ByteBuffer EncodePieceBytes(std::shared_ptr<const Answer> answer, const Stretch& piece) {
  v1::Piece head;
  head.set_tensor(piece.tensor);
  head.set_offset(piece.offset);
  constexpr int kData = v1::Piece::kDataFieldNumber;
  WireWriter out(std::move(answer));
  out.Field(v1::EncodeChunk::kPieceFieldNumber,
            head.ByteSizeLong() + WireWriter::FieldBytes(kData, piece.data.size()));
  out.Message(head);
  out.Field(kData, piece.data.size());
  out.Data(piece.data);
  return out.Take();
}

grpc::ByteBuffer EncodeTimingBytes(const Plan& plan, const CallTiming& timing) {
  v1::EncodeChunk chunk;
  *chunk.mutable_timing() = ToWire(plan, timing);
  const grpc::Slice bytes(chunk.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

v1::Pooling ToWire(Pooling pooling) {
  switch (pooling) {
    case Pooling::kCls:
      return v1::POOLING_CLS;
    case Pooling::kMean:
      return v1::POOLING_MEAN;
    case Pooling::kMax:
      return v1::POOLING_MAX;
    case Pooling::kPooler:
      return v1::POOLING_POOLER;
  }
  return v1::POOLING_UNSPECIFIED;
}

}  // namespace encoderd
