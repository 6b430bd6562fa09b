// replicas.h — servers that are replicas of one another, each a real encoderd on a port that it
// keeps from one life to the next.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/encoderd_process.h"

namespace encoderd::fleet {

// What a replica has in the way of CPU while it starts. In a cluster it has cores of its own; here
// it would take them from those that serve.
enum class Start { kAsIs, kOnSpareTime };

class Replicas {
 public:
  // Starts `count` of them with these flags and returns once all serve; the program ends where one
  // does not.
  Replicas(int count, std::vector<std::string> flags);

  int count() const { return static_cast<int>(replicas_.size()); }
  Encoderd& operator[](int i) { return *replicas_[static_cast<size_t>(i)]; }

  bool alive(int i) { return (*this)[i].process().running(); }
  // Of all, alive or not.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // A gRPC target that has all of them.
  std::string Target() const;

  // SIGTERM. Returns the exit code, once it has ended.
  int Stop(int i);
  void Kill(int i);  // SIGKILL
  // One that has ended, again. Returns once it serves.
  void Restart(int i, Start start = Start::kAsIs);

  // Of one that serves: calls for encodings that it has answered, refused or failed in this life.
  double Calls(int i) const;
  double Connections(int i) const;

 private:
  void Launch(size_t i, int port, Start start);

  const std::vector<std::string> flags_;
  std::vector<std::unique_ptr<Encoderd>> replicas_;
  std::vector<std::string> addresses_;
};

}  // namespace encoderd::fleet
