// file.h — read-only files by position: the bytes that were asked for or an error that says which
// were missing.
//
// Role: under every reader of a model folder. Files are read with pread and never mapped, so one
//       that is truncated or replaced while the server runs can neither kill it nor change what it
//       has loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace encoderd {

// An open regular file. Movable, not copyable. Reads may run concurrently.
class File {
 public:
  // Errors: kNotFound, kPermissionDenied … as the system reports them; kInvalidArgument when `path`
  // is not a regular file.
  static absl::StatusOr<File> Open(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  // Size when the file was opened.
  uint64_t size_bytes() const { return size_bytes_; }

  // Fills dst with the bytes at `offset`. Errors: kDataLoss when the file has become shorter.
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> dst) const;

 private:
  File(std::string path, int descriptor, uint64_t size_bytes);

  std::string path_;
  int descriptor_ = -1;
  uint64_t size_bytes_ = 0;
};

// The whole file as text. Errors: as above; kInvalidArgument when it has more than `max_bytes`.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes);

// SHA-256 of the file's bytes, as 64 lower-case hexadecimal digits. Reads in pieces of 1 MiB.
absl::StatusOr<std::string> FileSha256(const File& file);

// SHA-256 of `bytes`, as 64 lower-case hexadecimal digits.
std::string Sha256(std::string_view bytes);

}  // namespace encoderd
