// metrics_http.h — serves GET /metrics.
//
// Role:    hides the HTTP server of prometheus-cpp from metrics.cc: its exceptions, and its slow
//          end.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace prometheus {
class Collectable;
class Exposer;
}  // namespace prometheus

namespace encoderd {

class MetricsHttp {
 public:
  // `listen`: "127.0.0.1:9090", "[::]:0". Errors: kUnavailable when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsHttp>> Start(const std::string& listen);
  ~MetricsHttp();

  // Adds what `values` collects to every answer, for as long as it lives.
  void Serve(const std::shared_ptr<prometheus::Collectable>& values);

  int port() const;

 private:
  MetricsHttp(std::string host, std::unique_ptr<prometheus::Exposer> exposer);

  const std::string host_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace encoderd
