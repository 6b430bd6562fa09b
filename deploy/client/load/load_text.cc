#include "deploy/client/load/load_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace encoderd::client {
namespace {

using Json = nlohmann::ordered_json;

double Milliseconds(absl::Duration time) { return absl::ToDoubleMilliseconds(time); }

std::string ArrivalName(Arrival arrival) {
  switch (arrival) {
    case Arrival::kPoisson:
      return "poisson";
    case Arrival::kEven:
      return "even";
    case Arrival::kSaturate:
      return "saturate";
  }
  return "";
}

// Nearest microsecond: a JSON of 17 digits is hard to read and no more exact.
Json JsonMilliseconds(absl::Duration time) {
  if (time == absl::InfiniteDuration()) return nullptr;
  return static_cast<double>(absl::ToInt64Microseconds(time)) / 1000;
}

Json SummaryJson(const LatencySummary& summary) {
  if (summary.count == 0) return nullptr;
  return {{"mean", JsonMilliseconds(summary.mean)}, {"p50", JsonMilliseconds(summary.p50)},
          {"p90", JsonMilliseconds(summary.p90)},   {"p99", JsonMilliseconds(summary.p99)},
          {"p999", JsonMilliseconds(summary.p999)}, {"max", JsonMilliseconds(summary.max)}};
}

void WriteSummary(std::string_view name, const LatencySummary& summary, std::ostream& out) {
  if (summary.count == 0) return;
  out << absl::StrFormat("%-22s", std::string(name));
  for (const absl::Duration time :
       {summary.mean, summary.p50, summary.p90, summary.p99, summary.p999, summary.max}) {
    out << absl::StrFormat(" %10.2f", Milliseconds(time));
  }
  out << "\n";
}

std::string CountsText(const std::map<std::string, int64_t>& counts) {
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, " ", entry.second);
  });
}

// In percent, rounded down: nothing measured is 100 % sure.
std::string Percent(double share) {
  return absl::StrFormat("%.1f %%", std::floor(share * 1000) / 10);
}

// How sure a p99 is that so few calls were measured for.
double ConfidenceInBound(const LoadResult& result, absl::Duration bound) {
  return ConfidenceOfFewerMisses(result.MissesOf(bound), result.offered(), kMayMiss);
}

bool InBound(const SweepReport& report, const SweepPoint& point) {
  return point.result.PercentileOfAll(1 - kMayMiss) <= report.p99_bound;
}

const SweepPoint* BestPoint(const SweepReport& report) {
  const auto best = std::ranges::find_if(report.points, [&](const SweepPoint& point) {
    return point.rate == report.found.best && InBound(report, point);
  });
  return best == report.points.end() ? nullptr : &*best;
}

void WriteLagWarning(const LoadResult& result, std::ostream& out) {
  if (!result.generator_lagged()) return;
  const auto not_sent = result.codes.find("NOT_SENT");
  out << absl::StrFormat(
      "warning: the generator did not keep up (p99 of its lag %.2f ms, %d calls not sent): it "
      "shares\nits cores, or needs a larger --outstanding\n",
      Milliseconds(result.lag.p99), not_sent == result.codes.end() ? 0 : not_sent->second);
}

std::string InMilliseconds(absl::Duration time) {
  if (time == absl::InfiniteDuration()) return "failed";
  return absl::StrFormat("%.2f", Milliseconds(time));
}

constexpr const char* kPartNames[] = {"before the spike", "in the spike", "after the spike"};

void WriteParts(const LoadOptions& options, const LoadResult& result, std::ostream& out) {
  if (options.spike == 1) return;
  out << absl::StrFormat("\n%-22s %10s %10s %10s %10s %10s %10s\n", "", "offered", "answered",
                         "in time", "p50 ms", "p99 ms", "max ms");
  const auto parts = PartsOf(result, options.deadline);
  for (size_t at = 0; at < parts.size(); ++at) {
    const LoadPart& part = parts[at];
    out << absl::StrFormat("%-22s %10d %10d %10d %10.2f %10.2f %10.2f\n", kPartNames[at],
                           part.offered, part.answered, part.in_time,
                           Milliseconds(part.latency.p50), Milliseconds(part.latency.p99),
                           Milliseconds(part.latency.max));
  }
}

Json PartsJson(const LoadOptions& options, const LoadResult& result) {
  if (options.spike == 1) return nullptr;
  Json json = Json::array();
  for (const LoadPart& part : PartsOf(result, options.deadline)) {
    json.push_back({{"calls", part.offered},
                    {"answered", part.answered},
                    {"in_time", part.in_time},
                    {"latency_ms", SummaryJson(part.latency)}});
  }
  return json;
}

