// measurement.h — what a program that measures does, one ratio with its floor and aim at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace encoderd::report {

enum class Better { kHigher, kLower };

// A ratio and what it must reach. `floor` is the worst value that passes, `aim` the one to work
// for; a figure without them is only told.
struct Figure {
  std::string name;
  std::optional<double> floor = {};
  std::optional<double> aim = {};
  Better better = Better::kHigher;

  bool Passes(double ratio) const {
    if (!floor.has_value()) return true;
    return better == Better::kHigher ? ratio >= *floor : ratio <= *floor;
  }
};

// What one round found for one figure.
struct Found {
  std::optional<double> ratio;
  std::string detail;  // the two values that were divided, with units; or why there is no ratio
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
  std::function<std::string()> why_skipped = {};
};

double Median(std::vector<double> values);

// "12.3 / 45.6 unit".
std::string Detail(double numerator, double denominator, const std::string& unit);

// The ratio of two values, with its Detail.
inline Found Ratio(double numerator, double denominator, const std::string& unit) {
  return {numerator / denominator, Detail(numerator, denominator, unit)};
}

}  // namespace encoderd::report
