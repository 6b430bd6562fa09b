#include "deploy/client/answer.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/tensor/convert.h"
#include "engine/tensor/shape.h"

namespace encoderd::client {
namespace {

std::optional<DataType> FromWire(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FP32:
      return DataType::kFp32;
    case v1::DATA_TYPE_BF16:
      return DataType::kBf16;
    case v1::DATA_TYPE_FP16:
      return DataType::kFp16;
    default:
      return std::nullopt;
  }
}

// Number of elements, or nothing where a length is negative or the product passes 64 bits.
std::optional<uint64_t> NumElements(std::span<const int64_t> shape) {
  uint64_t product = 1;
  for (const int64_t length : shape) {
    if (length < 0 || __builtin_mul_overflow(product, static_cast<uint64_t>(length), &product)) {
      return std::nullopt;
    }
  }
  return product;
}

// A tensor of exactly this shape, where -1 stands for any length.
absl::StatusOr<FloatTensor> DecodeShaped(const v1::Tensor& tensor, absl::string_view field,
                                         std::span<const int64_t> expected) {
  ASSIGN_OR_RETURN(FloatTensor decoded, DecodeTensor(tensor, field));
  bool fits = decoded.shape.size() == expected.size();
  for (size_t i = 0; fits && i < expected.size(); ++i) {
    fits = expected[i] < 0 || expected[i] == decoded.shape[i];
  }
  if (fits) return decoded;
  return absl::DataLossError(absl::StrCat(field, ": expected shape ", ShapeText(expected),
                                          " (-1 = any), got ", ShapeText(decoded.shape)));
}

absl::StatusOr<std::vector<int64_t>> ReadOffsets(const v1::EncodeResponse& response) {
  const std::vector<int64_t> offsets(response.token_offsets().begin(),
                                     response.token_offsets().end());
  bool rising = !offsets.empty() && offsets[0] == 0;
  for (size_t i = 1; rising && i < offsets.size(); ++i) rising = offsets[i - 1] <= offsets[i];
  if (rising) return offsets;
  return absl::DataLossError(
      absl::StrCat("token_offsets: expected numbers that rise from 0, got ", ShapeText(offsets)));
}

absl::StatusOr<AttentionMap> ReadAttention(const v1::AttentionMap& map, absl::string_view field,
                                           std::span<const int64_t> offsets) {
  if (map.sequence() + size_t{1} >= offsets.size()) {
    return absl::DataLossError(absl::StrCat(field, ".sequence: expected less than ",
                                            offsets.size() - 1, ", got ", map.sequence()));
  }
  const int64_t tokens = offsets[map.sequence() + 1] - offsets[map.sequence()];
  AttentionMap read{.sequence = map.sequence(),
                    .layer = map.layer(),
                    .heads = {map.heads().begin(), map.heads().end()},
                    .query_rows = {map.query_rows().begin(), map.query_rows().end()},
                    .weights = {}};
  const int64_t rows = read.query_rows.empty() ? tokens : map.query_rows_size();
  const std::vector<int64_t> shape = {map.heads_size(), rows, tokens};
  ASSIGN_OR_RETURN(read.weights, DecodeShaped(map.tensor(), absl::StrCat(field, ".tensor"), shape));
  // On the wire no rows stand for all rows. The data is here, so their number is an honest one.
  for (int32_t row = 0; read.query_rows.size() < static_cast<size_t>(rows); ++row) {
    read.query_rows.push_back(row);
  }
  return read;
}

absl::StatusOr<std::vector<FloatTensor>> ReadContacts(const v1::EncodeResponse& response,
                                                      std::span<const int64_t> offsets) {
  if (response.contacts_size() + size_t{1} != offsets.size()) {
    return absl::DataLossError(absl::StrCat("contacts: expected one for each of ",
                                            offsets.size() - 1, " sequences, got ",
                                            response.contacts_size()));
  }
  std::vector<FloatTensor> contacts;
  for (int i = 0; i < response.contacts_size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t inner = std::max<int64_t>(offsets[at + 1] - offsets[at] - 2, 0);
    const std::vector<int64_t> shape = {inner, inner};
    ASSIGN_OR_RETURN(FloatTensor tensor,
                     DecodeShaped(response.contacts(i), absl::StrCat("contacts[", i, "]"), shape));
    contacts.push_back(std::move(tensor));
  }
  return contacts;
}

}  // namespace

