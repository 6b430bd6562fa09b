#include "server/batching/clock.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"

namespace encoderd {
namespace {

class RealClock : public Clock {
 public:
  absl::Time Now() override {
    return wall_at_start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_at_start_);
  }

  void WaitUntil(CondVar& condition, Mutex& mutex, absl::Time deadline) override {
    if (deadline == absl::InfiniteFuture()) return condition.Wait(mutex);
    // At most an hour at once: far deadlines would overflow inside wait_for.
    const absl::Duration left = std::min(deadline - Now(), absl::Hours(1));
    if (left > absl::ZeroDuration()) condition.WaitFor(mutex, absl::ToChronoNanoseconds(left));
  }

 private:
  const absl::Time wall_at_start_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_at_start_ = std::chrono::steady_clock::now();
};

}  // namespace

Clock& SteadyClock() {
  static RealClock* const clock = new RealClock;  // never destroyed: threads may outlive statics
  return *clock;
}

}  // namespace encoderd
