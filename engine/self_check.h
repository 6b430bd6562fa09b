// self_check.h — asks a loaded model what selfcheck.safetensors of its folder asks, and compares
// the answers with what is written there.
//
// Role:   the last step of Engine::Load: a model that does not give what the program which saved it
//         gave is not served. The format of the file: README.md beside this file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace encoderd {

// Errors: kInvalidArgument when the file is not as the format says, asks for something that the
// model cannot take or give, or expects other numbers: then with the output, the element, what was
// expected, what came and the tolerance. The file's own, and those of Engine::CreateWorker and
// Worker::Run.
absl::StatusOr<SelfCheckResult> RunSelfCheck(const Engine& engine, const std::string& path);

}  // namespace encoderd