std::span<const float> FloatTensor::Row(int64_t row) const {
  const size_t width = static_cast<size_t>(shape[1]);
  return std::span(values).subspan(static_cast<size_t>(row) * width, width);
}

std::span<const float> AttentionMap::Head(size_t index) const {
  const size_t map_elements = static_cast<size_t>(weights.shape[1] * weights.shape[2]);
  return std::span(weights.values).subspan(index * map_elements, map_elements);
}

absl::StatusOr<FloatTensor> DecodeTensor(const v1::Tensor& tensor, absl::string_view field) {
  const std::optional<DataType> type = FromWire(tensor.dtype());
  if (!type.has_value()) {
    return absl::DataLossError(absl::StrCat(
        field, ": expected element type FP32, BF16 or FP16, got ", int{tensor.dtype()}));
  }
  FloatTensor decoded{
      .wire_type = *type, .shape = {tensor.shape().begin(), tensor.shape().end()}, .values = {}};
  const std::optional<uint64_t> elements = NumElements(decoded.shape);
  // Compared by division: the data is there, so its size is the one number that can be trusted.
  const size_t element_bytes = DataTypeBytes(*type);
  if (!elements.has_value() || tensor.data().size() % element_bytes != 0 ||
      tensor.data().size() / element_bytes != *elements) {
    return absl::DataLossError(
        absl::StrCat(field, ": expected data of shape ", ShapeText(decoded.shape), " and type ",
                     std::string(DataTypeName(*type)), ", got ", tensor.data().size(), " bytes"));
  }
  decoded.values.resize(*elements);
  WidenToFp32(*type, std::as_bytes(std::span(tensor.data())), decoded.values);
  return decoded;
}

absl::StatusOr<Answer> ReadAnswer(const v1::EncodeResponse& response) {
  Answer answer;
  ASSIGN_OR_RETURN(answer.token_offsets, ReadOffsets(response));
  const std::vector<int64_t> token_rows = {answer.tokens(), -1};
  const std::vector<int64_t> any_rows = {-1, -1};
  if (response.has_last_hidden_state()) {
    ASSIGN_OR_RETURN(answer.last_hidden_state,
                     DecodeShaped(response.last_hidden_state(), "last_hidden_state", token_rows));
  }
  for (int i = 0; i < response.hidden_states_size(); ++i) {
    const v1::LayerTensor& state = response.hidden_states(i);
    ASSIGN_OR_RETURN(
        FloatTensor tensor,
        DecodeShaped(state.tensor(), absl::StrCat("hidden_states[", i, "]"), token_rows));
    answer.hidden_states.emplace_back(state.layer(), std::move(tensor));
  }
  for (int i = 0; i < response.attentions_size(); ++i) {
    ASSIGN_OR_RETURN(AttentionMap map,
                     ReadAttention(response.attentions(i), absl::StrCat("attentions[", i, "]"),
                                   answer.token_offsets));
    answer.attentions.push_back(std::move(map));
  }
  for (int i = 0; i < response.pooled_size(); ++i) {
    ASSIGN_OR_RETURN(FloatTensor tensor,
                     DecodeShaped(response.pooled(i), absl::StrCat("pooled[", i, "]"), any_rows));
    answer.pooled.push_back(std::move(tensor));
  }
  if (response.has_logits()) {
    // A row of logits for each token, or for each sequence; those are the model's to choose.
    const bool by_sequence =
        response.logits().shape_size() == 2 && response.logits().shape(0) == answer.sequences();
    const std::vector<int64_t> sequence_rows = {answer.sequences(), -1};
    ASSIGN_OR_RETURN(answer.logits, DecodeShaped(response.logits(), "logits",
                                                 by_sequence ? sequence_rows : token_rows));
  }
  if (response.contacts_size() > 0) {
    ASSIGN_OR_RETURN(answer.contacts, ReadContacts(response, answer.token_offsets));
  }
  answer.timing = response.timing();
  answer.numerics_id = response.numerics_id();
  answer.request_id = response.request_id();
  return answer;
}

}  // namespace encoderd::client
