// tensor_names.h — finds a spec's tensors in a file that may spell and wrap their names in its own
// way.
//
// Role: names alone. Three habits of checkpoints are undone here: a family's other endings ("gamma"
//       for "weight"), the prefix that a wrapping module put in front ("bert.", "model."), and
//       one name for a tensor of two uses.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/spec.h"
#include "engine/model/tensor_list.h"
#include "engine/model/weight_files.h"

namespace encoderd {

// What the file puts in front of the spec's names. One wrapper may lie inside the other: a
// predictor whose blocks alone are called "transformer.layers.…".
struct NamePrefixes {
  std::string outside;  // of tensors outside the blocks
  std::string blocks;   // begins with `outside`

  std::string Of(const ExpectedTensor& tensor) const {
    if (tensor.part == ExpectedTensor::Part::kProjection) return "";
    return tensor.layer < 0 ? outside : blocks;
  }
};

class TensorNameFinder {
 public:
  // Borrows all.
  TensorNameFinder(const WeightFiles& files, const std::vector<SuffixAlias>& aliases,
                   const std::vector<Tie>& ties);

  // The prefixes under which the file has every required tensor: none if that fits, else the only
  // ones that do. When none do, those that fit best, to report what is missing under them. Errors:
  // kInvalidArgument when several fit, naming them.
  absl::StatusOr<NamePrefixes> FindPrefixes(const std::vector<ExpectedTensor>& expected) const;

  // The file's tensors that are `name`, in any spelling, or else those that it is tied to: one when
  // all is well.
  std::vector<const TensorEntry*> Find(const std::string& prefix, const std::string& name) const;

  // Up to three names of the file that look like `name` and are not `taken`, nearest first. Of a
  // file with very many names, the first ones only are looked at.
  std::vector<std::string> Nearest(const std::string& name,
                                   const std::set<std::string>& taken) const;

 private:
  std::vector<const TensorEntry*> FindUntied(const std::string& prefix,
                                             const std::string& name) const;
  std::vector<std::string> Spellings(const std::string& name) const;
  std::vector<std::string> Candidates(const std::vector<const ExpectedTensor*>& group) const;
  size_t CountFound(const std::string& prefix,
                    const std::vector<const ExpectedTensor*>& group) const;

  const WeightFiles& files_;
  const std::vector<SuffixAlias>& aliases_;
  const std::vector<Tie>& ties_;
};

// Whether `name` is `ending`, or ends with "." + ending.
bool EndsWithPart(const std::string& name, const std::string& ending);

}  // namespace encoderd
