// config_files.h — finds and reads the small JSON files of a model folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace encoderd {

// What the model must give, beside its weights; see engine/README.md.
inline constexpr char kSelfCheckFile[] = "selfcheck.safetensors";

std::string JoinPath(std::string_view dir, std::string_view name);

// Whether there is anything of this name.
bool FileExists(const std::string& path);

// Whether `path`, as a file of the folder names it, stays below the folder: relative and without
// "..". A link inside the folder may lead anywhere: caches are made of them.
bool IsInside(const std::string& path);

// The file's JSON value. Errors: as File::Open and ParseJson; kInvalidArgument for a file of more
// than 16 MiB: a configuration with a label for every word is smaller.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path);

}  // namespace encoderd
