// buffer.h — owned, aligned, uninitialised memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

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

  // The same, all zero.
  static absl::StatusOr<Buffer> AllocateZeroed(size_t bytes, std::string_view what);

  // As AllocateZeroed, for what lives as long as a model or a worker. Such buffers lie side by side
  // in regions of huge pages, whatever their size: weights and rows of a small model in pages of 4 KiB
  // cost its products a quarter of their speed. Memory is taken as it is written, a huge page at a
  // time, and given back when nothing of its region is in use. Thread-safe.
  static absl::StatusOr<Buffer> AllocateLasting(size_t bytes, std::string_view what);

  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }
  // The memory seen as fp32: size() / 4 elements.
  std::span<float> floats() const {
    return {reinterpret_cast<float*>(data_.get()), size_ / sizeof(float)};
  }

 private:
  Buffer(std::shared_ptr<std::byte> data, size_t size) : data_(std::move(data)), size_(size) {}

  std::shared_ptr<std::byte> data_;  // shared by the buffers of a region, each with its own part
  size_t size_ = 0;
};

}  // namespace encoderd
