// drive.h — loads of one sequence per call on a server, in one line.
#pragma once

#include <string>
#include <vector>

#include "deploy/client/load/load.h"
#include "tests/load/bench_server.h"
#include "tests/load/in_process.h"
#include "tests/report/measurement.h"

namespace encoderd::load {

using report::Detail;

// Calls in flight that saturate a server of few workers, with batches to choose from.
inline constexpr int64_t kSaturating = 32;

v1::OutputSpec OutputSpecOf(Output output);

// Pooled vectors, no deadline that matters, `lengths` as client::LengthDistribution::Parse reads
// them; the caller changes what it needs and hands the options to Drive.
client::LoadOptions LoadOf(const BenchServer& server, const std::string& lengths, double seconds);

// Runs the load; the program ends where it cannot be run, or where the generator could not keep up.
client::LoadResult Drive(const client::LoadOptions& options);

// The saturated rate: every call of `lengths` answered, kSaturating of them in flight.
client::LoadResult Saturate(const BenchServer& server, const std::string& lengths, double seconds,
                            Output output = Output::kPooled);

// Durations of `count` calls for pooled vectors of one sequence, one after the other.
std::vector<absl::Duration> LoneCalls(const BenchServer& server, int64_t tokens, int count);

}  // namespace encoderd::load