Json OptionsJson(const LoadOptions& options) {
  return {{"target", options.target},
          {"lengths", options.lengths.name()},
          {"mean_length", options.lengths.mean()},
          {"max_length", options.lengths.max()},
          {"sequences", options.sequences},
          {"bulk", options.priority == v1::PRIORITY_BULK},
          {"deadline_ms", JsonMilliseconds(options.deadline)},
          {"retry", options.retry},
          {"connections", options.connections},
          {"warm_up_s", absl::ToDoubleSeconds(options.warm_up)},
          {"duration_s", absl::ToDoubleSeconds(options.duration)},
          {"seed", options.seed}};
}

Json ResultJson(const LoadResult& result) {
  return {{"calls", result.offered()},
          {"answered", result.answered},
          {"in_time", result.in_time},
          {"goodput_fraction", result.goodput_fraction()},
          {"offered_rate", result.offered_rate},
          {"achieved_rate", result.achieved_rate},
          {"goodput_rate", result.goodput_rate},
          {"tokens_rate", result.tokens_rate},
          {"request_bytes_rate", result.request_bytes_rate},
          {"response_bytes_rate", result.response_bytes_rate},
          {"latency_ms", SummaryJson(result.latency)},
          {"queue_ms", SummaryJson(result.queue)},
          {"compute_ms", SummaryJson(result.compute)},
          {"codes", result.codes},
          {"reasons", result.reasons},
          {"generator",
           {{"lag_ms", SummaryJson(result.lag)},
            {"lagged", result.generator_lagged()},
            {"cpu_us_per_call", absl::ToDoubleMicroseconds(result.cpu_per_call)}}}};
}

}  // namespace

std::string DescribeLoad(const LoadOptions& options) {
  const std::string pace =
      options.arrival == Arrival::kSaturate
          ? absl::StrCat(options.outstanding, " calls in flight")
          : absl::StrFormat("%s arrivals, %.6g calls/s",
                            options.arrival == Arrival::kEven ? "even" : "Poisson", options.rate) +
                (options.spike == 1
                     ? ""
                     : absl::StrFormat(", %.4g times that in the middle third", options.spike));
  return absl::StrCat(pace, ", lengths ", absl::Utf8SafeCEscape(options.lengths.name()), " (mean ",
                      absl::StrFormat("%.4g", options.lengths.mean()), ", max ",
                      options.lengths.max(), "), ", options.sequences,
                      options.sequences == 1 ? " sequence" : " sequences", " a call");
}

std::string ProgressLine(const LoadProgress& progress) {
  const double seconds = std::max(absl::ToDoubleSeconds(progress.interval), 1e-3);
  std::string line = absl::StrFormat(
      "%5.0f s of %.0f s%s  due %.1f/s  answered %.1f/s", absl::ToDoubleSeconds(progress.elapsed),
      absl::ToDoubleSeconds(progress.total), progress.warming_up ? ", warming up" : "",
      static_cast<double>(progress.due) / seconds,
      static_cast<double>(progress.latency.count) / seconds);
  if (progress.latency.count > 0) {
    absl::StrAppendFormat(&line, "  p50 %.2f ms  p99 %.2f ms", Milliseconds(progress.latency.p50),
                          Milliseconds(progress.latency.p99));
  }
  absl::StrAppendFormat(&line, "  in flight %d  failed %d", progress.in_flight, progress.failed);
  return line;
}

void WriteLoadText(const LoadOptions& options, const LoadResult& result, std::ostream& out) {
  out << absl::Utf8SafeCEscape(result.model.name()) << " at " << options.target << ": "
      << DescribeLoad(options) << ",\n"
      << absl::FormatDuration(options.duration) << " after "
      << absl::FormatDuration(options.warm_up) << " of warm-up, deadline "
      << absl::FormatDuration(options.deadline) << ", " << options.connections
      << (options.connections == 1 ? " connection" : " connections")
      << (options.retry ? ", with retries" : "") << "\n\n";
  out << absl::StrFormat("%-22s %10s %10s %10s\n", "", "offered", "answered", "in time");
  out << absl::StrFormat("%-22s %10d %10d %10d  %.2f %% in time\n", "calls", result.offered(),
                         result.answered, result.in_time, 100 * result.goodput_fraction());
  out << absl::StrFormat("%-22s %10.1f %10.1f %10.1f\n", "calls/s", result.offered_rate,
                         result.achieved_rate, result.goodput_rate);
  out << absl::StrFormat("%-22s %10s %10.0f\n", "tokens/s", "", result.tokens_rate);
  out << absl::StrFormat("%-22s %10.3f %10.3f\n\n", "MB/s sent, received",
                         result.request_bytes_rate / 1e6, result.response_bytes_rate / 1e6);
  out << absl::StrFormat("%-22s %10s %10s %10s %10s %10s %10s\n", "milliseconds", "mean", "p50",
                         "p90", "p99", "p99.9", "max");
  WriteSummary("latency from due time", result.latency, out);
  WriteSummary("  in the queue", result.queue, out);
  WriteSummary("  in computation", result.compute, out);
  WriteSummary("  lag of the generator", result.lag, out);
  WriteParts(options, result, out);
  out << "\ncodes: " << CountsText(result.codes);
  if (!result.reasons.empty()) out << "; reasons: " << CountsText(result.reasons);
  out << absl::StrFormat("\ngenerator: %.0f us of CPU a call\n",
                         absl::ToDoubleMicroseconds(result.cpu_per_call));
  WriteLagWarning(result, out);
}

