// buffer.h — owned, aligned, uninitialised memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"

namespace encoderd {

// 64-byte aligned bytes, uninitialised. Movable, not copyable; an empty buffer owns nothing.
class Buffer {
 public:
  // 64: one cache line, and the widest vector that the kernels load.
  static constexpr size_t kAlignment = 64;

  Buffer() = default;

  // Errors: kResourceExhausted naming `what` and the size when the memory cannot be had. 0 bytes is
  // legal. Buffers of 2 MiB and more ask the kernel for huge pages.
  static absl::StatusOr<Buffer> Allocate(size_t bytes, std::string_view what);

  // The same, all zero. Fresh pages are zero without being touched: memory is taken as it is
  // written.
  static absl::StatusOr<Buffer> AllocateZeroed(size_t bytes, std::string_view what);

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }
  // The memory seen as fp32: size() / 4 elements.
  std::span<float> floats() const {
    return {reinterpret_cast<float*>(data_.get()), size_ / sizeof(float)};
  }

 private:
  struct Free {
    size_t mapped_bytes;  // 0: from the heap
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_{nullptr, Free{0}};
  size_t size_ = 0;
};

}  // namespace encoderd
