// cells.h — what was measured, told: tables of tokens per second, a file of JSON and a picture.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tests/bench/measurements.h"
#include "tests/report/report.h"

namespace encoderd::bench {

// For each model who took part, with what, and how exact; then a table of tokens per second.
void PrintCells(const Cells& cells);

// Writes report.json, which names the machine, and bars.png where there are cells, into BenchFolder(), and says so.
absl::Status WriteReport(const std::string& machine, const report::Outcome& outcome,
                         const Cells& cells);

}  // namespace encoderd::bench
