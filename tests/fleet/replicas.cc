#include "tests/fleet/replicas.h"

#include <signal.h>

#include <utility>

#include "absl/log/check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/soak/scrape.h"

namespace encoderd::fleet {
namespace {

// Longer than any drain here.
constexpr absl::Duration kEndLimit = absl::Seconds(30);

}  // namespace

Replicas::Replicas(int count, std::vector<std::string> flags)
    : flags_(std::move(flags)), replicas_(static_cast<size_t>(count)) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Launch(i, /*port=*/0, Start::kAsIs);
    addresses_.push_back(replicas_[i]->address());
  }
}

void Replicas::Launch(size_t i, int port, Start start) {
  std::vector<std::string> flags = flags_;
  flags.push_back(absl::StrCat("--listen=127.0.0.1:", port));
  replicas_[i] = std::make_unique<Encoderd>(flags);
  Encoderd& replica = *replicas_[i];
  // The least that a process can have, which its threads inherit.
  if (start == Start::kOnSpareTime) replica.process().SetNice(19);
  replica.AwaitServing();
  if (start == Start::kOnSpareTime) replica.process().SetNice(0);
  CHECK(absl::StrContains(replica.process().output(), "Serving.")) << replica.process().output();
}

std::string Replicas::Target() const {
  return absl::StrCat("ipv4:", absl::StrJoin(addresses_, ","));
}

int Replicas::Stop(int i) {
  Process& process = (*this)[i].process();
  process.Signal(SIGTERM);
  return process.Wait(kEndLimit);
}

void Replicas::Kill(int i) {
  Process& process = (*this)[i].process();
  process.Signal(SIGKILL);
  process.Wait();
}

void Replicas::Restart(int i, Start start) {
  const auto at = static_cast<size_t>(i);
  const int port = replicas_[at]->port();
  Launch(at, port, start);
}

double Replicas::Calls(int i) const {
  return soak::Scrape(replicas_[static_cast<size_t>(i)]->metrics_port())
      .Sum("encoderd_calls_total", "method=\"Encode\"");
}

double Replicas::Connections(int i) const {
  return soak::Scrape(replicas_[static_cast<size_t>(i)]->metrics_port())["encoderd_connections"];
}

}  // namespace encoderd::fleet
