#include "engine/row_check.h"

namespace encoderd {

absl::StatusOr<bool> RowCheck::Agree(const EncoderWeights& weights) {
  absl::StatusOr<bool> agree = true;
  weights.ForEachOperation(
      [&](const ops::Linear& linear) {
        const std::string kind = linear.Kind();
        if (!agree.ok() || !*agree || agreeing_.contains(kind)) return;
        agree = linear.RowsAgree();
        if (agree.ok() && *agree) agreeing_.insert(kind);
      },
      [](const ops::LayerNorm&) {});
  return agree;
}

}  // namespace encoderd
