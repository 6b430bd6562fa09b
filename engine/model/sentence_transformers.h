// sentence_transformers.h — what modules.json says about an encoder and the vectors made from it.
//
// Source: sentence-transformers 2 to 6: modules.json lists the steps, each with a folder of its own
//         and a config.json in it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/model/spec.h"

namespace encoderd {

struct SentenceTransformer {
  std::string encoder_dir;  // holds config.json and the weights
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  int64_t pooled_width = 0;  // 0: not stated
};

// Reads `dir`/modules.json and what it points to. Supported are Transformer, Pooling with one of
// cls, mean and max, and Normalize, in this order. Errors: kInvalidArgument that names the module,
// or the key and its value, that is not supported; a path that leaves the folder.
absl::StatusOr<SentenceTransformer> ReadSentenceTransformer(const std::string& dir);

}  // namespace encoderd
