// key_watch.h — has changed key files taken over while the server runs.
#pragma once

#include <thread>

#include "absl/time/time.h"
#include "server/batching/clock.h"
#include "server/keys/keys.h"
#include "server/metrics.h"
#include "server/mutex.h"

namespace encoderd {

// Looks from its construction to its destruction; logs and counts what changes, and exports when the
// certificate ends. What it is given must outlive it.
class KeyWatch {
 public:
  // A change holds after the second look that finds it, at most two seconds later. A look reads some
  // KiB and takes 7 us.
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  KeyWatch(Keys& keys, Clock& clock, Metrics& metrics);
  ~KeyWatch();
  KeyWatch(const KeyWatch&) = delete;
  KeyWatch& operator=(const KeyWatch&) = delete;

 private:
  void Watch();
  void Look();
  void Export() const;

  Keys& keys_;
  Clock& clock_;
  Metrics& metrics_;
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace encoderd
