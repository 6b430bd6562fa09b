// sentence_transformers.h — what modules.json says about an encoder and the vectors made from it.
//
// Source: sentence-transformers 2 to 6: modules.json lists the steps, each with a folder of its own
//         and a config.json in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/faults.h"
#include "engine/model/spec.h"

namespace encoderd {

// A Dense module: y = activation(x · Wᵀ + b), with W and b as "linear.…" in weights of its own.
struct DenseModule {
  std::string path;  // as modules.json has it, inside the model folder
  int64_t in = 0;    // 0: after errors, unknown, and so is the step
  Step step;         // names begin with the path and a "."
};

struct SentenceTransformer {
  std::string encoder_dir;  // holds config.json and the weights; empty: after errors, unknown
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  int64_t pooled_width = 0;  // 0: not stated
  std::vector<DenseModule> dense;
};

// Reads `dir`/modules.json and what it points to. Supported are Transformer, Pooling with one of
// cls, mean and max, any number of Dense, and Normalize, in this order. Errors go into the report,
// and what they are about is left out of the result: each names the module, or the key and its
// value, that is not supported; a path that leaves the folder.
SentenceTransformer ReadSentenceTransformer(const std::string& dir, FaultReport& report);

}  // namespace encoderd
