#include "tests/soak/scrape.h"

#include <sstream>

#include "absl/log/check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/soak/raw_connection.h"

namespace encoderd::soak {
namespace {

std::string Get(int port) {
  RawConnection connection(port);
  connection.Send("GET /metrics HTTP/1.0\r\n\r\n");
  return connection.ReadToEnd();
}

}  // namespace

Scrape::Scrape(int port) {
  std::istringstream lines(Get(port));
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    if (absl::StartsWith(line, "#") || space == std::string::npos) continue;
    if (absl::StartsWith(line, "encoderd_") || absl::StartsWith(line, "process_")) {
      values_[line.substr(0, space)] = std::stod(line.substr(space + 1));
    }
  }
  CHECK(!values_.empty()) << "no metrics on port " << port;
}

double Scrape::operator[](const std::string& series) const {
  const auto found = values_.find(series);
  CHECK(found != values_.end()) << "no series " << series;
  return found->second;
}

double Scrape::Sum(const std::string& family, const std::string& label) const {
  double sum = 0;
  for (const auto& [series, value] : values_) {
    const bool in_family = series == family || absl::StartsWith(series, family + "{");
    if (in_family && absl::StrContains(series, label)) sum += value;
  }
  return sum;
}

}  // namespace encoderd::soak