Json LoadJson(const LoadOptions& options, const LoadResult& result) {
  Json json = {{"model", result.model.name()}, {"numerics_id", result.model.numerics_id()}};
  json.update(OptionsJson(options));
  json["arrival"] = ArrivalName(options.arrival);
  json["rate"] = options.rate;
  json["outstanding"] = options.outstanding;
  json["spike"] = options.spike;
  json["parts"] = PartsJson(options, result);
  json.update(ResultJson(result));
  return json;
}

void WriteSweepText(const SweepReport& report, std::ostream& out) {
  out << absl::StrFormat("%10s %10s %10s %10s %8s %8s %12s  %s\n", "calls/s", "answered/s",
                         "p50 ms", "p99 ms", "calls", "missed", "confidence", "p99 in bound");
  std::vector<const SweepPoint*> points;
  for (const SweepPoint& point : report.points) points.push_back(&point);
  std::ranges::stable_sort(points, {}, &SweepPoint::rate);
  for (const SweepPoint* point : points) {
    const LoadResult& result = point->result;
    out << absl::StrFormat("%10.1f %10.1f %10s %10s %8d %8d %12s  %s\n", point->rate,
                           result.achieved_rate, InMilliseconds(result.PercentileOfAll(0.5)),
                           InMilliseconds(result.PercentileOfAll(0.99)), result.offered(),
                           result.MissesOf(report.p99_bound),
                           Percent(ConfidenceInBound(result, report.p99_bound)),
                           InBound(report, *point) ? "yes" : "no");
  }
  const double offline = report.offline.achieved_rate;
  out << absl::StrFormat("\noffline rate: %.1f calls/s, %.0f tokens/s with %d calls in flight\n",
                         offline, report.offline.tokens_rate, report.options.outstanding);
  const SweepPoint* best = BestPoint(report);
  if (best == nullptr) {
    out << absl::StrFormat("no rate tried had its p99 within %s\n",
                           absl::FormatDuration(report.p99_bound));
    return;
  }
  out << absl::StrFormat("highest rate with p99 within %s: %.1f calls/s, %.3f of the offline rate",
                         absl::FormatDuration(report.p99_bound), report.found.best,
                         report.found.best / offline);
  if (std::isfinite(report.found.failed)) {
    out << absl::StrFormat("; %.1f is too much", report.found.failed);
  }
  const double confidence = ConfidenceInBound(best->result, report.p99_bound);
  out << absl::StrFormat("\n%d of %d calls missed it: %s sure that fewer than 1 %% do\n",
                         best->result.MissesOf(report.p99_bound), best->result.offered(),
                         Percent(confidence));
  if (confidence < 0.95) {
    out << "warning: so few calls leave a p99 uncertain; a longer --duration makes it surer\n";
  }
  if (report.found.best > offline) {
    out << "warning: more than the offline rate: the machine has changed its speed between the "
           "measurements,\nor --outstanding is too small to saturate it\n";
  }
  if (!report.found.settled) out << "warning: not settled, a larger --max_runs goes on\n";
  WriteLagWarning(best->result, out);
}

Json SweepJson(const SweepReport& report) {
  Json json = {{"model", report.offline.model.name()},
               {"numerics_id", report.offline.model.numerics_id()}};
  json.update(OptionsJson(report.options));
  json["p99_bound_ms"] = JsonMilliseconds(report.p99_bound);
  json["best_rate"] = report.found.best;
  json["failed_rate"] =
      std::isfinite(report.found.failed) ? Json(report.found.failed) : Json(nullptr);
  json["settled"] = report.found.settled;
  json["offline_rate"] = report.offline.achieved_rate;
  const SweepPoint* best = BestPoint(report);
  json["confidence"] =
      best == nullptr ? Json(nullptr) : Json(ConfidenceInBound(best->result, report.p99_bound));
  json["offline"] = ResultJson(report.offline);
  json["runs"] = Json::array();
  for (const SweepPoint& point : report.points) {
    Json run = {{"rate", point.rate},
                {"p50_of_all_ms", JsonMilliseconds(point.result.PercentileOfAll(0.5))},
                {"p99_of_all_ms", JsonMilliseconds(point.result.PercentileOfAll(0.99))},
                {"missed", point.result.MissesOf(report.p99_bound)},
                {"confidence", ConfidenceInBound(point.result, report.p99_bound)}};
    run.update(ResultJson(point.result));
    json["runs"].push_back(std::move(run));
  }
  return json;
}

}  // namespace encoderd::client
