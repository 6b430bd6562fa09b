// bars.h — a picture of who encodes how fast.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tests/bench/measurements.h"

namespace encoderd::bench {

// A PNG with a column of panels for each model and a panel for each work, in which the bars are
// tokens per second: medians, with a line from the slowest round to the fastest. Pale bars lie
// outside the error bound. Errors: those of Canvas::WritePng.
absl::Status DrawBars(const Cells& cells, const std::string& path);

}  // namespace encoderd::bench
