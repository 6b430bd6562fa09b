// model_folder.h — opens a folder as its users save it: config.json, the weights in one file or
// several, and what sentence-transformers puts beside them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/spec.h"

namespace encoderd {

struct ModelFolder {
  EncoderSpec spec;  // what the checkpoint really has
  Checkpoint checkpoint;
  std::string weights_sha256;    // WeightFiles::Sha256
  std::string tokenizer_sha256;  // of tokenizer.json, else of vocab.txt; empty: neither is there
  std::vector<std::string> stray_files;  // WeightFiles::strays
};

// Under `strict`, a tensor that the model does not use is an error, unless it is known to mean
// nothing. Errors: kNotFound or kInvalidArgument that say, for every file at once, what is wrong
// with it; for a folder with weights in another format, what to do.
absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& dir, bool strict = false);

}  // namespace encoderd
