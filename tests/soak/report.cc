#include "tests/soak/report.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace encoderd::soak {
namespace {

constexpr absl::Duration kLateness = absl::Seconds(1);

std::string Figure(double value, const std::string& unit) {
  return absl::StrFormat("%.6g%s%s", value, unit.empty() ? "" : " ", unit);
}

// Filled up to so many characters, of which UTF-8 has several bytes.
std::string Padded(const std::string& text, size_t characters) {
  const auto count =
      static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  return text + std::string(characters - std::min(characters, count), ' ');
}

}  // namespace

void Report::Line(const std::string& text) {
  std::fprintf(stderr, "\r\033[K");
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Report::BeginPhase(const std::string& name) {
  MutexLock lock(mutex_);
  phase_ = name;
  Line(absl::StrFormat("%4.0f s  %s", absl::ToDoubleSeconds(absl::Now() - start_), name));
}

void Report::Check(bool passed, const std::string& what, const std::string& expected,
                   const std::string& got) {
  MutexLock lock(mutex_);
  ++checks_;
  failures_ += passed ? 0 : 1;
  Line(absl::StrFormat("  %s  %s expected %s got %s", passed ? "PASS" : "FAIL", Padded(what, 72),
                       Padded(expected + ",", 20), got));
}

void Report::AtMost(const std::string& what, double got, double limit, const std::string& unit) {
  Check(got <= limit, what, "at most " + Figure(limit, unit), Figure(got, unit));
}

void Report::AtLeast(const std::string& what, double got, double limit, const std::string& unit) {
  Check(got >= limit, what, "at least " + Figure(limit, unit), Figure(got, unit));
}

void Report::Equal(const std::string& what, double got, double expected) {
  Check(got == expected, what, Figure(expected, ""), Figure(got, ""));
}

void Report::Skip(const std::string& what, const std::string& why) {
  MutexLock lock(mutex_);
  ++skipped_;
  Line(absl::StrCat("  SKIPPED  ", what, ": ", why));
}

void Report::Note(const std::string& text) {
  MutexLock lock(mutex_);
  Line("        " + text);
}

void Report::Progress(const std::string& text) {
  MutexLock lock(mutex_);
  std::fprintf(stderr, "\r%4.0f s  %s: %s\033[K", absl::ToDoubleSeconds(absl::Now() - start_),
               phase_.c_str(), text.c_str());
}

void Report::CallEnded(absl::Duration took, absl::Duration deadline) {
  MutexLock lock(mutex_);
  ++calls_;
  if (took > deadline + kLateness) ++hung_;
}

int Report::Finish() {
  int64_t hung;
  {
    MutexLock lock(mutex_);
    hung = hung_;
  }
  BeginPhase("all calls together");
  Equal("calls that ended more than a second after their deadline", static_cast<double>(hung), 0);
  MutexLock lock(mutex_);
  Line(absl::StrFormat("%.0f s; %d calls, %d checks, %d FAILED, %d SKIPPED",
                       absl::ToDoubleSeconds(absl::Now() - start_), calls_, checks_, failures_,
                       skipped_));
  return failures_;
}

}  // namespace encoderd::soak
