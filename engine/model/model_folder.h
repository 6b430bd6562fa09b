// model_folder.h — opens a folder as its users save it: config.json, model.safetensors, and what
// sentence-transformers puts beside them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/spec.h"

namespace encoderd {

struct ModelFolder {
  EncoderSpec spec;  // what the checkpoint really has
  Checkpoint checkpoint;
  std::string weights_sha256;    // of the bytes of model.safetensors
  std::string tokenizer_sha256;  // of tokenizer.json, else of vocab.txt; empty: neither is there
};

// Errors: kNotFound or kInvalidArgument that say what is wrong with which file; for a folder with
// weights in another format, or in several files, what to do.
absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& dir);

}  // namespace encoderd
