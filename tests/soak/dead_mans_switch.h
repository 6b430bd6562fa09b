// dead_mans_switch.h — ends a program that hangs.
#pragma once

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "server/mutex.h"

namespace encoderd::soak {

// If it is not fed in time, it says what hung, kills the program's children and ends the program
// with exit code 1.
class DeadMansSwitch {
 public:
  DeadMansSwitch();
  ~DeadMansSwitch();

  // What begins now ends within `limit`.
  void Feed(const std::string& what, absl::Duration limit);

 private:
  void Watch();

  Mutex mutex_;
  CondVar changed_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  absl::Time limit_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace encoderd::soak
