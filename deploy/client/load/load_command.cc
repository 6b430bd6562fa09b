#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/client/command.h"
#include "deploy/client/connection.h"
#include "deploy/client/load/load.h"
#include "deploy/client/load/load_figure.h"
#include "deploy/client/load/load_text.h"
#include "deploy/client/load/sweep.h"
#include "deploy/client/output_choice.h"
#include "deploy/client/pictures.h"
#include "engine/status_macros.h"

ABSL_FLAG(double, rate, 0,
          "calls due per second, more than 0, up to 100000; not with --sweep, --relative_rate or "
          "--arrival=saturate");
ABSL_FLAG(
    double, relative_rate, 0,
    "calls due per second as a multiple of the offline rate, which is measured first, as by a "
    "sweep; instead of --rate");
ABSL_FLAG(
    double, spike, 1,
    "the rate of the middle third of the measurement is so many times as high, up to 1000; its "
    "thirds are then told apart");
ABSL_FLAG(bool, retry, false,
          "try again as service_config.json says; else every refusal is told as it is");
ABSL_FLAG(bool, watch_health, false,
          "call the addresses alone whose health says that they serve; for a target with those of "
          "the replicas themselves, not through a proxy");
ABSL_FLAG(std::string, arrival, "poisson",
          "when calls are due: poisson, even (all the same time apart), or saturate (closed loop: "
          "as many in flight as --outstanding says, all the time)");
ABSL_FLAG(std::string, lengths, "squad",
          "tokens of a sequence: fixed:N, uniform:A-B, squad (mean 177, at most 384), short (mean "
          "16, at most 64), bimodal (8 or 512), or file:PATH with a length a line from one's own "
          "logs");
ABSL_FLAG(int64_t, sequences, 1, "sequences per call");
ABSL_FLAG(absl::Duration, deadline, absl::Seconds(1),
          "of each call, from the time it is due; up to 10m");
ABSL_FLAG(int64_t, connections, 1, "connections, used in turn, 1 to 1024");
ABSL_FLAG(int64_t, outstanding, 0,
          "calls in flight, 1 to 65536: what a saturating load keeps, and the most of any other, "
          "which does not send what is due beyond them and counts it as failed; 0 = 32 and 4096");
ABSL_FLAG(absl::Duration, warm_up, absl::Seconds(1),
          "sent before the measurement starts, up to 10m");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(10),
          "of the measurement, or of each of a sweep; up to 1h, and 5 million calls in all");
ABSL_FLAG(uint64_t, seed, 1, "of times, lengths and ids: the same seed, the same load");
ABSL_FLAG(bool, sweep, false,
          "find the highest Poisson rate with the p99 within --p99_bound: measures the offline "
          "rate (saturated), then searches");
ABSL_FLAG(absl::Duration, p99_bound, absl::Milliseconds(100),
          "latency that 99 % of all calls must keep in a sweep; at most --deadline");
ABSL_FLAG(int, tries, 2,
          "how often a sweep measures a rate that misses the bound before it counts as too high, 1 "
          "to 10");
ABSL_FLAG(int, max_runs, 16, "most measurements of a sweep, 1 to 100");
ABSL_FLAG(std::string, figure, "", "PNG of latency over rate that a sweep writes");
ABSL_DECLARE_FLAG(std::string, address);
ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(int64_t, max_response_bytes);
ABSL_DECLARE_FLAG(bool, bulk);
ABSL_DECLARE_FLAG(bool, json);

namespace encoderd::client {
namespace {

constexpr std::string_view kHelp =
    R"(Sends calls when they are due, whether or not earlier ones have been answered (an open loop),
and counts each latency from the time its call was due. So a server that stalls is charged with
every call of the stall; a loop that waits for answers would have sent, and seen, one of them.

