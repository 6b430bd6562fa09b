// scrape.h — a server's metrics, read as Prometheus reads them.
#pragma once

#include <map>
#include <string>

namespace encoderd::soak {

class Scrape {
 public:
  // Asks the exposer on this port of 127.0.0.1; the program ends where nobody answers.
  explicit Scrape(int port);

  // The value of a series: its name, and its labels as the exposer writes them, in the order of
  // their names. The program ends where there is no such series.
  double operator[](const std::string& series) const;

  // The sum of all series of a family whose labels contain `label`, such as method="Encode".
  double Sum(const std::string& family, const std::string& label = "") const;

 private:
  const std::map<std::string, double> values_;
};

}  // namespace encoderd::soak
