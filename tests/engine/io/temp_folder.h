// temp_folder.h — a folder of a test's own, gone when the test ends.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace encoderd {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "encoderd_XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path() const { return path_.string(); }
  std::string Path(std::string_view name) const { return (path_ / name).string(); }

  // Writes (or overwrites in place) a file, with the folders above it, and returns its path.
  std::string Write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    EXPECT_TRUE(file.good()) << path;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace encoderd