  encoderctl load --rate=200                                  Poisson arrivals, SQuAD-like lengths
  encoderctl load --rate=50 --arrival=even --lengths=fixed:128 --duration=30s
  encoderctl load --rate=500 --lengths=file:lengths.txt --deadline=200ms --connections=4
  encoderctl load --relative_rate=0.5 --spike=3 --duration=1m
  encoderctl load --arrival=saturate --outstanding=64         what the server can do at most
  encoderctl load --rate=20 --last_hidden_state --dtype=bf16 --bulk --json
  encoderctl load --sweep --p99_bound=100ms --duration=30s --figure=load.png

Without an output flag the calls ask for --pooled=default. "in time" are the answers within the
deadline; rates count the answers that came within the measurement. A sweep counts a call that
failed as one that never ends, and says how sure its p99 is: 459 calls without a miss make 99 %.

Run it on another machine than the server, or see to it that both have cores of their own: "lag of
the generator" tells how late calls were sent, and a warning when that matters.
)";

constexpr int kMaxSweepRuns = 100;
constexpr int kMaxTries = 10;
constexpr absl::Duration kOfflineDeadline = absl::Minutes(1);
constexpr absl::Duration kOfflineDuration = absl::Seconds(30);

absl::StatusOr<Arrival> ArrivalFromFlag() {
  const std::string name = absl::GetFlag(FLAGS_arrival);
  if (name == "poisson") return Arrival::kPoisson;
  if (name == "even") return Arrival::kEven;
  if (name == "saturate") return Arrival::kSaturate;
  return absl::InvalidArgumentError(
      absl::StrCat("--arrival: expected poisson, even or saturate, got ", absl::CHexEscape(name)));
}

absl::StatusOr<v1::OutputSpec> LoadOutputsFromFlags() {
  ASSIGN_OR_RETURN(v1::OutputSpec outputs, OutputsFromFlags());
  v1::OutputSpec chosen = outputs;
  chosen.clear_dtype();
  if (chosen.ByteSizeLong() == 0) outputs.add_pooled();
  return outputs;
}

absl::StatusOr<LoadOptions> OptionsFromFlags() {
  ASSIGN_OR_RETURN(const LengthDistribution lengths,
                   LengthDistribution::Parse(absl::GetFlag(FLAGS_lengths)));
  ASSIGN_OR_RETURN(Identity identity, IdentityFromFlags());
  LoadOptions options = {
      .target = absl::GetFlag(FLAGS_address),
      .identity = std::move(identity),
      .model = absl::GetFlag(FLAGS_model),
      .rate = absl::GetFlag(FLAGS_rate),
      .spike = absl::GetFlag(FLAGS_spike),
      .lengths = lengths,
      .sequences = absl::GetFlag(FLAGS_sequences),
      .priority = absl::GetFlag(FLAGS_bulk) ? v1::PRIORITY_BULK : v1::PRIORITY_INTERACTIVE,
      .max_response_bytes = absl::GetFlag(FLAGS_max_response_bytes),
      .deadline = absl::GetFlag(FLAGS_deadline),
      .retry = absl::GetFlag(FLAGS_retry),
      .watch_health = absl::GetFlag(FLAGS_watch_health),
      .connections = absl::GetFlag(FLAGS_connections),
      .outstanding = absl::GetFlag(FLAGS_outstanding),
      .warm_up = absl::GetFlag(FLAGS_warm_up),
      .duration = absl::GetFlag(FLAGS_duration),
      .seed = absl::GetFlag(FLAGS_seed)};
  ASSIGN_OR_RETURN(options.arrival, ArrivalFromFlag());
  ASSIGN_OR_RETURN(options.outputs, LoadOutputsFromFlags());
  return options;
}

int64_t OutstandingOr(int64_t preset) {
  const int64_t chosen = absl::GetFlag(FLAGS_outstanding);
  return chosen == 0 ? preset : chosen;
}

void UseArrival(Arrival arrival, double rate, LoadOptions& options) {
  options.arrival = arrival;
  options.rate = rate;
  options.outstanding = OutstandingOr(arrival == Arrival::kSaturate ? 32 : 4096);
}

// Progress on standard error: one line that is written over on a terminal, else a line each time.
class Progress {
 public:
  explicit Progress(std::ostream& err)
      : err_(err), overwrites_(&err == &std::cerr && isatty(STDERR_FILENO)) {}
  ~Progress() {
    if (open_) err_ << "\n";
  }

  void Show(const LoadProgress& progress) {
    if (overwrites_) {
      err_ << "\r" << ProgressLine(progress) << "\x1b[K" << std::flush;
      open_ = true;
    } else {
      err_ << ProgressLine(progress) << "\n";
    }
  }

