#include "server/profile_report.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/ops/machine_rate.h"
#include "engine/profile.h"
#include "engine/status_macros.h"
#include "server/sample_batch.h"

namespace encoderd {
namespace {

constexpr double kSeconds = 1;  // to run for
constexpr int kLeastRuns = 3;

template <typename Work>
double SecondsOf(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The fastest batch, and the fastest matrix multiplication.
struct Fastest {
  double seconds = std::numeric_limits<double>::infinity();
  Profile profile;
  double machine_rate = 0;  // operations a second
  int runs = 0;
};

absl::StatusOr<Fastest> Measure(Worker& worker, SampleBatch& batch, ops::MachineMatmul& matmul) {
  Fastest fastest;
  for (double spent = 0; spent < kSeconds || fastest.runs < kLeastRuns; ++fastest.runs) {
    const double product = SecondsOf([&] { matmul.Run(); });
    fastest.machine_rate =
        std::max(fastest.machine_rate, ops::MachineMatmul::kOperations / product);
    Profile profile;
    absl::Status status;
    const double seconds = SecondsOf([&] {
      const ProfiledThread here(profile);
      status = batch.Run(worker).status();
    });
    RETURN_IF_ERROR(status);
    if (seconds < fastest.seconds) {
      fastest.seconds = seconds;
      fastest.profile = profile;
    }
    spent += product + seconds;
  }
  return fastest;
}

std::string Row(std::string_view name, const OpTime& time, const Fastest& fastest) {
  std::string row = absl::StrFormat("%-18s %6d %10.3f %6.1f %%", std::string(name), time.calls,
                                    1e3 * time.seconds, 100 * time.seconds / fastest.seconds);
  if (time.operations > 0) {
    const double rate = time.operations / time.seconds;
    absl::StrAppendFormat(&row, " %9.1f %8.1f %%", rate / 1e9, 100 * rate / fastest.machine_rate);
  }
  return row + "\n";
}

std::string Table(const Fastest& fastest) {
  std::string table = absl::StrFormat("%-18s %6s %10s %8s %9s %10s\n", "operation", "calls", "ms",
                                      "share", "G op/s", "of limit");
  OpTime whole = {.calls = 1, .seconds = fastest.seconds};
  OpTime other = {.seconds = fastest.seconds};
  for (size_t kind = 0; kind < kOpNames.size(); ++kind) {
    const OpTime& time = fastest.profile[static_cast<OpKind>(kind)];
    whole.operations += time.operations;
    other.seconds -= time.seconds;
    if (time.calls > 0) absl::StrAppend(&table, Row(kOpNames[kind], time, fastest));
  }
  absl::StrAppend(&table, Row("between them", other, fastest), Row("whole batch", whole, fastest));
  return table;
}

}  // namespace

absl::StatusOr<std::string> ProfileReport(const Engine& engine, const BatchShape& shape) {
  const EngineInfo& info = engine.info();
  if (shape.tokens > info.max_sequence_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("--profile: expected sequences of at most ",
                                                   info.max_sequence_tokens, " tokens, got ",
                                                   shape.tokens));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Worker> worker, engine.CreateLoneWorker());
  ASSIGN_OR_RETURN(const std::unique_ptr<SampleBatch> batch,
                   SampleBatch::Create(engine, {.sequences = shape.sequences,
                                                .tokens = shape.tokens,
                                                .blocks = engine.spec().num_layers}));
  ASSIGN_OR_RETURN(ops::MachineMatmul matmul,
                   ops::MachineMatmul::Create(*PrecisionNamed(info.precision)));
  RETURN_IF_ERROR(batch->Run(*worker).status());  // pays for memory
  ASSIGN_OR_RETURN(const Fastest fastest, Measure(*worker, *batch, matmul));
  const auto tokens = static_cast<double>(shape.sequences * shape.tokens);
  return absl::StrFormat(
             "%d sequences of %d tokens in %s on %s, one worker, the fastest of %d runs: %.2f ms, "
             "%.0f tokens/s\nlimit: oneDNN's %s matmul, %.0f G op/s beside these runs\n\n",
             shape.sequences, shape.tokens, info.precision, info.isa, fastest.runs,
             1e3 * fastest.seconds, tokens / fastest.seconds, info.precision,
             fastest.machine_rate / 1e9) +
         Table(fastest);
}

}  // namespace encoderd
