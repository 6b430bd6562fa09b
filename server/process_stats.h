// process_stats.h — what the kernel says of this process.
#pragma once

#include <optional>

namespace encoderd {

struct ProcessStats {
  double resident_bytes = 0;
  double cpu_seconds = 0;         // user and system, all threads
  double start_time_seconds = 0;  // since the Unix epoch; the same in every answer
};

// Absent where /proc cannot be read.
std::optional<ProcessStats> ReadProcessStats();

}  // namespace encoderd
