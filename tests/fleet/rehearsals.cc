#include "tests/fleet/rehearsals.h"

#include <signal.h>

#include <algorithm>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace encoderd::fleet {
namespace {

// Longer than gRPC waits before it tries an address again that was dead for so short a time.
constexpr absl::Duration kBackLimit = absl::Minutes(1);

constexpr int kNone = -1;

absl::Duration Sent(const client::CallRecord& call) { return call.due + call.lag; }

// In milliseconds, of the calls that were sent in [begin, end); one that failed never ended.
double P99(const client::LoadResult& result, absl::Duration begin, absl::Duration end) {
  client::LoadResult part;
  for (const client::CallRecord& call : result.calls) {
    if (Sent(call) >= begin && Sent(call) < end) part.calls.push_back(call);
  }
  return absl::ToDoubleMilliseconds(part.PercentileOfAll(0.99));
}

client::LoadOptions On(const Path& path, client::LoadOptions load) {
  load.target = path.target;
  load.watch_health = path.direct;
  return load;
}

// Two loads under way at the same time.
class BothLoads {
 public:
  explicit BothLoads(client::LoadOptions load) : strict_(load), retrying_(Retrying(load)) {
    strict_.AwaitUnderWay();
    retrying_.AwaitUnderWay();
  }

  void Begin() {
    seen_ = {.strict = {.begin = strict_.Now()}, .retrying = {.begin = retrying_.Now()}};
  }
  void End() {
    seen_.strict.end = strict_.Now();
    seen_.retrying.end = retrying_.Now();
  }
  SeenByBoth Stop() {
    seen_.strict.result = strict_.Stop();
    seen_.retrying.result = retrying_.Stop();
    return std::move(seen_);
  }

 private:
  static client::LoadOptions Retrying(client::LoadOptions load) {
    load.retry = true;
    load.seed += 1;
    return load;
  }

  BackgroundLoad strict_, retrying_;
  SeenByBoth seen_;
};

void AwaitInUse(const Replicas& replicas, int i, const Path& path) {
  const absl::Time end = absl::Now() + kBackLimit;
  while (replicas.Calls(i) == 0 || replicas.Connections(i) < path.connections) {
    CHECK(absl::Now() < end) << path.name << ": nobody uses replica " << i << " again";
    absl::SleepFor(absl::Milliseconds(50));
  }
}

// Gives a process a third of its time, in slices far shorter than what anybody takes for death.
class Slowed {
 public:
  explicit Slowed(const Process& process)
      : slices_([&process](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            process.Signal(SIGSTOP);
            absl::SleepFor(absl::Milliseconds(20));
            process.Signal(SIGCONT);
            absl::SleepFor(absl::Milliseconds(10));
          }
        }) {}

 private:
  std::jthread slices_;
};

std::vector<double> CallsOfAll(Replicas& replicas) {
  std::vector<double> calls;
  for (int i = 0; i < replicas.count(); ++i) {
    calls.push_back(replicas.alive(i) ? replicas.Calls(i) : 0);
  }
  return calls;
}

}  // namespace

int64_t Observed::FailedOfThoseSentAfter(absl::Duration since) const {
  return std::ranges::count_if(result.calls, [since](const client::CallRecord& call) {
    return !call.answered() && Sent(call) > since;
  });
}

double Observed::P99Before() const { return P99(result, -absl::InfiniteDuration(), begin); }

double Observed::P99During() const { return P99(result, begin, end); }

std::string Observed::Text() const {
  std::string text = absl::StrJoin(result.codes, ", ", absl::PairFormatter(" "));
  if (failed() > 0) {
    absl::StrAppend(&text, "; first: ", result.first_failure.error_message());
  }
  return text;
}

Rolled ReplaceAll(Replicas& replicas, const Path& path, client::LoadOptions load,
                  absl::Duration before, Start start) {
  load = On(path, std::move(load));
  BothLoads loads(std::move(load));
  absl::SleepFor(before);
  Rolled rolled;
  loads.Begin();
  const auto bring = [&](int i) {
    replicas.Restart(i, start);
    AwaitInUse(replicas, i, path);
  };
  int spare = kNone;
  std::vector<int> going;
  for (int i = 0; i < replicas.count(); ++i) {
    if (replicas.alive(i)) {
      going.push_back(i);
    } else {
      spare = i;
    }
  }
  for (const int i : going) {
    if (spare != kNone) bring(spare);
    rolled.exit_codes.push_back(replicas.Stop(i));
    if (spare == kNone) {
      bring(i);
    } else {
      spare = i;
    }
  }
  loads.End();
  rolled.seen = loads.Stop();
  return rolled;
}

Killed KillOne(Replicas& replicas, const Path& path, client::LoadOptions load) {
  load = On(path, std::move(load));
  const std::vector<double> before = CallsOfAll(replicas);
  BothLoads loads(std::move(load));
  // Whatever it has answered after this scrape is not seen: it is only ever too little.
  const double victims = replicas.Calls(0) - before[0];
  loads.Begin();
  replicas[0].process().Signal(SIGSTOP);
  absl::SleepFor(absl::Milliseconds(300));
  loads.End();
  replicas.Kill(0);
  absl::SleepFor(absl::Seconds(1));
  replicas.Restart(0);
  AwaitInUse(replicas, 0, path);

  Killed killed = {.seen = loads.Stop()};
  const SeenByBoth& seen = killed.seen;
  const std::vector<double> after = CallsOfAll(replicas);
  double run = victims + after[0];
  for (size_t i = 1; i < after.size(); ++i) run += after[i] - before[i];
  constexpr double kFirstTries = 2;  // one before each load
  killed.surplus = run - kFirstTries -
                   static_cast<double>(seen.strict.result.answered + seen.retrying.result.answered);
  return killed;
}

std::vector<double> CallsWhileOneIsSlow(Replicas& replicas, const Path& path,
                                        client::LoadOptions load, absl::Duration duration) {
  load = On(path, std::move(load));
  const std::vector<double> before = CallsOfAll(replicas);
  {
    const Slowed slow(replicas[0].process());
    Capacity(load, duration);
  }
  std::vector<double> calls = CallsOfAll(replicas);
  for (size_t i = 0; i < calls.size(); ++i) calls[i] -= before[i];
  return calls;
}

}  // namespace encoderd::fleet
