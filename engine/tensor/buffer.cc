#include "engine/tensor/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

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

}  // namespace

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

absl::StatusOr<Buffer> Buffer::Allocate(size_t bytes, std::string_view what) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > PhysicalMemoryBytes()) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: cannot allocate %d bytes: the machine has %d", what, bytes, PhysicalMemoryBytes()));
  }
  const size_t alignment = bytes < kHugePageBytes ? kAlignment : kHugePageBytes;
  void* data = nullptr;
  if (posix_memalign(&data, alignment, bytes) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: cannot allocate %d bytes: out of memory", what, bytes));
  }
  // Advice only: a kernel without transparent huge pages refuses it and nothing is lost.
  if (bytes >= kHugePageBytes) madvise(data, bytes, MADV_HUGEPAGE);
  buffer.data_.reset(static_cast<std::byte*>(data));
  buffer.size_ = bytes;
  return buffer;
}

}  // namespace encoderd
