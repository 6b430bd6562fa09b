// options.h — the flags of encoderd, read and checked.
//
// Role:    options.cc is the one place that defines the server's flags; everything else takes plain
//          values from Options. Used by main.cc after flag_parser.h has parsed the command line.
//
//   ParsedFlags parsed = ParseFlags(argc, argv);      // flag_parser.h
//   std::vector<std::string> faults = parsed.faults;
//   Options options = ReadOptions(faults);            // adds its own; any fault: exit code 64
//   options.workers = …;                              // what 0 stands for, once it is known
//   LOG(INFO) << Describe(options);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/precision.h"
#include "server/log.h"

namespace encoderd {

struct ListenAddress {
  // "127.0.0.1:50051", "[::1]:50051", "localhost:0". Errors: kInvalidArgument.
  static absl::StatusOr<ListenAddress> Parse(std::string_view text);

  std::string host;  // without brackets
  int port = 0;      // 0: any free one

  std::string ToString() const;  // with brackets where the host has colons
  bool IsLoopback() const;       // 127.0.0.0/8, ::1, localhost
};

// Sequences of a batch, and the tokens of each.
struct BatchShape {
  // "8x128"; nothing for another text, or for more than 1048576 tokens in all.
  static std::optional<BatchShape> Parse(std::string_view text);

  int64_t sequences = 0;
  int64_t tokens = 0;
};

// One member per flag, of the same name; help texts in options.cc say what each means. Values are
// as given: 0 where the flag's 0 stands for "find it out".
struct Options {
  std::string model_dir;
  ListenAddress listen;
  ListenAddress metrics_listen;
  std::optional<ListenAddress> health_listen;
  bool plaintext = false;
  std::string tls_cert_file;  // "" = no TLS, as tls_key_file then is
  std::string tls_key_file;
  std::string tls_client_ca_file;            // "" = clients need no certificate
  std::vector<std::string> allowed_clients;  // empty = whoever can connect
  std::string token_file;                    // "" = calls need no token
  absl::Duration handshake_timeout;
  int workers = 0;
  int64_t max_sequence_tokens = 0;
  int64_t max_request_sequences = 0;
  int64_t max_request_tokens = 0;
  int64_t max_response_bytes = 0;
  int64_t max_inflight_bytes = 0;
  int64_t max_queue_requests = 0;
  int64_t max_queue_tokens = 0;
  absl::Duration max_queue_time;
  int64_t max_batch_tokens = 0;
  absl::Duration max_batch_wait;
  absl::Duration default_deadline;
  bool predict_deadlines = true;
  absl::Duration drain_delay;
  absl::Duration drain_timeout;
  int max_connections = 0;
  int max_connection_inflight = 0;
  absl::Duration max_connection_age;
  absl::Duration max_connection_age_grace;
  absl::Duration min_ping_interval;
  std::optional<Precision> precision = Precision::kFp32;  // none: auto
  double precision_error_max = 0;
  std::string precision_file;  // "" = none
  int64_t shadow_every = 0;    // one sequence in so many; 0 = none
  std::string isa_max;         // a name of engine/ops/runtime.h, or "auto"
  LogFormat log_format = LogFormat::kText;
  std::string termination_log;   // "" = none
  std::string access_log;        // "" = none
  int64_t access_log_every = 1;  // one call in so many; 0 = failures alone
  bool strict = false;
  bool allow_nonfinite_weights = false;
  bool check = false;
  std::optional<BatchShape> profile;
};

// What --help prints: usage, every flag by group with meaning, unit, range and default, and the
// exit codes.
std::string HelpText();

// Whether --version was given; then nothing else matters.
bool VersionAsked();

// The values of the flags. Every fault of theirs, alone and together, is appended to `faults` as
// one line that names the flag, what it expects and what it got.
Options ReadOptions(std::vector<std::string>& faults);

// The flags as one line of name=value. What 0 stands for is logged once the model is loaded.
std::string Describe(const Options& options);

}  // namespace encoderd
