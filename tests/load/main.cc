// Goal:   how the server behaves when it is asked for as much as it can do, and for more.
// Method: every line is a ratio of two things measured in the same round, one right after the
//         other, on random weights of a real model's shapes; the line is the median of its rounds.
//         Load generator and server share the machine. A line under its floor is marked BELOW.
//
// usage: load_bench [--quick] [--only=KEY[,KEY]...]
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "absl/log/globals.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/load/bare_stream.h"
#include "tests/load/bench_server.h"
#include "tests/load/in_process.h"
#include "tests/load/measurements.h"

namespace encoderd::load {
namespace {

struct Arguments {
  Settings settings = {.seconds = 6};
  std::set<std::string> only;  // empty = all
};

void PrintUsage(const std::vector<Measurement>& measurements) {
  std::printf("usage: load_bench [--quick] [--only=KEY[,KEY]...]\nkeys:\n");
  for (const Measurement& measurement : measurements) {
    std::printf("  %-20s %s\n", measurement.key.c_str(), measurement.figures.front().name.c_str());
  }
}

// Prints the figures of a measurement; returns how many are under their floors.
int Report(const Measurement& measurement, const std::vector<std::vector<Found>>& rounds) {
  int below = 0;
  for (size_t i = 0; i < measurement.figures.size(); ++i) {
    const Figure& figure = measurement.figures[i];
    std::vector<double> ratios;
    for (const auto& found : rounds) ratios.push_back(found[i].ratio);
    const double ratio = Median(ratios);
    const bool passes = figure.Passes(ratio);
    below += passes ? 0 : 1;
    // The round whose ratio is the median tells the values behind it.
    std::string detail;
    for (const auto& found : rounds) {
      if (found[i].ratio == ratio) detail = found[i].detail;
    }
    std::printf("%-62s %6.3f   %5.2f  %5.2f  %-5s  %s\n", figure.name.c_str(), ratio, figure.floor,
                figure.aim, passes ? "" : "BELOW", detail.c_str());
  }
  std::fflush(stdout);
  return below;
}

int Run(const Arguments& arguments, const std::vector<Measurement>& measurements) {
  std::printf("%d CPUs, fp32; median of the rounds%s\n%-62s %6s   %5s  %5s\n", Cpus(),
              arguments.settings.quick ? "; --quick: short runs, one round, rough figures" : "",
              "ratio of", "is", "floor", "aim");
  std::fflush(stdout);
  const absl::Time start = absl::Now();
  int measured = 0, below = 0;
  for (const Measurement& measurement : measurements) {
    if (!arguments.only.empty() && !arguments.only.contains(measurement.key)) continue;
    if (measurement.why_skipped) {
      if (const std::string reason = measurement.why_skipped(); !reason.empty()) {
        std::printf("%-62s SKIPPED: %s\n", measurement.figures.front().name.c_str(),
                    reason.c_str());
        continue;
      }
    }
    ++measured;
    std::vector<std::vector<Found>> rounds;
    const int count = arguments.settings.quick ? 1 : measurement.rounds;
    for (int round = 0; round < count; ++round) {
      std::fprintf(stderr, "\r%s: round %d of %d, %.0f s since the start\033[K",
                   measurement.key.c_str(), round + 1, count,
                   absl::ToDoubleSeconds(absl::Now() - start));
      rounds.push_back(measurement.round(arguments.settings));
    }
    std::fprintf(stderr, "\r\033[K");
    below += Report(measurement, rounds);
  }
  const std::string verdict = measured == 0 ? "nothing was measured"
                              : below == 0  ? "every figure measured reached its floor"
                                            : absl::StrCat(below, " BELOW its floor");
  std::printf("%.0f s; %s\n", absl::ToDoubleSeconds(absl::Now() - start), verdict.c_str());
  return below == 0 ? 0 : 1;
}

bool KnowsAll(const std::vector<Measurement>& measurements, const std::set<std::string>& keys) {
  return std::ranges::all_of(keys, [&](const std::string& key) {
    return std::ranges::find(measurements, key, &Measurement::key) != measurements.end();
  });
}

std::vector<Measurement> Measurements() {
  std::vector<Measurement> all;
  for (auto* part : {&ScheduleMeasurements, &MachineMeasurements, &TransportMeasurements}) {
    for (Measurement& measurement : (*part)()) all.push_back(std::move(measurement));
  }
  return all;
}

int Main(int argc, char** argv) {
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kError);
  const std::vector<Measurement> measurements = Measurements();
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == kHogFlag) {
      BeACpuHog();
      return 0;
    }
    if (argument == kBareStreamFlag) {
      BeABareStreamServer();
      return 0;
    }
    if (argument == "--quick") {
      arguments.settings = {.seconds = 2, .quick = true};
    } else if (absl::StartsWith(argument, "--only=")) {
      arguments.only = absl::StrSplit(argument.substr(7), ',');
    } else {
      PrintUsage(measurements);
      return argument == "--help" ? 0 : 64;
    }
  }
  if (!KnowsAll(measurements, arguments.only)) {
    PrintUsage(measurements);
    return 64;
  }
  return Run(arguments, measurements);
}

}  // namespace
}  // namespace encoderd::load

int main(int argc, char** argv) { return encoderd::load::Main(argc, argv); }
