// checkpoint.h — where the bytes of a weights file meet the shapes of a spec.
//
// Role: the one place that knows both. Behind it every tensor is there, under the spec's own name,
//       with the spec's shape, in a type that can be read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/spec.h"
#include "engine/model/tensor_list.h"
#include "engine/model/weight_files.h"
#include "engine/tensor/buffer.h"

namespace encoderd {

// Movable; reads may run concurrently.
class Checkpoint {
 public:
  // Finds each tensor of the spec in the file: under a wrapper's prefix and in the family's other
  // spellings where the file has them. Takes out of the spec what is optional and not in the file.
  // REQUIRES: ValidateSpec(*spec).ok(), no tensor was left unread. Errors: kInvalidArgument that lists every fault: a tensor
  // missing (with the nearest names), there in two spellings, of another shape, of a type that is
  // no float; under `strict`, a tensor in unused().
  static absl::StatusOr<Checkpoint> Resolve(WeightFiles files, EncoderSpec* spec,
                                            bool strict = false);
  // What can be said of the files although others of their folder have faults, so that there will
  // be no checkpoint: about the tensors that are certain to be expected (SpecFromConfig's
  // `possible`; of a spec without faults, itself) and were not left unread. Errors: as Resolve
  // without `strict`.
  static absl::Status Judge(const WeightFiles& files, const std::vector<EncoderSpec>& possible);

  const WeightFiles& files() const { return files_; }

  // Names are the spec's, with LayerName applied.
  bool Has(std::string_view name) const { return tensors_.contains(name); }
  // What the file calls it. REQUIRES: Has(name).
  const std::string& NameInFile(std::string_view name) const {
    return tensors_.find(name)->second.name;
  }

  // The whole tensor as fp32; of a word table, the vocab_size rows that ids can reach. Errors:
  // kNotFound when the spec has no such tensor; kResourceExhausted; kDataLoss when the file has
  // become shorter.
  absl::StatusOr<Buffer> Read(std::string_view name) const;
  // The same into memory of exactly that size.
  absl::Status ReadInto(std::string_view name, std::span<float> dst) const;

  // The files' own names, in the order of WeightFiles::tensors.
  const std::vector<std::string>& used() const { return used_; }
  const std::vector<std::string>& unused() const { return unused_; }
  // Not used, and known to mean nothing.
  const std::vector<std::string>& harmless() const { return harmless_; }
  // Numbers in all tensors that are read; one that is used twice counts once.
  int64_t parameters() const { return parameters_; }

 private:
  explicit Checkpoint(WeightFiles files) : files_(std::move(files)) {}

  // Fills used_, which are the wanted ones, unused_ and harmless_.
  void ListNames(const std::set<std::string>& wanted,
                 const std::vector<std::string>& harmless_endings);
  void CountParameters();
  absl::StatusOr<TensorEntry> Entry(std::string_view name) const;

  WeightFiles files_;
  std::map<std::string, TensorEntry, std::less<>> tensors_;  // by the spec's names
  std::vector<std::string> used_, unused_, harmless_;
  int64_t parameters_ = 0;
};

}  // namespace encoderd
