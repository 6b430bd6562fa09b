// log.h — the process's log: one line per event on stderr, text or JSON.
//
// Role:    everything is written with LOG(INFO), LOG(WARNING), LOG(ERROR), LOG(FATAL) of Abseil;
// the
//          message is a sentence, then name=value pairs. This file decides how a line looks.
//
//   text: 2026-01-31T12:00:00.123Z INFO main.cc:42 Serving. listen=127.0.0.1:50051
//   JSON: {"time":"2026-01-31T12:00:00.123Z","severity":"INFO","source":"main.cc:42","message":"…"}
#pragma once

#include <string>
#include <string_view>

#include "absl/base/log_severity.h"
#include "absl/time/time.h"

namespace encoderd {

enum class LogFormat { kText, kJson };

struct LogLine {
  absl::Time time;
  absl::LogSeverity severity = absl::LogSeverity::kInfo;
  std::string_view source;   // "main.cc:42"
  std::string_view message;  // any bytes
};

// The line with its newline at the end and no other: control characters of the message are escaped
// (\n, \t, \x1b), and in JSON every byte that is not UTF-8 becomes U+FFFD.
std::string FormatLogLine(LogFormat format, const LogLine& line);

// A value for the name=value tail: as it is, or quoted and escaped where it is empty or has spaces,
// quotes, '=' or control characters.
std::string LogValue(std::string_view value);

struct LogOptions {
  LogFormat format = LogFormat::kText;
  std::string termination_log;  // file that gets the fatal line too; "" = none
};

// Sends every log line of the process through FormatLogLine to stderr, and on SIGSEGV, SIGILL,
// SIGFPE, SIGABRT, SIGBUS and SIGTRAP writes the stack and the build id. Call once, from main.
void StartLog(const LogOptions& options);

// Why the process gives up: one ERROR line, also written to the termination log. For exits with a
// code; LOG(FATAL), for broken invariants, goes the same way.
void LogExit(std::string_view message);

// The identity of this very binary: its linker's build id (hex), "unknown" without one.
std::string BuildId();

}  // namespace encoderd
