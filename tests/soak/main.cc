// Goal:   a server keeps its promises over minutes, when clients are many, slow, rude or gone.
// Method: real encoderd processes with random weights, one phase after the other, observed from
//         outside: answers, metrics, memory, CPU time, exit codes. Each check says what was
//         expected and found. Exit code 1 when one fails, or when anything hangs.
//
// usage: soak [--minutes=10] [--only=PHASE[,PHASE]...]
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "absl/log/globals.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/soak/dead_mans_switch.h"
#include "tests/soak/phases.h"

namespace encoderd::soak {
namespace {

struct NamedPhase {
  std::string name;
  std::string title;
  Phase run;
};

const std::vector<NamedPhase>& Phases() {
  static const auto* const phases = new std::vector<NamedPhase>{
      {"mixed", "20 clients of all lengths; batches smaller than calls", MixedLengths},
      {"long", "long sequences among short ones", LongAmongShort},
      {"overload", "twice the load it can carry; calls cancelled while they wait", Overload},
      {"vanish", "clients that close the connection in the middle", VanishingClients},
      {"quiet", "pings beside a long wait; a call a second; no call", Quiet},
      {"bursts", "memory after bursts of large answers", Bursts},
      {"shapes", "memory under shapes that never repeat", RandomShapes},
      {"quota", "a quota of one CPU", CpuQuota},
      {"drain", "SIGTERM under load", Drains},
      {"service", "everything mixed, for the rest of the time", Service}};
  return *phases;
}

struct Arguments {
  double minutes = 10;
  std::set<std::string> only;  // empty = all
};

void PrintUsage() {
  std::printf("usage: soak [--minutes=10] [--only=PHASE[,PHASE]...]\n");
  for (const NamedPhase& phase : Phases()) {
    std::printf("  %-9s %s\n", phase.name.c_str(), phase.title.c_str());
  }
}

bool KnowsAll(const std::set<std::string>& names) {
  return std::ranges::all_of(names, [](const std::string& name) {
    return std::ranges::find(Phases(), name, &NamedPhase::name) != Phases().end();
  });
}

int Run(const Arguments& arguments) {
  Report report;
  DeadMansSwitch dead_mans_switch;
  const Soak soak = {.minutes = arguments.minutes,
                     .end = absl::Now() + absl::Minutes(arguments.minutes),
                     .report = report};
  // Far beyond what any phase takes on a machine that is busy otherwise.
  const absl::Duration limit = absl::Minutes(arguments.minutes) + absl::Minutes(2);
  for (const NamedPhase& phase : Phases()) {
    if (!arguments.only.empty() && !arguments.only.contains(phase.name)) continue;
    report.BeginPhase(phase.name + ": " + phase.title);
    dead_mans_switch.Feed(phase.name, limit);
    phase.run(soak);
  }
  return report.Finish() == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kError);
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (absl::StartsWith(argument, "--only=")) {
      arguments.only = absl::StrSplit(argument.substr(7), ',');
    } else if (!absl::StartsWith(argument, "--minutes=") ||
               !absl::SimpleAtod(argument.substr(10), &arguments.minutes) ||
               !(arguments.minutes >= 1 && arguments.minutes <= 600)) {
      PrintUsage();
      return argument == "--help" ? 0 : 64;
    }
  }
  if (!KnowsAll(arguments.only)) {
    PrintUsage();
    return 64;
  }
  return Run(arguments);
}

}  // namespace
}  // namespace encoderd::soak

int main(int argc, char** argv) { return encoderd::soak::Main(argc, argv); }
