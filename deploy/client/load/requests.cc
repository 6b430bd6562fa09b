#include "deploy/client/load/requests.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"

namespace encoderd::client {
namespace {

absl::Status CheckFits(const LoadOptions& options, const v1::GetModelResponse& model) {
  const int64_t longest = options.lengths.max();
  if (longest > model.max_sequence_tokens()) {
    return absl::InvalidArgumentError(absl::StrCat("--lengths=", options.lengths.name(),
                                                   ": expected sequences of at most ",
                                                   model.max_sequence_tokens(), " tokens, as ",
                                                   model.name(), " takes, got some of ", longest));
  }
  if (options.sequences > model.max_request_sequences()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sequences: expected at most ", model.max_request_sequences(), ", as ",
                     model.name(), " takes, got ", options.sequences));
  }
  if (longest * options.sequences > model.max_request_tokens()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sequences: expected at most ", model.max_request_tokens(), " tokens per call, as ",
        model.name(), " takes, got up to ", options.sequences, " sequences of ", longest));
  }
  return absl::OkStatus();
}

void FillSequence(int64_t length, const v1::GetModelResponse& model, std::mt19937_64& random,
                  v1::Sequence& sequence) {
  if (model.input_dim() == 0) {
    for (int64_t i = 0; i < length; ++i) {
      sequence.add_input_ids(static_cast<int32_t>(UnitRandom(random) * model.vocab_size()));
    }
    return;
  }
  std::vector<float> values(static_cast<size_t>(length) * model.input_dim());
  for (float& value : values) value = static_cast<float>(2 * UnitRandom(random) - 1);
  v1::Tensor& tensor = *sequence.mutable_inputs_embeds();
  tensor.set_dtype(v1::DATA_TYPE_FP32);
  tensor.add_shape(length);
  tensor.add_shape(model.input_dim());
  tensor.set_data(values.data(), values.size() * sizeof(float));
}

// How many requests the pool has: as many as fit, were all of them of mean size.
size_t NumRequests(const LoadOptions& options, const v1::GetModelResponse& model) {
  const double token_bytes = model.input_dim() == 0 ? 3 : 4.0 * model.input_dim();
  const double request_bytes =
      options.lengths.mean() * static_cast<double>(options.sequences) * token_bytes;
  return std::clamp(static_cast<size_t>(kMaxPoolBytes / request_bytes), size_t{1},
                    kMaxPoolRequests);
}

PreparedRequest Serialise(const v1::EncodeRequest& request, int64_t tokens) {
  const grpc::Slice slice(request.SerializeAsString());
  return {.bytes = grpc::ByteBuffer(&slice, 1),
          .num_bytes = static_cast<uint32_t>(slice.size()),
          .tokens = static_cast<uint32_t>(tokens)};
}

}  // namespace

absl::StatusOr<std::vector<PreparedRequest>> PrepareRequests(const LoadOptions& options,
                                                             const v1::GetModelResponse& model) {
  RETURN_IF_ERROR(CheckFits(options, model));
  std::mt19937_64 random(options.seed);
  const size_t num_requests = NumRequests(options, model);
  const auto per_request = static_cast<size_t>(options.sequences);
  std::vector<int64_t> lengths(num_requests * per_request);
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = options.lengths.At((static_cast<double>(i) + UnitRandom(random)) /
                                    static_cast<double>(lengths.size()));
  }
  std::ranges::shuffle(lengths, random);

  v1::EncodeRequest request;
  request.set_model(options.model);
  *request.mutable_outputs() = options.outputs;
  request.set_priority(options.priority);
  request.set_max_response_bytes(static_cast<uint64_t>(options.max_response_bytes));
  std::vector<PreparedRequest> pool;
  for (size_t i = 0; i < num_requests; ++i) {
    request.clear_sequences();
    int64_t tokens = 0;
    for (size_t j = 0; j < per_request; ++j) {
      const int64_t length = lengths[i * per_request + j];
      FillSequence(length, model, random, *request.add_sequences());
      tokens += length;
    }
    pool.push_back(Serialise(request, tokens));
  }
  return pool;
}

}  // namespace encoderd::client
