#include "engine/tensor/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "engine/status_macros.h"
#include "engine/tensor/rounding.h"

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

// A region of whole huge pages; null when there is no memory.
std::shared_ptr<std::byte> MapRegion(size_t size) {
  const size_t mapped = size + kHugePageBytes;
  void* const data =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) return nullptr;
  auto* const bytes = static_cast<std::byte*>(data);
  const size_t skipped = -reinterpret_cast<uintptr_t>(data) % kHugePageBytes;
  AskForHugePages(bytes + skipped, size);
  const std::shared_ptr<std::byte> owner(bytes, [mapped](std::byte* p) { munmap(p, mapped); });
  return {owner, bytes + skipped};
}

}  // namespace

absl::StatusOr<Buffer> Buffer::AllocateLasting(size_t bytes, std::string_view what) {
  // What is not written of a region takes no memory.
  constexpr size_t kRegionBytes = size_t{32} << 20;
  static std::mutex mutex;
  static auto& last = *new std::weak_ptr<std::byte>();  // region, of which
  static size_t used = 0, size = 0;
  if (bytes == 0) return Buffer();
  RETURN_IF_ERROR(CheckFits(bytes, what));
  const size_t part = RoundUp(bytes, kAlignment);
  const std::lock_guard lock(mutex);
  std::shared_ptr<std::byte> region = last.lock();
  if (region == nullptr || size - used < part) {
    used = 0;
    size = RoundUp(std::max(part, kRegionBytes), kHugePageBytes);
    region = MapRegion(size);
    last = region;
    if (region == nullptr) return OutOfMemory(bytes, what);
  }
  std::byte* const data = region.get() + used;
  used += part;
  return Buffer({std::move(region), data}, bytes);
}

absl::StatusOr<Buffer> Buffer::AllocateZeroed(size_t bytes, std::string_view what) {
  ASSIGN_OR_RETURN(Buffer buffer, Allocate(bytes, what));
  std::ranges::fill(buffer.bytes(), std::byte{0});
  return buffer;
}

absl::StatusOr<Buffer> Buffer::Allocate(size_t bytes, std::string_view what) {
  if (bytes == 0) return Buffer();
  RETURN_IF_ERROR(CheckFits(bytes, what));
  const size_t alignment = bytes < kHugePageBytes ? kAlignment : kHugePageBytes;
  void* data = nullptr;
  if (posix_memalign(&data, alignment, bytes) != 0) {
    return OutOfMemory(bytes, what);
  }
  if (bytes >= kHugePageBytes) AskForHugePages(data, bytes);
  return Buffer(std::shared_ptr<std::byte>(static_cast<std::byte*>(data), std::free), bytes);
}

}  // namespace encoderd
