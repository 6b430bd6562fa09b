// load_figure.h — draws latency over rate in a PNG.
//
// Latency has a logarithmic axis, so that an idle server and an overloaded one fit one picture. A
// latency without end (a call that failed) is drawn as an arrow at the upper edge.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace encoderd::client {

struct LoadFigure {
  struct Point {
    double rate = 0;     // calls per second, offered
    absl::Duration p50;  // of all calls due, failed ones without end
    absl::Duration p99;
  };

  std::string title;
  std::string subtitle;
  std::vector<Point> points;  // by rising rate
  absl::Duration p99_bound;
  double offline_rate = 0;
  double best_rate = 0;  // the highest within the bound; 0 = none
};

// Writes the picture. REQUIRES: at least one point; rates, bound and offline rate above 0. Errors:
// those of Canvas::WritePng.
absl::Status DrawLoad(const LoadFigure& figure, const std::string& path);

}  // namespace encoderd::client
