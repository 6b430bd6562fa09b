// load_result.h — what became of the calls of a load.
//
// Role:    pure: the numbers of a run from the records of its calls.
// Window:  the `duration` after the `warm_up`. What is counted by call counts the calls due in the
//          window, however late they end; what is counted per second counts the answers that came
//          within the window, whenever they were due, so that a queue filled before it or emptied
//          after it never looks like throughput.
#pragma once

#include <grpcpp/support/status.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "deploy/client/load/arrivals.h"
#include "deploy/client/load/latency.h"
#include "encoderd/v1/encoder.pb.h"

namespace encoderd::client {

// One call that was due.
struct CallRecord {
  absl::Duration due;      // since the start of the window; negative in the warm-up
  absl::Duration lag;      // from due to sent
  absl::Duration latency;  // from due to the answer or refusal
  uint32_t queue_us = 0;   // the server's Timing, of answered calls
  uint32_t compute_us = 0;
  uint32_t tokens = 0;
  uint32_t request_bytes = 0;
  uint32_t response_bytes = 0;
  bool sent = false;
  grpc::StatusCode code = grpc::StatusCode::OK;

  bool answered() const { return sent && code == grpc::StatusCode::OK; }
};

struct LoadResult {
  v1::GetModelResponse model;
  absl::Duration window;

  // Of the calls due in the window.
  std::vector<CallRecord> calls;  // in the order they were due
  int64_t answered = 0;
  int64_t in_time = 0;                     // answered within the deadline
  std::map<std::string, int64_t> codes;    // by gRPC's names, and NOT_SENT
  std::map<std::string, int64_t> reasons;  // of google.rpc.ErrorInfo, of those that failed
  LatencySummary latency;                  // of answered calls
  LatencySummary queue;                    // the same, as the server says
  LatencySummary compute;
  LatencySummary lag;          // of all that were sent
  grpc::Status first_failure;  // OK if none failed

  // Per second of the window.
  double offered_rate = 0;   // calls due
  double achieved_rate = 0;  // answers
  double goodput_rate = 0;   // answers within their deadline
  double tokens_rate = 0;    // tokens of the answers
  double request_bytes_rate = 0;
  double response_bytes_rate = 0;

  // Of the generator's own threads, warm-up included.
  absl::Duration cpu_per_call;

  int64_t offered() const { return static_cast<int64_t>(calls.size()); }
  // Share of the calls due that were answered within the deadline.
  double goodput_fraction() const;
  // Calls due that were not answered within `bound`, failed ones included.
  int64_t MissesOf(absl::Duration bound) const;
  // The latency that a share of `fraction` of all calls due does not exceed, where a call that
  // failed never ends: possibly InfiniteDuration, and so without any call.
  absl::Duration PercentileOfAll(double fraction) const;
  // Whether the generator itself added to what it measured: calls not sent, or a lag whose p99 is
  // above 1 ms and above a tenth of the p99 of the latency.
  bool generator_lagged() const;
};

// The middle third of a window of a load.
inline Spike SpikeOf(absl::Duration window, double factor) {
  return {.begin = window / 3, .end = window / 3 * 2, .factor = factor};
}

// Of the calls that were due in a part of the window.
struct LoadPart {
  int64_t offered = 0, answered = 0, in_time = 0;
  LatencySummary latency;  // of answered calls
};

// Before, in and after the middle third.
std::array<LoadPart, 3> PartsOf(const LoadResult& result, absl::Duration deadline);

// Fills in everything but `model`, `reasons`, `first_failure` and `cpu_per_call`. `records`: all
// calls of the run, warm-up included. REQUIRES: window > 0.
LoadResult SummariseLoad(std::vector<CallRecord> records, absl::Duration window,
                         absl::Duration deadline);

}  // namespace encoderd::client
