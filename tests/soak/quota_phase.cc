// A server in a control group with a quota.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/load/quota_group.h"
#include "tests/soak/phases.h"

namespace encoderd::soak {
namespace {

constexpr const char* kWorkers = "encoderd_workers";
constexpr const char* kThrottled = "encoderd_cpu_throttled_seconds_total";

void CheckOneWorker(const Soak& soak, const load::QuotaGroup& group) {
  BenchServer server(SmallModel(), {}, group.folder());
  soak.report.Equal("workers under a quota of one CPU", ScrapeOf(server)[kWorkers], 1);
  CheckEnds(soak, server, absl::Seconds(5));
}

// Half a CPU: what one worker takes all by itself is throttled, however crowded the machine is.
void CheckThrottled(const Soak& soak, const load::QuotaGroup& group) {
  BenchServer server(SmallModel(), {}, group.folder());
  soak.report.Equal("workers under a quota of half a CPU", ScrapeOf(server)[kWorkers], 1);
  absl::SleepFor(absl::Seconds(1));  // what its start took is over
  const double ready = ScrapeOf(server)[kThrottled];
  absl::SleepFor(soak.Span(5));
  const double idle = ScrapeOf(server)[kThrottled];
  soak.report.AtMost("seconds throttled without load", idle - ready, 0, "s");
  CheckAllAnswered(soak, "under a quota of half a CPU",
                   Drive(soak, ClosedLoop(server, "fixed:64", soak.Span(10), 16)));
  const double loaded = ScrapeOf(server)[kThrottled];
  soak.report.Check(loaded > idle, "seconds throttled under load", "more than 0",
                    absl::StrCat(loaded - idle));
  CheckEnds(soak, server, absl::Seconds(5));
}

}  // namespace

void CpuQuota(const Soak& soak) {
  for (const auto& [cpus, check] :
       {std::pair(1.0, &CheckOneWorker), std::pair(0.5, &CheckThrottled)}) {
    const auto group = load::QuotaGroup::Create(cpus);
    if (group.ok()) {
      check(soak, *group);
    } else {
      soak.report.Skip(absl::StrCat("a quota of ", cpus, " CPUs"),
                       std::string(group.status().message()));
    }
  }
}

}  // namespace encoderd::soak
