// row.h — one line of the table that tests/load/run.sh prints.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace encoderd::load {

enum class Better { kHigher, kLower };

// A ratio and what it must reach. `floor` is the worst value that passes, `aim` the one to work
// for.
struct Figure {
  std::string name;
  double floor = 0;
  double aim = 0;
  Better better = Better::kHigher;

  bool Passes(double ratio) const {
    return better == Better::kHigher ? ratio >= floor : ratio <= floor;
  }
};

// What one round found for one figure.
struct Found {
  double ratio = 0;
  std::string detail;  // the two values that were divided, with units
};

struct Settings {
  double seconds = 0;  // how long one load or one rate is measured
  bool quick = false;
};

// Figures that are measured together; a round gives one Found per figure.
struct Measurement {
  std::string key;  // for --only
  std::vector<Figure> figures;
  std::function<std::vector<Found>(const Settings&)> round;
  int rounds = 3;  // whose median counts
  // Why this machine cannot measure them, "" where it can. Not called before they are due.
  std::function<std::string()> why_skipped;
};

}  // namespace encoderd::load
