// faults.h — collects everything that is wrong with a model folder's files, to report it at once.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace encoderd {

class Faults {
 public:
  static constexpr size_t kMaxListed = 20;

  void Add(std::string fault) { faults_.push_back(std::move(fault)); }
  bool empty() const { return faults_.empty(); }
  size_t size() const { return faults_.size(); }

  const std::vector<std::string>& all() const { return faults_; }

  // A fault may leave open what a key should have said, by its path, or all keys (""), or, whatever
  // the keys say, which tensors there should be.
  void Doubt(std::string path) { in_doubt_.insert(std::move(path)); }
  void DoubtTensors() { tensors_in_doubt_ = true; }
  bool InDoubt(std::string_view path) const {
    return in_doubt_.contains(path) || in_doubt_.contains("");
  }
  bool tensors_in_doubt() const { return tensors_in_doubt_; }

  // OK when there are none. Else kInvalidArgument: "what: fault", or "what: 3 faults:" and one line
  // for each of the first kMaxListed.
  absl::Status ToStatus(const std::string& what) const;

 private:
  std::vector<std::string> faults_;
  std::set<std::string, std::less<>> in_doubt_;
  bool tensors_in_doubt_ = false;
};

// Collects the errors of a folder's files, each of which names its file, to report them at once.
class FaultReport {
 public:
  // Takes an error; OK is none.
  void Add(const absl::Status& status) {
    if (!status.ok()) errors_.push_back(status);
  }

  bool empty() const { return errors_.empty(); }

  // OK when there are none; the only error as it is; else kInvalidArgument with one below the
  // other.
  absl::Status ToStatus() const;

 private:
  std::vector<absl::Status> errors_;
};

}  // namespace encoderd
