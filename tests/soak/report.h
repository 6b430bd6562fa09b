// report.h — what a soak found: a line per check, a live line of progress, a summary.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/mutex.h"

namespace encoderd::soak {

// Thread-safe.
class Report {
 public:
  void BeginPhase(const std::string& name);

  // Prints what was checked, what was expected and what was found.
  void Check(bool passed, const std::string& what, const std::string& expected,
             const std::string& got);
  void AtMost(const std::string& what, double got, double limit, const std::string& unit);
  void AtLeast(const std::string& what, double got, double limit, const std::string& unit);
  void Equal(const std::string& what, double got, double expected);

  // What this machine does not let us check.
  void Skip(const std::string& what, const std::string& why);
  // A figure to read the checks by.
  void Note(const std::string& text);
  // Replaces the live line on stderr.
  void Progress(const std::string& text);

  // One for every call that a client of ours made: one that ended more than a second after its
  // deadline hung.
  void CallEnded(absl::Duration took, absl::Duration deadline);

  // The check of all calls together, and the summary. Returns the number of failures.
  int Finish();

 private:
  void Line(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Time start_ = absl::Now();
  Mutex mutex_;
  std::string phase_ ABSL_GUARDED_BY(mutex_);
  int checks_ ABSL_GUARDED_BY(mutex_) = 0;
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;
  int skipped_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t hung_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace encoderd::soak
