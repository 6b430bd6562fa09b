// soak.h — what every phase of a soak is given, and what several of them do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "deploy/client/load/load.h"
#include "tests/integration/pending_call.h"
#include "tests/load/bench_server.h"
#include "tests/load/in_process.h"
#include "tests/soak/report.h"
#include "tests/soak/scrape.h"

namespace encoderd::soak {

using load::BenchServer;
using load::Median;

struct Soak {
  double minutes;  // that the whole soak is to take
  absl::Time end;  // of it
  Report& report;

  // The part of the soak that takes so many seconds when it takes ten minutes, at least 2 s.
  absl::Duration Span(double seconds) const;
  // The same in so many parts, of at least 2 s each.
  absl::Duration Turn(double seconds, int turns) const;
};

// A part of a soak: starts servers, puts them under load, reports checks.
using Phase = void (*)(const Soak&);

// ---- Models -------------------------------------------------------------------------------------

// Little work, for phases in which work does not matter; sequences of up to 4096 tokens.
const load::BenchModel& SmallModel();

// ---- Calls --------------------------------------------------------------------------------------

// Long enough for every call that is answered at all.
inline constexpr absl::Duration kPatience = absl::Seconds(30);

// Sequences of these lengths, of ids that every model of ours has; mean-pooled.
v1::EncodeRequest RequestOf(const std::vector<int64_t>& lengths,
                            v1::Priority priority = v1::PRIORITY_INTERACTIVE);

// A call with its deadline, which it tells to the report when it ends.
class Call {
 public:
  Call(const Soak& soak, v1::EncoderService::Stub& encoder, const v1::EncodeRequest& request,
       absl::Duration deadline = kPatience)
      : report_(soak.report), deadline_(deadline), call_(encoder, request, deadline) {}
  ~Call();

  void Cancel() { call_.Cancel(); }
  // Waits for the end.
  const grpc::Status& status() { return call_.status(); }
  bool ok() { return status().ok(); }
  // Of a call that has ended.
  const v1::EncodeResponse& response() const { return call_.response(); }
  absl::Duration took() const { return call_.took(); }

 private:
  Report& report_;
  const absl::Duration deadline_;
  PendingCall call_;
};

// Runs the load with a live line; the program ends where it cannot be run at all.
client::LoadResult Drive(const Soak& soak, const client::LoadOptions& options);

// A load of one sequence per call, with so many in flight all the time.
client::LoadOptions ClosedLoop(const BenchServer& server, const std::string& lengths,
                               absl::Duration duration, int64_t outstanding);
// The same with calls that come by a Poisson process.
client::LoadOptions OpenLoop(const BenchServer& server, const std::string& lengths,
                             absl::Duration duration, double rate);

// Reports whether every call of the load was answered.
void CheckAllAnswered(const Soak& soak, const std::string& what, const client::LoadResult& result);

// "OK 12, UNAVAILABLE 3".
std::string CodesText(const client::LoadResult& result);

// ---- Servers ------------------------------------------------------------------------------------

// Reports how the server ends when it is told to: exit code 0 within `limit`.
void CheckEnds(const Soak& soak, BenchServer& server, absl::Duration limit);

// Waits until the series is at most `value`; false after 10 s.
bool AwaitAtMost(const BenchServer& server, const std::string& series, double value);
bool AwaitAtLeast(const BenchServer& server, const std::string& series, double value);

inline Scrape ScrapeOf(const BenchServer& server) { return Scrape(server.metrics_port()); }

// ---- Units --------------------------------------------------------------------------------------

double Milliseconds(absl::Duration duration);
double Mebibytes(double bytes);

}  // namespace encoderd::soak
