// Goal:   how near this engine comes to what the machine can do, and how it stands beside the engines
//         that one might use instead.
// Method: every engine is a process of its own on the same cores, checked before it is timed, and
//         only one works at a time, in turns. Every line is a ratio of two rates of the same round;
//         the line is the median of its rounds. Only real tokens count. A line under its floor is
//         marked BELOW.
//
// usage: engine_bench [--quick] [--only=KEY[,KEY]...]
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/globals.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/ops/runtime.h"
#include "server/cpu_quota.h"
#include "tests/bench/cells.h"
#include "tests/bench/machine.h"
#include "tests/bench/measurements.h"
#include "tests/report/report.h"

namespace encoderd::bench {
namespace {

std::vector<Measurement> Measurements(int threads, Cells& cells) {
  std::vector<Measurement> all = MachineMeasurements(threads);
  const auto add = [&](std::vector<Measurement> part) {
    for (Measurement& measurement : part) all.push_back(std::move(measurement));
  };
  for (Model model : {MiniLm(), BertBase()}) {
    const auto field = std::make_shared<Field>(std::move(model), threads);
    add(EngineMeasurements(field));
    add(PeerMeasurements(field, cells));
  }
  add(LongSequenceMeasurements(std::make_shared<Field>(BertBase(4096), threads)));
  return all;
}

int Main(int argc, char** argv) {
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kError);
  const int threads = ReadCpuQuota().Cpus();
  Cells cells;
  std::vector<Measurement> measurements = Measurements(threads, cells);
  const std::vector<std::string> words(argv + 1, argv + argc);
  report::Arguments arguments = {.settings = {.seconds = 0.3}};
  if (!report::ParseArguments(words, measurements, {.seconds = 0.15, .quick = true}, arguments)) {
    report::PrintUsage("engine_bench", measurements);
    return words == std::vector<std::string>{"--help"} ? 0 : 64;
  }
  const std::string machine =
      absl::StrCat(absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone()), ", ",
                   MachineName(threads), ", ", ops::MathsLibrary());
  std::printf("%s; median of the rounds%s\n%s", machine.c_str(),
              arguments.settings.quick ? "; --quick: one short round, rough figures" : "",
              report::HeaderLine().c_str());
  std::fflush(stdout);
  const report::Outcome outcome = report::MeasureAll(std::move(measurements), arguments);
  PrintCells(cells);
  const absl::Status written = WriteReport(machine, outcome, cells);
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.ToString().c_str());
  return outcome.Below() == 0 && written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace encoderd::bench

int main(int argc, char** argv) { return encoderd::bench::Main(argc, argv); }
