#include "engine/io/file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/status_macros.h"

namespace encoderd {

File::File(std::string path, int descriptor, uint64_t size_bytes)
    : path_(std::move(path)), descriptor_(descriptor), size_bytes_(size_bytes) {}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<File> File::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; it is refused below.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  File file(path, descriptor, 0);
  struct stat info;
  if (fstat(descriptor, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot examine ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  file.size_bytes_ = static_cast<uint64_t>(info.st_size);
  return file;
}

absl::Status File::ReadAt(uint64_t offset, std::span<std::byte> dst) const {
  while (!dst.empty()) {
    const ssize_t got = pread(descriptor_, dst.data(), dst.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    if (got == 0) {
      return absl::DataLossError(
          absl::StrFormat("%s: expected at least %d bytes, found %d: the file has become shorter",
                          path_, offset + dst.size(), offset));
    }
    offset += static_cast<uint64_t>(got);
    dst = dst.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const File file, File::Open(path));
  if (file.size_bytes() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%s has %d bytes; expected at most %d", path,
                                                      file.size_bytes(), max_bytes));
  }
  std::string text(file.size_bytes(), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

absl::StatusOr<std::string> FileSha256(const File& file) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  bool ok = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<std::byte> piece(size_t{1} << 20);
  for (uint64_t offset = 0; ok && offset < file.size_bytes();) {
    const size_t bytes = std::min<uint64_t>(piece.size(), file.size_bytes() - offset);
    RETURN_IF_ERROR(file.ReadAt(offset, std::span(piece).first(bytes)));
    ok = EVP_DigestUpdate(context.get(), piece.data(), bytes) == 1;
    offset += bytes;
  }
  std::string digest(32, '\0');
  ok = ok && EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                nullptr) == 1;
  if (!ok) return absl::InternalError(absl::StrCat("SHA-256 of ", file.path(), " failed"));
  return absl::BytesToHexString(digest);
}

std::string Sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return absl::BytesToHexString(digest);
}

}  // namespace encoderd
