#include "server/metrics_http.h"

#include <netdb.h>
#include <prometheus/exposer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

// Connects and hangs up. An address of the kind "any" reaches this machine.
void Touch(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  if (const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      fd >= 0) {
    connect(fd, found->ai_addr, found->ai_addrlen);
    close(fd);
  }
  freeaddrinfo(found);
}

// "[::1]:9090" → "::1".
std::string HostOf(const std::string& listen) {
  std::string host = listen.substr(0, listen.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsHttp>> MetricsHttp::Start(const std::string& listen) {
  // The HTTP server throws where it cannot bind; its text says nothing that helps.
  try {
    return std::unique_ptr<MetricsHttp>(new MetricsHttp(
        HostOf(listen), std::make_unique<prometheus::Exposer>(listen, /*num_threads=*/2)));
  } catch (const std::exception&) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", listen, ": the address is taken or not ours"));
  }
}

MetricsHttp::MetricsHttp(std::string host, std::unique_ptr<prometheus::Exposer> exposer)
    : host_(std::move(host)), exposer_(std::move(exposer)) {}

MetricsHttp::~MetricsHttp() {
  // The HTTP server looks whether it should end every two seconds, or when somebody connects: too
  // long for the end of a process, so connect until it has noticed.
  const int bound = port();
  const std::future<void> ended = std::async(std::launch::async, [this] { exposer_.reset(); });
  while (ended.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    Touch(host_, bound);
  }
}

void MetricsHttp::Serve(const std::shared_ptr<prometheus::Collectable>& values) {
  exposer_->RegisterCollectable(values);
}

int MetricsHttp::port() const { return exposer_->GetListeningPorts().at(0); }

}  // namespace encoderd
