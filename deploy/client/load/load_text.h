// load_text.h — what a load has measured, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "deploy/client/load/load.h"
#include "deploy/client/load/sweep.h"

namespace encoderd::client {

// "poisson arrivals, 200 calls/s, lengths squad (mean 177, max 384), 1 sequence a call"
std::string DescribeLoad(const LoadOptions& options);

// One line, without its end.
std::string ProgressLine(const LoadProgress& progress);

void WriteLoadText(const LoadOptions& options, const LoadResult& result, std::ostream& out);

// Rates per second, latencies in milliseconds.
nlohmann::ordered_json LoadJson(const LoadOptions& options, const LoadResult& result);

// One measurement of a sweep.
struct SweepPoint {
  double rate = 0;  // asked for
  LoadResult result;
};

struct SweepReport {
  LoadOptions options;  // but for arrival and rate
  absl::Duration p99_bound;
  LoadResult offline;
  std::vector<SweepPoint> points;  // in the order they were measured
  SweepResult found;
};

// How many of the calls may miss the bound.
inline constexpr double kMayMiss = 0.01;

void WriteSweepText(const SweepReport& report, std::ostream& out);
nlohmann::ordered_json SweepJson(const SweepReport& report);

}  // namespace encoderd::client
