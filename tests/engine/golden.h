// golden.h — reads the folders of tests/goldens: what to ask a model, and what PyTorch says must
// come out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"

namespace encoderd {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// One call. Owns what its request points to.
struct GoldenCase {
  std::string name;
  Request request;  // sequences without outputs
  std::vector<std::vector<int32_t>> ints;
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<std::vector<int64_t>> shapes;
};

struct Golden {
  std::string folder;
  std::vector<std::string> models;  // folders that must all give this golden
  std::vector<std::unique_ptr<GoldenCase>> cases;
  std::map<std::string, GoldenTensor> tensors;

  // The tensor that case and sequence should give, or null when the golden has none.
  const GoldenTensor* Find(const GoldenCase& golden_case, size_t sequence,
                           const std::string& output) const;
};

// All folders in tests/goldens that hold one, by name.
std::vector<std::string> GoldenNames();

// Ends the test program with a message when the golden cannot be read.
Golden ReadGolden(const std::string& name);

}  // namespace encoderd
