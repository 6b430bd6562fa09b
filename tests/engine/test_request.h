// test_request.h — requests for the tests of validation: one without a fault, to be changed, and what
// is found in it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/validation.h"

namespace encoderd {

inline EncoderSpec TokenSpec() {
  EncoderSpec spec;
  spec.family = "bert";
  spec.vocab_size = 30522;
  spec.type_vocab_size = 2;
  spec.positions = PositionKind::kLearned;
  spec.max_positions = 512;
  spec.num_layers = 6;
  spec.hidden_size = 384;
  spec.num_heads = 12;
  spec.ffn_size = 1536;
  return spec;
}

inline EncoderSpec VectorSpec() {
  EncoderSpec spec;
  spec.family = "shared_projection_encoder";
  spec.input = InputKind::kVectors;
  spec.input_dim = 8;
  spec.num_layers = 2;
  spec.hidden_size = 8;
  spec.num_heads = 2;
  return spec;
}

// A request that owns what its spans point to. Ids are 0, 1, … 99, 0, ….
class TestRequest {
 public:
  explicit TestRequest(std::vector<size_t> lengths) : ids_(lengths.size()) {
    request.sequences.resize(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (size_t t = 0; t < lengths[i]; ++t) ids_[i].push_back(static_cast<int32_t>(t % 100));
      request.sequences[i].input_ids = ids_[i];
    }
    request.outputs.last_hidden_state = true;
  }

  Sequence& sequence(size_t i = 0) { return request.sequences[i]; }
  void SetIds(size_t i, std::vector<int32_t> ids) {
    ids_[i] = std::move(ids);
    request.sequences[i].input_ids = ids_[i];
  }
  std::span<const int32_t> Ints(std::vector<int32_t> values) {
    ints_.push_back(std::move(values));
    return ints_.back();
  }
  std::span<const uint8_t> Bytes(std::vector<uint8_t> values) {
    bytes_.push_back(std::move(values));
    return bytes_.back();
  }
  void SetVectors(size_t i, std::vector<int64_t> shape, size_t num_floats, float value = 0.5f) {
    floats_.emplace_back(num_floats, value);
    SetVectors(i, std::move(shape), std::as_bytes(std::span(floats_.back())));
  }
  void SetVectors(size_t i, std::vector<int64_t> shape, std::span<const std::byte> data) {
    shapes_.push_back(std::move(shape));
    request.sequences[i].input_ids = {};
    request.sequences[i].inputs_embeds = InputTensor{.shape = shapes_.back(), .data = data};
  }
  void SetKeys(size_t i, std::vector<uint8_t> keys) {
    request.sequences[i].mask.keys = Bytes(std::move(keys));
    request.sequences[i].mask.keys_present = true;
  }
  void SetPairs(size_t i, std::vector<uint8_t> pairs) {
    request.sequences[i].mask.pairs = Bytes(std::move(pairs));
    request.sequences[i].mask.pairs_present = true;
  }
  void SetHeadPairs(size_t i, std::vector<uint8_t> pairs) {
    request.sequences[i].mask.head_pairs = Bytes(std::move(pairs));
    request.sequences[i].mask.head_pairs_present = true;
  }
  std::vector<float>& floats() { return floats_.back(); }

  Request request;

 private:
  std::vector<std::vector<int32_t>> ids_;
  std::list<std::vector<int32_t>> ints_;
  std::list<std::vector<uint8_t>> bytes_;
  std::list<std::vector<float>> floats_;
  std::list<std::vector<int64_t>> shapes_;
};

inline Violations Faults(const EncoderSpec& spec, const Request& request,
                         RequestLimits limits = {}) {
  auto checked = Validate(spec, limits, request);
  if (auto* faults = std::get_if<Violations>(&checked)) return *std::move(faults);
  return {};
}

inline Plan PlanOf(const EncoderSpec& spec, const Request& request, RequestLimits limits = {}) {
  auto checked = Validate(spec, limits, request);
  if (auto* faults = std::get_if<Violations>(&checked)) {
    ADD_FAILURE() << faults->listed[0].field << ": " << faults->listed[0].description;
    return {};
  }
  return std::get<Plan>(std::move(checked));
}

inline auto IsFault(const std::string& reason, const std::string& field, const std::string& text) {
  return ::testing::AllOf(
      ::testing::Field("reason", &Violation::reason, reason),
      ::testing::Field("field", &Violation::field, field),
      ::testing::Field("description", &Violation::description, ::testing::HasSubstr(text)),
      ::testing::Field("code", &Violation::code, absl::StatusCode::kInvalidArgument));
}

}  // namespace encoderd
