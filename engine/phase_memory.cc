#include "engine/phase_memory.h"

#include <algorithm>

#include "absl/log/log.h"
#include "engine/status_macros.h"

namespace encoderd {

absl::StatusOr<std::unique_ptr<PhaseMemory>> PhaseMemory::Create(const PhaseShape& shape) {
  std::unique_ptr<PhaseMemory> memory(new PhaseMemory(shape));
  for (int helper = 0; helper < shape.helpers; ++helper) RETURN_IF_ERROR(memory->AddThread());
  return memory;
}

int64_t PhaseMemory::BytesPerThread(const PhaseShape& shape) {
  return 2 * shape.GenerationBytes() + static_cast<int64_t>(BatchLayout::kMaxMaskBytes);
}

absl::Status PhaseMemory::AddThread() {
  ASSIGN_OR_RETURN(auto layout, BatchLayout::Create());
  ASSIGN_OR_RETURN(auto one, Generation::Create(shape_));
  ASSIGN_OR_RETURN(auto other, Generation::Create(shape_));
  layouts_.push_back(std::move(layout));
  phases_.push_back(std::make_unique<BlockPhase>(shape_));
  generations_.push_back(std::move(one));
  generations_.push_back(std::move(other));
  return absl::OkStatus();
}

absl::StatusOr<int> PhaseMemory::Join() {
  const std::lock_guard lock(mutex_);
  const auto free = std::find(seats_.begin(), seats_.end(), false);
  const auto seat = free - seats_.begin();
  if (free != seats_.end()) {
    *free = true;
  } else {
    RETURN_IF_ERROR(AddThread());
    seats_.push_back(true);
  }
  return static_cast<int>(seat);
}

void PhaseMemory::Leave(int seat) {
  const std::lock_guard lock(mutex_);
  seats_[static_cast<size_t>(seat)] = false;
}

template <typename T>
T* PhaseMemory::Take(const Objects<T>& objects, int seat, size_t per_thread) {
  const std::lock_guard lock(mutex_);
  // The first are the helpers', and spare; those of other seats, which are warm there, come last.
  const size_t own = static_cast<size_t>(shape_.helpers + seat) * per_thread;
  for (size_t i = own; i < own + per_thread; ++i) {
    if (objects[i]->TryTake()) return objects[i].get();
  }
  for (const auto& object : objects) {
    if (object->TryTake()) return object.get();
  }
  LOG(FATAL) << "PhaseMemory: more is in use than batches and helpers can hold";
}

template BatchLayout* PhaseMemory::Take(const Objects<BatchLayout>&, int, size_t);
template Generation* PhaseMemory::Take(const Objects<Generation>&, int, size_t);
template BlockPhase* PhaseMemory::Take(const Objects<BlockPhase>&, int, size_t);

}  // namespace encoderd
