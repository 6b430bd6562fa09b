#include "tests/fleet/haproxy.h"

#include <filesystem>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace encoderd::fleet {
namespace {

constexpr char kProgram[] = "/usr/sbin/haproxy";
constexpr char kConfig[] = ENCODERD_SOURCE_DIR "/deploy/haproxy/haproxy.cfg";

// What it takes from its environment, and its own command line.
std::vector<std::string> Command(const std::string& socket,
                                 const std::vector<std::string>& servers) {
  CHECK_EQ(servers.size(), static_cast<size_t>(HaProxy::kServers));
  std::vector<std::string> words = {absl::StrCat("ENCODERD_BIND=unix@", socket)};
  for (size_t i = 0; i < servers.size(); ++i) {
    words.push_back(absl::StrCat("ENCODERD_REPLICA_", i + 1, "=", servers[i]));
  }
  words.insert(words.end(), {kProgram, "-db", "-f", kConfig});
  return words;
}

}  // namespace

bool HaProxy::IsInstalled() { return std::filesystem::exists(kProgram); }

// A socket in the file system: no port that somebody else might take first.
HaProxy::HaProxy(const std::vector<std::string>& servers)
    : socket_(folder_.Path("haproxy")), process_("/usr/bin/env", Command(socket_, servers)) {
  while (!std::filesystem::exists(socket_)) {
    CHECK(process_.running()) << process_.output();
    absl::SleepFor(absl::Milliseconds(10));
  }
}

std::string HaProxy::Target() const { return absl::StrCat("unix:", socket_); }

}  // namespace encoderd::fleet
