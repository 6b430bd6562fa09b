// pool.h — objects that are made once and used again, counted by those who use them.
#pragma once

#include <atomic>
#include <utility>

namespace encoderd {

// Free while nobody refers to it.
class Pooled {
 public:
  // Takes a free object; false when somebody has it.
  bool TryTake() {
    int free = 0;
    return users_.compare_exchange_strong(free, 1, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }

 private:
  template <typename T>
  friend class PoolRef;
  std::atomic<int> users_{0};
};

// A use of an object, shared with all copies of the reference. The last one to go frees the object.
template <typename T>
class PoolRef {
 public:
  PoolRef() = default;
  // Of an object that has been taken.
  explicit PoolRef(T* taken) : object_(taken) {}
  PoolRef(const PoolRef& other) : object_(other.object_) {
    if (object_ != nullptr) object_->users_.fetch_add(1, std::memory_order_relaxed);
  }
  PoolRef(PoolRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PoolRef& operator=(PoolRef other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~PoolRef() {
    if (object_ != nullptr) object_->users_.fetch_sub(1, std::memory_order_acq_rel);
  }

  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  T* get() const { return object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace encoderd
