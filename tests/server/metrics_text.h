// metrics_text.h — the text that Prometheus scrapes, as it would store it.
#pragma once

#include <cmath>
#include <map>
#include <sstream>
#include <string>

namespace encoderd {

// The value of every series, by its name and labels as they are written.
inline std::map<std::string, double> ReadMetrics(const std::string& text) {
  std::map<std::string, double> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    if (line.starts_with('#') || space == std::string::npos) continue;
    values[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return values;
}

// The cumulative counts of a histogram by upper bound, +Inf included. `name` and `labels` as in
// name_bucket{labels,le="…"}; no labels: "".
inline std::map<double, double> ReadBuckets(const std::map<std::string, double>& values,
                                            const std::string& name, const std::string& labels) {
  const std::string prefix = name + "_bucket{" + labels + (labels.empty() ? "" : ",") + "le=\"";
  std::map<double, double> buckets;
  for (auto at = values.lower_bound(prefix); at != values.end() && at->first.starts_with(prefix);
       ++at) {
    buckets[std::stod(at->first.substr(prefix.size()))] = at->second;
  }
  return buckets;
}

// Prometheus' histogram_quantile(): evenly spread within a bucket, and the last finite bound for
// what lies in +Inf. REQUIRES: something was observed.
inline double HistogramQuantile(double quantile, const std::map<double, double>& buckets) {
  const double rank = quantile * buckets.rbegin()->second;
  double lower = 0, below = 0;
  for (const auto& [upper, count] : buckets) {
    if (std::isinf(upper)) break;
    if (count >= rank) return lower + (upper - lower) * (rank - below) / (count - below);
    lower = upper;
    below = count;
  }
  return lower;
}

}  // namespace encoderd
