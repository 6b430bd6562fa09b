// measurements.h — the measurements behind the table, by what they exercise.
#pragma once

#include <vector>

#include "tests/load/row.h"

namespace encoderd::load {

std::vector<Measurement> ScheduleMeasurements();   // rates, overload and queueing under open load
std::vector<Measurement> MachineMeasurements();    // idle cores, crowded cores, quotas, memory
std::vector<Measurement> TransportMeasurements();  // what gRPC costs

}  // namespace encoderd::load
