// background_load.h — a load that goes on while something is done to those who serve it.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "deploy/client/load/load.h"
#include "server/mutex.h"

namespace encoderd::fleet {

class BackgroundLoad {
 public:
  // Starts it. `options.duration` is the longest that it may go on.
  explicit BackgroundLoad(client::LoadOptions options);
  ~BackgroundLoad() { Stop(); }

  // Waits until calls have been answered for about a second.
  void AwaitUnderWay();

  // This moment as CallRecord::due counts it. REQUIRES: it is under way.
  absl::Duration Now();

  // Ends it once those in flight have ended. What became of its calls; the program ends where it
  // could not be run.
  const client::LoadResult& Stop();

 private:
  void Run();

  std::stop_source stop_;
  client::LoadOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Time> window_start_ ABSL_GUARDED_BY(mutex_);
  bool under_way_ ABSL_GUARDED_BY(mutex_) = false;
  client::LoadResult result_;  // of the thread, until it has ended
  std::thread thread_;
};

// A load of pooled or last hidden states on `target`, one sequence a call, evenly spaced, with a
// deadline that no answered call comes near.
client::LoadOptions LoadOn(const std::string& target, const std::string& lengths, double rate);

// The rate that a closed loop gets out of `target` in so much time.
double Capacity(client::LoadOptions options, absl::Duration duration);

}  // namespace encoderd::fleet
