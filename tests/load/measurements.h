// measurements.h — the measurements behind the table, by what they exercise.
#pragma once

#include <vector>

#include "tests/report/measurement.h"

namespace encoderd::load {

using report::Better;
using report::Found;
using report::Measurement;
using report::Settings;

std::vector<Measurement> ScheduleMeasurements();   // rates, overload and queueing under open load
std::vector<Measurement> MachineMeasurements();    // idle cores, crowded cores, quotas, memory
std::vector<Measurement> TransportMeasurements();  // what gRPC costs

}  // namespace encoderd::load
