// measurements.h — the measurements behind the report, by what they compare.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/field.h"
#include "tests/report/measurement.h"

namespace encoderd::bench {

using report::Better;
using report::Figure;
using report::Found;
using report::Measurement;
using report::Settings;

// How fast an entrant was at a work, beside all others.
struct Cell {
  std::string model, work;
  std::string engine, version;
  Precision precision;
  Accuracy accuracy;
  bool counts = false;  // Entrant::Counts
  std::string setting;  // "2 streams, sorted:512"
  std::string kernels;
  std::string why_not;        // where there are no rates
  std::vector<double> rates;  // tokens per second, one for each round
};
using Cells = std::deque<Cell>;  // in the order in which they were measured

// A ratio of two rates; where there is none, why.
Found RatioOf(const absl::StatusOr<double>& numerator, const absl::StatusOr<double>& denominator,
              const std::string& unit);

using FieldRef = std::shared_ptr<Field>;  // gone with the last measurement that uses it

// What the machine can do, per precision.
std::vector<Measurement> MachineMeasurements(int threads);
// This engine beside the machine, beside itself in other precisions and in other ways.
std::vector<Measurement> EngineMeasurements(const FieldRef& field);
std::vector<Measurement> LongSequenceMeasurements(const FieldRef& field);
// This engine beside its peers, one measurement for each mix of lengths; `cells` gets them all.
std::vector<Measurement> PeerMeasurements(const FieldRef& field, Cells& cells);

}  // namespace encoderd::bench
