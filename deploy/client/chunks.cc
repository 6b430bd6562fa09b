#include "deploy/client/chunks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"

namespace encoderd::client {
namespace {

// Of an element; 0 for a type that is none.
uint64_t ElementBytes(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FP32:
      return 4;
    case v1::DATA_TYPE_BF16:
    case v1::DATA_TYPE_FP16:
      return 2;
    default:
      return 0;
  }
}

}  // namespace

absl::Status ChunkAssembler::Add(v1::EncodeChunk chunk) {
  if (has_timing_) return absl::DataLossError("the stream goes on after its timing");
  if (chunk.has_head() == has_head_) {
    return absl::DataLossError(has_head_ ? "the stream has a second head"
                                         : "the stream does not begin with its head");
  }
  switch (chunk.part_case()) {
    case v1::EncodeChunk::kHead:
      return AddHead(std::move(*chunk.mutable_head()));
    case v1::EncodeChunk::kPiece:
      return AddPiece(std::move(*chunk.mutable_piece()));
    case v1::EncodeChunk::kTiming:
      *answer_.mutable_timing() = chunk.timing();
      has_timing_ = true;
      return absl::OkStatus();
    default:
      return absl::DataLossError("the stream has a message with nothing in it");
  }
}

absl::Status ChunkAssembler::AddHead(v1::EncodeResponse head) {
  has_head_ = true;
  answer_ = std::move(head);
  if (answer_.has_last_hidden_state()) {
    RETURN_IF_ERROR(AddTensor(*answer_.mutable_last_hidden_state()));
  }
  for (v1::LayerTensor& layer : *answer_.mutable_hidden_states()) {
    RETURN_IF_ERROR(AddTensor(*layer.mutable_tensor()));
  }
  for (v1::AttentionMap& map : *answer_.mutable_attentions()) {
    RETURN_IF_ERROR(AddTensor(*map.mutable_tensor()));
  }
  for (v1::Tensor& pooled : *answer_.mutable_pooled()) RETURN_IF_ERROR(AddTensor(pooled));
  if (answer_.has_logits()) RETURN_IF_ERROR(AddTensor(*answer_.mutable_logits()));
  for (v1::Tensor& contacts : *answer_.mutable_contacts()) RETURN_IF_ERROR(AddTensor(contacts));
  return absl::OkStatus();
}

absl::Status ChunkAssembler::AddTensor(v1::Tensor& tensor) {
  if (!tensor.data().empty()) {
    return absl::DataLossError(absl::StrCat("tensor ", parts_.size(), " has data in the head"));
  }
  uint64_t bytes = ElementBytes(tensor.dtype());
  if (bytes == 0) {
    return absl::DataLossError(absl::StrCat("tensor ", parts_.size(), " has the type ",
                                            static_cast<int>(tensor.dtype()),
                                            "; expected FP32, BF16 or FP16"));
  }
  const uint64_t room = static_cast<uint64_t>(max_bytes_) - announced_bytes_;
  for (const int64_t axis : tensor.shape()) {
    if (axis < 0) {
      return absl::DataLossError(absl::StrCat("tensor ", parts_.size(), " has an axis of ", axis));
    }
    if (axis > 0 && bytes > room / static_cast<uint64_t>(axis)) {
      bytes = room + 1;
      break;
    }
    bytes *= static_cast<uint64_t>(axis);
  }
  if (bytes > room) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer has more than the ", max_bytes_, " bytes that are accepted"));
  }
  announced_bytes_ += bytes;
  parts_.push_back({.tensor = &tensor, .bytes = bytes});
  return absl::OkStatus();
}

absl::Status ChunkAssembler::AddPiece(v1::Piece piece) {
  if (piece.tensor() >= parts_.size()) {
    return absl::DataLossError(absl::StrCat("a piece is of tensor ", piece.tensor(),
                                            "; the head has ", parts_.size()));
  }
  Part& part = parts_[piece.tensor()];
  std::string& data = *part.tensor->mutable_data();
  if (piece.offset() != data.size()) {
    return absl::DataLossError(absl::StrCat("tensor ", piece.tensor(), ": expected a piece at ",
                                            data.size(), ", got one at ", piece.offset()));
  }
  if (piece.data().empty() || piece.data().size() > part.bytes - data.size()) {
    return absl::DataLossError(absl::StrCat(
        "tensor ", piece.tensor(), ": expected a piece of 1 to ", part.bytes - data.size(),
        " bytes, got ", piece.data().size()));
  }
  if (piece.data().size() == part.bytes) {
    data = std::move(*piece.mutable_data());
  } else {
    // Doubles as it grows, but to no more than the head announced.
    if (const uint64_t needed = data.size() + piece.data().size(); needed > data.capacity()) {
      data.reserve(std::min(part.bytes, 2 * needed));
    }
    data += piece.data();
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::EncodeResponse> ChunkAssembler::Take() {
  if (!has_timing_) return absl::DataLossError("the stream ended without its timing");
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].tensor->data().size() == parts_[i].bytes) continue;
    return absl::DataLossError(absl::StrCat("tensor ", i, ": expected ", parts_[i].bytes,
                                            " bytes, got ", parts_[i].tensor->data().size()));
  }
  return std::move(answer_);
}

}  // namespace encoderd::client
