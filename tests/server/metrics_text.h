// metrics_text.h — the text that Prometheus scrapes, as it would store it.
#pragma once

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

}  // namespace encoderd
