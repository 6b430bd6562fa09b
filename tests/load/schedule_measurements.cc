// Open load on MiniLM-L6: how much of the offline rate can be promised, and what becomes of calls
// beyond it.
#include <algorithm>
#include <queue>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/load/drive.h"
#include "tests/load/measurements.h"

namespace encoderd::load {
namespace {

using client::Arrival;
using client::LoadOptions;
using client::LoadResult;

constexpr char kSquad[] = "squad";
constexpr int64_t kFixedTokens = 128;
const std::string kFixed = absl::StrCat("fixed:", kFixedTokens);

// What a call of 384 tokens takes on one worker with nobody else there, times five: what a caller
// can be asked to wait.
absl::Duration LatencyBound() {
  const BenchServer one_worker(MiniLm(), {"--workers=1"});
  return 5 * absl::Seconds(MedianSeconds(LoneCalls(one_worker, 384, 11)));
}

LoadResult Offer(const BenchServer& server, Arrival arrival, double rate,
                 const std::string& lengths, absl::Duration deadline, double seconds) {
  LoadOptions options = LoadOf(server, lengths, seconds);
  options.arrival = arrival;
  options.rate = rate;
  options.deadline = deadline;
  return Drive(options);
}

// The highest rate, as a share of the offline rate, whose p99 over all calls stays within the
// bound.
std::vector<Found> HighestRate(const Settings& settings) {
  const absl::Duration bound = LatencyBound();
  const BenchServer server(MiniLm());
  const double offline = Saturate(server, kSquad, settings.seconds).achieved_rate;
  double low = 0.3, high = 1.0;
  const int runs = settings.quick ? 3 : 5;
  for (int i = 0; i < runs; ++i) {
    const double share = (low + high) / 2;
    const LoadResult result = Offer(server, Arrival::kPoisson, share * offline, kSquad,
                                    absl::Minutes(1), settings.seconds);
    (result.PercentileOfAll(0.99) <= bound ? low : high) = share;
  }
  return {{low, absl::StrFormat("%.1f / %.1f calls/s, p99 bound %.0f ms", low * offline, offline,
                                absl::ToDoubleMilliseconds(bound))}};
}

// The most calls per second that a server answers in time: that of a closed loop with as many in
// flight as take most of the deadline to be answered, and enough that no worker waits for one.
double MostInTime(const BenchServer& server, absl::Duration deadline, double seconds) {
  const double offline = Saturate(server, kSquad, seconds).achieved_rate;
  LoadOptions options = LoadOf(server, kSquad, seconds);
  options.arrival = Arrival::kSaturate;
  options.outstanding = std::max(
      int64_t{2 * Cpus()}, static_cast<int64_t>(0.8 * offline * absl::ToDoubleSeconds(deadline)));
  options.deadline = deadline;
  return Drive(options).goodput_rate;
}

std::vector<Found> Overload(const Settings& settings) {
  const absl::Duration deadline = LatencyBound();
  const BenchServer server(MiniLm());
  const double saturated = MostInTime(server, deadline, settings.seconds);
  std::vector<Found> found;
  for (const double factor : {1.5, 3.0}) {
    const LoadResult result =
        Offer(server, Arrival::kPoisson, factor * saturated, kSquad, deadline, settings.seconds);
    found.push_back({result.goodput_rate / saturated,
                     Detail(result.goodput_rate, saturated, "calls/s in time")});
  }
  return found;
}

std::vector<Found> EvenTail(const Settings& settings) {
  const BenchServer server(MiniLm());
  const double offline = Saturate(server, kFixed, settings.seconds).achieved_rate;
  const LoadResult result =
      Offer(server, Arrival::kEven, 0.7 * offline, kFixed, absl::Minutes(1), settings.seconds);
  const double p99 = absl::ToDoubleMilliseconds(result.PercentileOfAll(0.99));
  const double p50 = absl::ToDoubleMilliseconds(result.PercentileOfAll(0.50));
  return {{p99 / p50, Detail(p99, p50, "ms")}};
}

// p99 of an ideal queue: the same arrivals, taken in order by as many servers as there are workers,
// at no cost but the service times, drawn from the measured ones.
double IdealP99(const LoadResult& real, const std::vector<absl::Duration>& service) {
  std::mt19937_64 random(17);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < Cpus(); ++i) free_at.push(absl::ToDoubleSeconds(real.calls.front().due));
  std::vector<double> latencies;
  for (const client::CallRecord& call : real.calls) {
    const double due = absl::ToDoubleSeconds(call.due);
    const double start = std::max(due, free_at.top());
    free_at.pop();
    const double end = start + absl::ToDoubleSeconds(service[random() % service.size()]);
    free_at.push(end);
    latencies.push_back(end - due);
  }
  std::sort(latencies.begin(), latencies.end());
  return latencies[latencies.size() * 99 / 100];
}

std::vector<Found> PoissonTail(const Settings& settings) {
  static const InProcess& engine = *new InProcess(MiniLm());
  const BenchServer server(MiniLm());
  const double offline = Saturate(server, kFixed, settings.seconds).achieved_rate;
  // Half of the service times before, half after: the machine's speed wanders.
  std::vector<absl::Duration> service = engine.BusyCallTimes(kFixedTokens, settings.seconds / 4);
  const LoadResult result =
      Offer(server, Arrival::kPoisson, 0.7 * offline, kFixed, absl::Minutes(1), settings.seconds);
  const auto after = engine.BusyCallTimes(kFixedTokens, settings.seconds / 4);
  service.insert(service.end(), after.begin(), after.end());
  const double real = absl::ToDoubleMilliseconds(result.PercentileOfAll(0.99));
  const double ideal = 1e3 * IdealP99(result, service);
  return {{real / ideal, Detail(real, ideal, "ms")}};
}

std::vector<Found> ShortQueries(const Settings& settings) {
  const BenchServer server(MiniLm());
  const double uniform = Saturate(server, kFixed, settings.seconds).tokens_rate;
  const double queries = Saturate(server, "short", settings.seconds).tokens_rate;
  return {{queries / uniform, Detail(queries, uniform, "tokens/s")}};
}

}  // namespace

std::vector<Measurement> ScheduleMeasurements() {
  return {
      {.key = "highest_rate",
       .figures = {{"highest Poisson rate in time ÷ offline rate, SQuAD-like mix", 0.65, 0.80}},
       .round = HighestRate},
      {.key = "overload",
       .figures = {{"goodput at 1.5 × overload ÷ at saturation", 0.90, 0.97},
                   {"goodput at 3 × overload ÷ at saturation", 0.85, 0.95}},
       .round = Overload},
      {.key = "even_tail",
       .figures = {{"p99 ÷ p50, even arrivals at 70 %", 2.0, 1.5, Better::kLower}},
       .round = EvenTail},
      {.key = "poisson_tail",
       .figures = {{"p99 ÷ p99 of an ideal queue, Poisson at 70 %", 1.5, 1.15, Better::kLower}},
       .round = PoissonTail},
      {.key = "short_queries",
       .figures = {{"short queries' tokens/s ÷ uniform 128's", 0.75, 0.88}},
       .round = ShortQueries},
  };
}

}  // namespace encoderd::load
