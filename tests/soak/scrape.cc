#include "tests/soak/scrape.h"

#include "absl/log/check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/metrics_text.h"
#include "tests/soak/raw_connection.h"

namespace encoderd::soak {
namespace {

std::string Get(int port) {
  RawConnection connection(port);
  connection.Send("GET /metrics HTTP/1.0\r\n\r\n");
  const std::string answer = connection.ReadToEnd();
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

}  // namespace

Scrape::Scrape(int port) : values_(ReadMetrics(Get(port))) {
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