 private:
  std::ostream& err_;
  const bool overwrites_;
  bool open_ = false;  // a line waits to be written over
};

// Runs a load that shows its progress; a load without any answer is an error.
absl::StatusOr<LoadResult> RunWithProgress(const LoadOptions& options, std::ostream& err) {
  Progress progress(err);
  return RunLoad(options, [&](const LoadProgress& now) { progress.Show(now); });
}

absl::Status CheckAnswered(const LoadOptions& options, const LoadResult& result) {
  if (result.answered > 0) return absl::OkStatus();
  if (!result.first_failure.ok()) return FailureFromRpc(result.first_failure, options.target);
  return absl::InvalidArgumentError(
      absl::StrCat("--duration: expected time for one call at least, got ",
                   absl::FormatDuration(options.duration), " at ", options.rate, " calls/s"));
}

void WriteJson(const nlohmann::ordered_json& json, std::ostream& out) {
  out << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

// The most that the server does with calls like those of the load, however long each waits its
// turn.
absl::StatusOr<LoadResult> MeasureOffline(LoadOptions options, std::ostream& err) {
  UseArrival(Arrival::kSaturate, 0, options);
  options.spike = 1;
  options.deadline = std::max(options.deadline, kOfflineDeadline);
  options.duration = std::min(options.duration, kOfflineDuration);
  err << "offline rate, " << options.outstanding << " calls in flight\n";
  ASSIGN_OR_RETURN(LoadResult offline, RunWithProgress(options, err));
  RETURN_IF_ERROR(CheckAnswered(options, offline));
  return offline;
}

absl::StatusOr<double> RateFromFlags(const LoadOptions& options, std::ostream& err) {
  const double relative = absl::GetFlag(FLAGS_relative_rate);
  if (relative == 0) return options.rate;
  if (!(relative > 0) || options.rate != 0 || options.arrival == Arrival::kSaturate) {
    return absl::InvalidArgumentError(
        absl::StrCat("--relative_rate: expected more than 0, and neither --rate nor "
                     "--arrival=saturate, got ",
                     relative));
  }
  // What does not depend on the rate is checked before half a minute is spent on it.
  LoadOptions checked = options;
  UseArrival(options.arrival, /*rate=*/1, checked);
  RETURN_IF_ERROR(CheckLoadOptions(checked));
  ASSIGN_OR_RETURN(const LoadResult offline, MeasureOffline(options, err));
  err << absl::StrFormat("%.1f calls/s; %.4g times that\n", offline.achieved_rate, relative);
  return relative * offline.achieved_rate;
}

absl::StatusOr<ExitCode> RunOnce(LoadOptions options, Streams streams) {
  ASSIGN_OR_RETURN(const double rate, RateFromFlags(options, streams.err));
  UseArrival(options.arrival, rate, options);
  ASSIGN_OR_RETURN(const LoadResult result, RunWithProgress(options, streams.err));
  if (absl::GetFlag(FLAGS_json)) {
    WriteJson(LoadJson(options, result), streams.out);
  } else {
    WriteLoadText(options, result, streams.out);
  }
  RETURN_IF_ERROR(CheckAnswered(options, result));
  return kExitOk;
}

absl::Status CheckCount(absl::string_view flag, int value, int most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected 1 to ", most, ", got ", value));
}

absl::Status CheckSweepFlags(const LoadOptions& options) {
  const absl::Duration bound = absl::GetFlag(FLAGS_p99_bound);
  if (options.arrival != Arrival::kPoisson || options.rate != 0 || options.spike != 1 ||
      absl::GetFlag(FLAGS_relative_rate) != 0) {
    return absl::InvalidArgumentError(
        "--sweep: expected neither a rate nor a spike nor another --arrival");
  }
  if (bound <= absl::ZeroDuration() || bound > options.deadline) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--p99_bound: expected more than 0, up to --deadline=",
        absl::FormatDuration(options.deadline), ", got ", absl::FormatDuration(bound)));
  }
  RETURN_IF_ERROR(CheckCount("tries", absl::GetFlag(FLAGS_tries), kMaxTries));
  return CheckCount("max_runs", absl::GetFlag(FLAGS_max_runs), kMaxSweepRuns);
}

// Measures one rate of a sweep.
absl::StatusOr<bool> MeetsBound(double rate, SweepReport& report, std::ostream& err) {
  LoadOptions options = report.options;
  UseArrival(Arrival::kPoisson, rate, options);
  options.seed += report.points.size() + 1;  // other times than those of the run before
  err << absl::StrFormat("%.1f calls/s\n", rate);
  ASSIGN_OR_RETURN(LoadResult result, RunWithProgress(options, err));
  const bool met = result.PercentileOfAll(1 - kMayMiss) <= report.p99_bound;
  report.points.push_back({rate, std::move(result)});
  return met;
}

