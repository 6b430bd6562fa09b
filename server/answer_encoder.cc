#include "server/answer_encoder.h"

#include <grpcpp/support/slice.h>

#include <span>
#include <utility>

#include "absl/time/time.h"
#include "server/wire_writer.h"

namespace encoderd {
namespace {

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

}  // namespace

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
