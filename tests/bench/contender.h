// contender.h — a process that runs one engine at one precision on one model, told what to do over
// its standard input and output.
//
// Protocol: JSON objects, one a line; the contender speaks first.
//   ← {"version": "…", "ways": ["together", "apart"]}      or {"error": "why it cannot"}, and ends
//   → {"do": "learn", "work": NAME, "sequences": [[id, …], …]}                         ← {}
//   → {"do": "encode", "sequences": [[id, …], …]}
//     ← {"hidden": BASE64}: last hidden states, fp32 [tokens of all of them, hidden]
//   → {"do": "time", "work": NAME, "batching": B, "way": W, "seconds": S}
//     ← {"rate": real tokens per second}; whole passes through the work, at least S seconds; the
//     first pass in a setting is not timed
//   → {"do": "kernels"}                                    ← {"kernels": "…"}
// An answer may be {"error": "…"} instead. Way "together": all threads work on one batch; "apart":
// each thread has a batch of its own; "one": a single thread. Batchings: groups:N, N sequences as
// they come, padded to the longest; sorted:N, sorted by length, at most N padded tokens; packed:N, as
// they come, end to end, at most N tokens; padded:N, packed sequences that are each filled up to N
// tokens; maps:N, as packed:N with the attention maps of all layers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/bench/work.h"

namespace encoderd::bench {

struct Setting {
  std::string way;
  std::string batching;

  friend bool operator==(const Setting&, const Setting&) = default;
};

class Contender {
 public:
  // Starts the command, whose stderr goes to the file `log`, and hears what it is. Errors:
  // kUnavailable with what it says it cannot do, or how it ended.
  static absl::StatusOr<std::unique_ptr<Contender>> Start(std::vector<std::string> command,
                                                          const std::string& log);
  ~Contender();  // ends it

  const std::string& version() const { return version_; }
  const std::vector<std::string>& ways() const { return ways_; }

  // Errors of all these: kUnavailable; the contender may answer later requests where it said why.
  absl::Status Learn(const Work& work);
  absl::StatusOr<std::vector<float>> Encode(const std::vector<std::vector<int32_t>>& sequences);
  // Real tokens per second. Returns when the process no longer takes CPU time.
  absl::StatusOr<double> Time(const std::string& work, const Setting& setting, double seconds);
  absl::StatusOr<std::string> Kernels();

 private:
  Contender(pid_t pid, int input, int output) : pid_(pid), input_(input), output_(output) {}

  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& request);
  absl::StatusOr<nlohmann::json> Hear();
  void AwaitIdle() const;

  const pid_t pid_;
  const int input_;   // we write
  const int output_;  // we read
  std::string heard_;
  std::string version_;
  std::vector<std::string> ways_;
};

}  // namespace encoderd::bench
