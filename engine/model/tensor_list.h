// tensor_list.h — the tensors that a spec needs: names and shapes, nothing of files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/spec.h"

namespace encoderd {

// `pattern` with the block's index, or its group's, in place of "{layer}".
std::string LayerName(std::string_view pattern, int64_t layer);

struct ExpectedTensor {
  enum class Part { kRequired, kPooler, kFinalNorm, kRotaryFrequencies, kContact, kProjection };

  std::string name;            // as the spec has it, "{layer}" filled in
  std::vector<int64_t> shape;  // [out, in] of a linear layer, as PyTorch stores it
  bool more_rows = false;      // the file's tensor may have more rows than shape[0]
  Part part = Part::kRequired;
  int64_t layer = -1;  // the index in the name; -1 outside the blocks
};

// Every tensor of the spec, in the order in which the encoder uses them; parts that the spec calls
// optional are marked, and so is the projection, which no wrapper's prefix stands in front of. REQUIRES: ValidateSpec(spec).ok().
std::vector<ExpectedTensor> ExpectedTensors(const EncoderSpec& spec);

// The tensors that two specs both have, without a shape where they differ in it. REQUIRES:
// CanListTensors of both. Of one spec and itself: all of its tensors.
std::vector<ExpectedTensor> CommonTensors(const EncoderSpec& one, const EncoderSpec& other);

}  // namespace encoderd
