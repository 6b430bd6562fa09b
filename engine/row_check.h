// row_check.h — whether rows keep their bits in every bucket, tried on this CPU.
//
// Role: at load, for all weights of a model, in however many precisions it is read.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "engine/weights.h"

namespace encoderd {

class RowCheck {
 public:
  // Whether they do in all products of the weights. Tried on each kind of product once: blocks are
  // alike but for the first, which may have an input of another width, and what lies around the
  // blocks is the same in every precision. Norms are alone with their row by construction.
  // Errors: those of Linear::RowsAgree.
  absl::StatusOr<bool> Agree(const EncoderWeights& weights);

 private:
  std::set<std::string> agreeing_;  // by Linear::Kind
};

}  // namespace encoderd
