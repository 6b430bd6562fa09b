// faults.h — collects everything that is wrong with a model folder's files, to report it at once.
#pragma once

#include <cstddef>
#include <string>
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

  // OK when there are none. Else kInvalidArgument: "what: fault", or "what: 3 faults:" and one line
  // for each of the first kMaxListed.
  absl::Status ToStatus(const std::string& what) const;

 private:
  std::vector<std::string> faults_;
};

// Collects the errors of a folder's files, each of which names its file, to report them at once.
class FaultReport {
 public:
  // Takes an error; OK is none.
  void Add(const absl::Status& status) {
    if (!status.ok()) errors_.push_back(status);
  }

  // OK when there are none; the only error as it is; else kInvalidArgument with one below the
  // other.
  absl::Status ToStatus() const;

 private:
  std::vector<absl::Status> errors_;
};

}  // namespace encoderd
