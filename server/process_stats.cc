#include "server/process_stats.h"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace encoderd {
namespace {

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

std::optional<ProcessStats> ReadProcessStats() {
  // /proc/self/stat, proc_pid_stat(5): the name in brackets may hold anything, so count from the
  // last bracket; field 22 is the start in ticks since boot, field 24 the resident pages.
  std::ifstream file("/proc/self/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0, virtual_bytes = 0, resident_pages = 0;
  if (!(fields >> start_ticks >> virtual_bytes >> resident_pages)) return std::nullopt;

  // Taken once: two clocks never agree to the last digit, and what watches for restarts counts how
  // often this value changes.
  static const double start_time = Seconds(CLOCK_REALTIME) - Seconds(CLOCK_BOOTTIME) +
                                   start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return ProcessStats{.resident_bytes = resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)),
                      .cpu_seconds = Seconds(CLOCK_PROCESS_CPUTIME_ID),
                      .start_time_seconds = start_time};
}

}  // namespace encoderd
