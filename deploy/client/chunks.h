// chunks.h — puts the answer of EncodeChunked together from its pieces.
//
// Role:   between a stream that is trusted in nothing and answer.h, which reads the whole.
// Memory: at most twice what has come, since a tensor grows by doubling, and never more than the
//         limit, whatever the head claims.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoderd/v1/encoder.pb.h"

namespace encoderd::client {

class ChunkAssembler {
 public:
  // `max_bytes`: the largest answer to take, all tensors together.
  explicit ChunkAssembler(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // The next message of the stream. Errors: kDataLoss where it contradicts those before it,
  // kResourceExhausted for a head that announces more than max_bytes. Nothing is to be added after
  // an error.
  absl::Status Add(v1::EncodeChunk chunk);

  // The answer as Encode would have given it. Errors: kDataLoss when something is missing.
  // REQUIRES: called once, after the stream has ended with OK.
  absl::StatusOr<v1::EncodeResponse> Take();

 private:
  // A tensor of the answer, in the order of Piece.tensor.
  struct Part {
    v1::Tensor* tensor = nullptr;
    uint64_t bytes = 0;  // when complete
  };

  absl::Status AddHead(v1::EncodeResponse head);
  absl::Status AddTensor(v1::Tensor& tensor);
  absl::Status AddPiece(v1::Piece piece);

  const int64_t max_bytes_;
  bool has_head_ = false;
  bool has_timing_ = false;
  v1::EncodeResponse answer_;
  std::vector<Part> parts_;
  uint64_t announced_bytes_ = 0;
};

}  // namespace encoderd::client
