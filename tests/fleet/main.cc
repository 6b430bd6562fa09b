// Goal:   what the tests of a fleet count, and how long calls take meanwhile, with the shapes of
//         MiniLM-L6.
// Method: three real servers with a worker each, behind HAProxy and behind round robin in the
//         client, on the machine's cores. Each is replaced by a fourth that starts before it goes,
//         on spare time alone: in a cluster a replica that starts has cores of its own. Exit code 1
//         when a check fails, or when anything hangs.
//
// usage: fleet [--only=REHEARSAL[,REHEARSAL]...]
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/check.h"
#include "absl/log/globals.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/fleet/haproxy.h"
#include "tests/fleet/rehearsals.h"
#include "tests/load/bench_server.h"
#include "tests/soak/dead_mans_switch.h"
#include "tests/soak/report.h"

namespace encoderd::fleet {
namespace {

constexpr char kLengths[] = "fixed:64";
constexpr int kSpare = HaProxy::kServers - 1;
constexpr double kLoad = 0.7;  // of capacity, both clients together

// Three replicas that are alive, the place of a fourth, and one way to them.
struct Fleet {
  explicit Fleet(bool behind_proxy)
      : replicas(HaProxy::kServers, {"--workers=1", "--drain_delay=2s",
                                     absl::StrCat("--model_dir=", load::MiniLm().dir())}) {
    replicas.Stop(kSpare);
    if (behind_proxy) {
      proxy = std::make_unique<HaProxy>(replicas.addresses());
      path = {.name = "HAProxy", .target = proxy->Target(), .connections = 1};
    } else {
      path = {.name = "round robin", .target = replicas.Target(), .direct = true, .connections = 2};
    }
  }

  Replicas replicas;
  std::unique_ptr<HaProxy> proxy;  // null: none
  Path path;
};

// What either of two clients offers.
client::LoadOptions HalfTheLoad(const Fleet& fleet, soak::Report& report) {
  const double capacity = Capacity(LoadOn(fleet.path.target, kLengths, 0), absl::Seconds(6));
  report.Note(absl::StrFormat("%s: %.1f calls/s of 64 tokens at most; offered %.1f",
                              fleet.path.name, capacity, kLoad * capacity));
  client::LoadOptions load = LoadOn(fleet.path.target, kLengths, kLoad * capacity / 2);
  load.arrival = client::Arrival::kPoisson;
  return load;
}

// None may hang, whatever becomes of it.
void Tell(const SeenByBoth& seen, const client::LoadOptions& load, soak::Report& report) {
  for (const Observed* one : {&seen.strict, &seen.retrying}) {
    for (const client::CallRecord& call : one->result.calls) {
      report.CallEnded(call.latency, load.deadline);
    }
  }
}

void CheckNoneFailed(const std::string& what, const Observed& seen, soak::Report& report) {
  report.Check(seen.failed() == 0 && seen.result.answered > 0, what + ": calls that failed", "0",
               seen.Text());
}

void Replace(Fleet& fleet, soak::Report& report) {
  const client::LoadOptions load = HalfTheLoad(fleet, report);
  const Rolled rolled =
      ReplaceAll(fleet.replicas, fleet.path, load, absl::Seconds(20), Start::kOnSpareTime);
  Tell(rolled.seen, load, report);
  const bool all_ended = std::ranges::all_of(rolled.exit_codes, [](int code) { return code == 0; });
  report.Check(all_ended, fleet.path.name + ": exit codes", "0, 0, 0",
               absl::StrJoin(rolled.exit_codes, ", "));
  for (const auto& [client, seen] : {std::pair("without retries", &rolled.seen.strict),
                                     std::pair("with retries", &rolled.seen.retrying)}) {
    const std::string what = absl::StrCat(fleet.path.name, ", ", client);
    CheckNoneFailed(what, *seen, report);
    report.Note(absl::StrFormat("p99 %.1f ms before, %.1f ms during %.1f s", seen->P99Before(),
                                seen->P99During(), absl::ToDoubleSeconds(seen->end - seen->begin)));
    report.AtMost(what + ": p99 during ÷ before", seen->P99During() / seen->P99Before(), 2, "");
  }
}

void Kill(Fleet& fleet, soak::Report& report) {
  const client::LoadOptions load = HalfTheLoad(fleet, report);
  const Killed killed = KillOne(fleet.replicas, fleet.path, load);
  Tell(killed.seen, load, report);
  const Observed& strict = killed.seen.strict;
  CheckNoneFailed(fleet.path.name + ", with retries", killed.seen.retrying, report);
  report.Check(strict.FailedOfThoseSentAfter(strict.end + absl::Milliseconds(200)) == 0,
               fleet.path.name + ", without retries: failed of those sent later than 0.2 s after",
               "0", strict.Text());
  report.AtMost(fleet.path.name + ": runs beyond one of each call", killed.surplus, 0, "");
}

void Slow(Fleet& fleet, soak::Report& report) {
  const std::vector<double> calls =
      CallsWhileOneIsSlow(fleet.replicas, fleet.path, LoadOn("", kLengths, 0), absl::Seconds(10));
  const double others = (calls[1] + calls[2]) / 2;
  report.Note(absl::StrCat("calls: ", absl::StrJoin(calls, ", ")));
  report.AtMost(fleet.path.name + ": calls of one with a third of its time ÷ of another",
                calls[0] / others, 0.75, "");
}

struct Rehearsal {
  std::string name;
  std::string title;
  bool behind_proxy;
  void (*run)(Fleet&, soak::Report&);
};

const std::vector<Rehearsal>& Rehearsals() {
  static const auto* const rehearsals = new std::vector<Rehearsal>{
      {"replace_haproxy", "every replica is replaced, behind HAProxy", true, Replace},
      {"replace_round_robin", "every replica is replaced, round robin", false, Replace},
      {"kill_haproxy", "one replica is killed, behind HAProxy", true, Kill},
      {"kill_round_robin", "one replica is killed, round robin", false, Kill},
      {"slow_haproxy", "one replica is slow, behind HAProxy", true, Slow}};
  return *rehearsals;
}

void PrintUsage() {
  std::printf("usage: fleet [--only=REHEARSAL[,REHEARSAL]...]\n");
  for (const Rehearsal& rehearsal : Rehearsals()) {
    std::printf("  %-20s %s\n", rehearsal.name.c_str(), rehearsal.title.c_str());
  }
}

bool KnowsAll(const std::set<std::string>& names) {
  return std::ranges::all_of(names, [](const std::string& name) {
    return std::ranges::find(Rehearsals(), name, &Rehearsal::name) != Rehearsals().end();
  });
}

int Main(int argc, char** argv) {
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kError);
  std::set<std::string> only;  // empty = all
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool known = absl::StartsWith(argument, "--only=");
    if (known) only = absl::StrSplit(argument.substr(7), ',');
    if (known && KnowsAll(only)) continue;
    PrintUsage();
    return argument == "--help" ? 0 : 64;
  }
  CHECK(HaProxy::IsInstalled()) << "HAProxy is not installed";
  soak::Report report;
  soak::DeadMansSwitch dead_mans_switch;
  for (const Rehearsal& rehearsal : Rehearsals()) {
    if (!only.empty() && !only.contains(rehearsal.name)) continue;
    report.BeginPhase(rehearsal.name + ": " + rehearsal.title);
    dead_mans_switch.Feed(rehearsal.name, absl::Minutes(5));
    Fleet fleet(rehearsal.behind_proxy);
    rehearsal.run(fleet, report);
  }
  return report.Finish() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace encoderd::fleet

int main(int argc, char** argv) { return encoderd::fleet::Main(argc, argv); }