absl::Status WriteFigure(const SweepReport& report, const std::string& path) {
  LoadFigure figure = {
      .title = absl::StrCat(absl::CHexEscape(report.offline.model.name()), ": latency over rate"),
      .subtitle =
          absl::StrFormat("Poisson arrivals, lengths %s (mean %.4g, max %d), %d a call, %s a run",
                          absl::CHexEscape(report.options.lengths.name()),
                          report.options.lengths.mean(), report.options.lengths.max(),
                          report.options.sequences, absl::FormatDuration(report.options.duration)),
      .points = {},
      .p99_bound = report.p99_bound,
      .offline_rate = report.offline.achieved_rate,
      .best_rate = report.found.best};
  for (size_t i = 0; i < report.points.size(); ++i) {
    const SweepPoint& point = report.points[i];
    // Of a rate that was measured again the last time counts.
    if (i + 1 < report.points.size() && report.points[i + 1].rate == point.rate) continue;
    figure.points.push_back({.rate = point.rate,
                             .p50 = point.result.PercentileOfAll(0.5),
                             .p99 = point.result.PercentileOfAll(1 - kMayMiss)});
  }
  std::ranges::sort(figure.points, {}, &LoadFigure::Point::rate);
  return DrawLoad(figure, path);
}

absl::StatusOr<ExitCode> RunSweep(LoadOptions options, Streams streams) {
  RETURN_IF_ERROR(CheckSweepFlags(options));
  UseArrival(Arrival::kSaturate, 0, options);
  SweepReport report = {.options = options, .p99_bound = absl::GetFlag(FLAGS_p99_bound)};
  ASSIGN_OR_RETURN(report.offline, MeasureOffline(options, streams.err));
  const double offline = report.offline.achieved_rate;
  // From a quarter, so that the curve begins with an idle server. An open loop can have more in
  // flight than the closed one, so the offline rate is no wall.
  ASSIGN_OR_RETURN(report.found, FindHighestRate({.start = offline / 4,
                                                  .most = std::min(2 * offline, kMaxRate),
                                                  .tries = absl::GetFlag(FLAGS_tries),
                                                  .max_runs = absl::GetFlag(FLAGS_max_runs)},
                                                 [&](double rate) {
                                                   return MeetsBound(rate, report, streams.err);
                                                 }));
  if (absl::GetFlag(FLAGS_json)) {
    WriteJson(SweepJson(report), streams.out);
  } else {
    WriteSweepText(report, streams.out);
  }
  if (const std::string path = absl::GetFlag(FLAGS_figure); !path.empty()) {
    RETURN_IF_ERROR(WriteFigure(report, path));
    streams.err << "wrote " << path << "\n";
  }
  return kExitOk;
}

absl::StatusOr<ExitCode> Run(std::span<const std::string>, Streams streams) {
  ASSIGN_OR_RETURN(LoadOptions options, OptionsFromFlags());
  if (!absl::GetFlag(FLAGS_figure).empty()) {
    RETURN_IF_ERROR(RequirePictures());
    if (!absl::GetFlag(FLAGS_sweep)) {
      return absl::InvalidArgumentError("--figure: expected together with --sweep, got alone");
    }
  }
  if (absl::GetFlag(FLAGS_sweep)) return RunSweep(std::move(options), streams);
  return RunOnce(std::move(options), streams);
}

}  // namespace

const Command& LoadCommand() {
  static const Command command = {
      .name = "load",
      .arguments = "",
      .summary = "send many calls and measure latency, throughput and goodput",
      .help = kHelp,
      .flags = {{.title = "Load",
                 .flags = {"rate", "relative_rate", "spike", "arrival", "lengths", "sequences",
                           "deadline", "bulk", "retry", "watch_health", "connections",
                           "outstanding", "warm_up", "duration", "seed"}},
                {.title = "Search for the highest rate",
                 .flags = {"sweep", "p99_bound", "tries", "max_runs", "figure"}},
                {.title = "Outputs",
                 .flags = {"last_hidden_state", "hidden_states", "attentions", "layers", "heads",
                           "query_rows", "pooled", "logits", "contacts", "dtype"}},
                {.title = "Connection", .flags = {"address", "model", "max_response_bytes"}},
                IdentityFlagGroup(),
                {.title = "Printing", .flags = {"json"}}},
      .run = Run};
  return command;
}

}  // namespace encoderd::client
