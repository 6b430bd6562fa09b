// load_weights.h — reads a checkpoint into what the forward pass uses.
//
// Role: where names and bytes of a file meet the spec of a model.
#pragma once

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/spec.h"
#include "engine/precision.h"
#include "engine/row_check.h"
#include "engine/weights.h"

namespace encoderd {

// Reads and packs everything the spec names, the blocks' products in the given precision and what
// lies in front of and behind the blocks in fp32; steps of two stacks that are the same are held
// once.
// Also decides how rows are cut: in steps where a row's bits do not depend on the bucket (`check`,
// one for all precisions of a model), else in fixed blocks. Errors: those of the checkpoint and of
// the operations; kInvalidArgument that names every tensor with numbers that are not finite,
// embedding tables apart, unless they are allowed; kResourceExhausted when memory runs out.
absl::StatusOr<EncoderWeights> LoadWeights(const EncoderSpec& spec, const Checkpoint& checkpoint,
                                           Precision precision, bool allow_nonfinite,
                                           RowCheck& check);

}  // namespace encoderd
