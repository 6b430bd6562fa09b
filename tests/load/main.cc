// Goal:   how the server behaves when it is asked for as much as it can do, and for more.
// Method: every line is a ratio of two things measured in the same round, one right after the
//         other, on random weights of a real model's shapes; the line is the median of its rounds.
//         Load generator and server share the machine. A line under its floor is marked BELOW.
//
// usage: load_bench [--quick] [--only=KEY[,KEY]...]
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/globals.h"
#include "tests/load/bare_stream.h"
#include "tests/load/bench_server.h"
#include "tests/load/in_process.h"
#include "tests/load/measurements.h"
#include "tests/report/report.h"

namespace encoderd::load {
namespace {

std::vector<Measurement> Measurements() {
  std::vector<Measurement> all;
  for (auto* part : {&ScheduleMeasurements, &MachineMeasurements, &TransportMeasurements}) {
    for (Measurement& measurement : (*part)()) all.push_back(std::move(measurement));
  }
  return all;
}

int Main(int argc, char** argv) {
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kError);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{kHogFlag}) {
    BeACpuHog();
    return 0;
  }
  if (words == std::vector<std::string>{kBareStreamFlag}) {
    BeABareStreamServer();
    return 0;
  }
  std::vector<Measurement> measurements = Measurements();
  report::Arguments arguments = {.settings = {.seconds = 6}};
  if (!report::ParseArguments(words, measurements, {.seconds = 2, .quick = true}, arguments)) {
    report::PrintUsage("load_bench", measurements);
    return words == std::vector<std::string>{"--help"} ? 0 : 64;
  }
  std::printf("%d CPUs, fp32; median of the rounds%s\n%s", Cpus(),
              arguments.settings.quick ? "; --quick: short runs, one round, rough figures" : "",
              report::HeaderLine().c_str());
  std::fflush(stdout);
  return report::MeasureAll(std::move(measurements), arguments).Below() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace encoderd::load

int main(int argc, char** argv) { return encoderd::load::Main(argc, argv); }
