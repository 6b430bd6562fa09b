// haproxy.h — a real HAProxy with deploy/haproxy/haproxy.cfg in front of its servers.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/io/temp_folder.h"
#include "tests/integration/process.h"

namespace encoderd::fleet {

class HaProxy {
 public:
  // The servers that the file has places for.
  static constexpr int kServers = 4;

  // Whether this machine has one.
  static bool IsInstalled();

  // Returns once it takes connections. REQUIRES: kServers addresses; it is installed.
  explicit HaProxy(const std::vector<std::string>& servers);

  // A gRPC target.
  std::string Target() const;
  // What it has said so far of the servers that went and came.
  std::string output() { return process_.output(); }

 private:
  const TempFolder folder_;
  const std::string socket_;
  Process process_;
};

}  // namespace encoderd::fleet
