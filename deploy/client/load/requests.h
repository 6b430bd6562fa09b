// requests.h — the calls of a load, serialised before it starts.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/client/load/load.h"
#include "encoderd/v1/encoder.pb.h"

namespace encoderd::client {

// At most so many requests and bytes, at least one request; a run begins again when it has used
// all.
inline constexpr size_t kMaxPoolRequests = 4096;
inline constexpr size_t kMaxPoolBytes = size_t{64} << 20;

struct PreparedRequest {
  grpc::ByteBuffer bytes;  // an EncodeRequest; sending shares them
  uint32_t num_bytes = 0;
  uint32_t tokens = 0;
};

// Requests whose lengths follow options.lengths: one of each equal share of the distribution, in
// random order, so that even a small pool has its mean. Ids are random ones of the vocabulary;
// models that take vectors get numbers in [-1, 1). Pure: the same seed, the same bytes. Errors:
// kInvalidArgument where the model takes no such sequences, naming the limit.
absl::StatusOr<std::vector<PreparedRequest>> PrepareRequests(const LoadOptions& options,
                                                             const v1::GetModelResponse& model);

}  // namespace encoderd::client
