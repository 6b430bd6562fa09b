// load.h — sends Encode calls when they are due, whether or not earlier ones have been answered,
// and keeps what became of each.
//
// Role:    the engine of `encoderctl load` and of performance programs.
// Latency: counted from the time a call was due, not from when it was sent: a server that stalls
//          for a second is charged with every call that was due in that second, and so is a
//          generator that cannot keep up (free of coordinated omission). The lag of the generator
//          is told apart, so that it can be seen whose fault a latency is.
// Cost:    two threads of its own, asleep but for sending and receiving; requests are serialised
//          before the start, answers are not parsed but for their Timing.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "deploy/client/identity.h"
#include "deploy/client/load/arrivals.h"
#include "deploy/client/load/lengths.h"
#include "deploy/client/load/load_result.h"
#include "encoderd/v1/encoder.pb.h"

namespace encoderd::client {

inline constexpr double kMaxRate = 100000;  // calls per second: beyond one thread's power
// Of one run: each takes 64 bytes. What an open loop is expected to make; chance may add a few.
inline constexpr int64_t kMaxCalls = 5000000;
inline constexpr double kMaxSpike = 1000;
inline constexpr int64_t kMaxOutstanding = 65536;
inline constexpr int64_t kMaxConnections = 1024;
inline constexpr absl::Duration kMaxWarmUp = absl::Minutes(10);
inline constexpr absl::Duration kMaxDuration = absl::Hours(1);
inline constexpr absl::Duration kMaxDeadline = absl::Minutes(10);

struct LoadOptions {
  // host:port, or any gRPC target; the addresses of one that has several are used in turn.
  std::string target;
  Identity identity;
  std::string model;  // "" = the only one served
  Arrival arrival = Arrival::kPoisson;
  double rate = 0;  // calls due per second, up to kMaxRate; 0 for kSaturate
  // Of the middle third of the window the rate is so many times as high, up to kMaxSpike.
  double spike = 1;
  LengthDistribution lengths;
  int64_t sequences = 1;  // per call
  v1::OutputSpec outputs;
  v1::Priority priority = v1::PRIORITY_INTERACTIVE;
  int64_t max_response_bytes = int64_t{64} << 20;  // 1 to 2 GiB - 1
  // Of each call, from the time it is due; up to kMaxDeadline.
  absl::Duration deadline = absl::Seconds(1);
  // Whether the client tries again what service_config.json says; else a refusal is told as it is.
  bool retry = false;
  // Whether calls go to the addresses alone whose health says that they serve: where the target has
  // those of the replicas themselves, not through a proxy.
  bool watch_health = false;
  int64_t connections = 1;  // up to kMaxConnections, used in turn
  // Until all of them are there.
  absl::Duration connect_limit = absl::Seconds(10);
  // kSaturate: calls in flight. Otherwise a bound: a call that is due while so many are in flight
  // is not sent, and counts as a failure, code NOT_SENT. Up to kMaxOutstanding.
  int64_t outstanding = 4096;
  absl::Duration warm_up = absl::Seconds(1);    // up to kMaxWarmUp
  absl::Duration duration = absl::Seconds(10);  // up to kMaxDuration
  uint64_t seed = 1;                            // of times, lengths and ids
  // Ends the run early: what has not been due by then never is, and the window ends there.
  std::stop_token stop = {};
};

// Errors: kInvalidArgument with every fault, one a line: the flag of `encoderctl load`, what was
// expected, what was given.
absl::Status CheckLoadOptions(const LoadOptions& options);

// What the last part of a run looked like; see ProgressCallback.
struct LoadProgress {
  absl::Duration elapsed;   // of the whole run
  absl::Duration total;     // warm-up and window
  bool warming_up = false;  // when the part began
  int64_t in_flight = 0;
  // Since the progress before.
  absl::Duration interval;
  int64_t due = 0;
  int64_t failed = 0;
  LatencySummary latency;  // of answered calls
};

// Called about once a second in the thread of RunLoad, which has nothing else to do. May be empty.
using ProgressCallback = std::function<void(const LoadProgress&)>;

// Runs for warm_up + duration, and up to `deadline` more until the last call has ended. Calls that
// fail are part of the result. Errors: those of CheckLoadOptions; kInvalidArgument where the model
// cannot take such sequences, kFailedPrecondition where it cannot give the outputs, both before the
// first call; kUnavailable where `target` cannot be reached, and what else GetModel returns;
// kOutOfRange where a closed loop makes more than kMaxCalls.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options, const ProgressCallback& progress);

}  // namespace encoderd::client
