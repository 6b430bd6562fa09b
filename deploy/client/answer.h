// answer.h — the tensors of an answer, checked and widened to fp32.
//
// Role:   between the bytes that a server sent, which are trusted in nothing, and what prints or
//         draws them. After ReadAnswer every index below is inside its tensor.
// Shapes: as encoder.proto states them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "encoderd/v1/encoder.pb.h"
#include "engine/tensor/data_type.h"

namespace encoderd::client {

struct FloatTensor {
  DataType wire_type = DataType::kFp32;  // what `values` were widened from
  std::vector<int64_t> shape;
  std::vector<float> values;

  // Row `row` of a tensor of rank 2.
  std::span<const float> Row(int64_t row) const;
};

// Errors: kDataLoss naming `field` where the type is unknown, or the shape does not fit the data.
absl::StatusOr<FloatTensor> DecodeTensor(const v1::Tensor& tensor, absl::string_view field);

struct AttentionMap {
  uint32_t sequence = 0;
  int32_t layer = 0;
  std::vector<int32_t> heads;
  std::vector<int32_t> query_rows;  // all of them, also where the wire leaves them out
  FloatTensor weights;              // [heads, query rows, S]

  // The map of one head, [query rows, S].
  std::span<const float> Head(size_t index) const;
};

struct Answer {
  std::vector<int64_t> token_offsets;  // [sequences + 1], rising from 0
  std::optional<FloatTensor> last_hidden_state;
  std::vector<std::pair<int32_t, FloatTensor>> hidden_states;  // by layer
  std::vector<AttentionMap> attentions;
  std::vector<FloatTensor> pooled;
  std::optional<FloatTensor> logits;  // [tokens, columns] or [sequences, labels]
  std::vector<FloatTensor> contacts;  // by sequence: [S - 2, S - 2], or [0, 0]
  v1::Timing timing;
  std::string numerics_id;
  std::string request_id;

  int64_t sequences() const { return static_cast<int64_t>(token_offsets.size()) - 1; }
  int64_t tokens() const { return token_offsets.back(); }
};

// Errors: kDataLoss where the answer contradicts itself, naming the field.
absl::StatusOr<Answer> ReadAnswer(const v1::EncodeResponse& response);

}  // namespace encoderd::client
