#include "engine/model/config_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/status_macros.h"

namespace encoderd {

std::string JoinPath(std::string_view dir, std::string_view name) {
  return (std::filesystem::path(dir) / name).string();
}

bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool IsInside(const std::string& path) {
  const std::filesystem::path relative(path);
  return relative.is_relative() && std::none_of(relative.begin(), relative.end(),
                                                [](const auto& part) { return part == ".."; });
}

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path) {
  constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxBytes));
  return ParseJson(text, path);
}

}  // namespace encoderd
