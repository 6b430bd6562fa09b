#include "engine/tensor/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

// 2 MiB: the huge page of x86-64 and of arm64 with 4 KiB base pages.
constexpr size_t kHugePageBytes = size_t{2} << 20;

// What the machine has. More than that can be promised by an overcommitting kernel but never be
// filled, so it is refused at once and not by the OOM killer later.
size_t PhysicalMemoryBytes() {
  static const size_t bytes =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  return bytes;
}

absl::Status CheckFits(size_t bytes, std::string_view what) {
  if (bytes <= PhysicalMemoryBytes()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: cannot allocate %d bytes: the machine has %d", what, bytes, PhysicalMemoryBytes()));
}

absl::Status OutOfMemory(size_t bytes, std::string_view what) {
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s: cannot allocate %d bytes: out of memory", what, bytes));
}

// Advice only: a kernel without transparent huge pages refuses it and nothing is lost.
void AskForHugePages(void* data, size_t bytes) { madvise(data, bytes, MADV_HUGEPAGE); }

}  // namespace

void Buffer::Free::operator()(std::byte* data) const {
  if (mapped_bytes > 0) {
    munmap(data, mapped_bytes);
  } else {
    std::free(data);
  }
}

absl::StatusOr<Buffer> Buffer::AllocateZeroed(size_t bytes, std::string_view what) {
  if (bytes < kHugePageBytes) {
    ASSIGN_OR_RETURN(Buffer buffer, Allocate(bytes, what));
    std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{0});
    return buffer;
  }
  RETURN_IF_ERROR(CheckFits(bytes, what));
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) return OutOfMemory(bytes, what);
  AskForHugePages(data, bytes);
  Buffer buffer;
  buffer.data_ = {static_cast<std::byte*>(data), Free{.mapped_bytes = bytes}};
  buffer.size_ = bytes;
  return buffer;
}

absl::StatusOr<Buffer> Buffer::Allocate(size_t bytes, std::string_view what) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  RETURN_IF_ERROR(CheckFits(bytes, what));
  const size_t alignment = bytes < kHugePageBytes ? kAlignment : kHugePageBytes;
  void* data = nullptr;
  if (posix_memalign(&data, alignment, bytes) != 0) {
    return OutOfMemory(bytes, what);
  }
  if (bytes >= kHugePageBytes) AskForHugePages(data, bytes);
  buffer.data_.reset(static_cast<std::byte*>(data));
  buffer.size_ = bytes;
  return buffer;
}

}  // namespace encoderd
