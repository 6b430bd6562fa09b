#include "server/trace_context.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace encoderd {
namespace {

// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
constexpr size_t kVersionDigits = 2, kTraceDigits = 32, kSpanDigits = 16, kFlagsDigits = 2;
constexpr size_t kTraceBegin = kVersionDigits + 1;
constexpr size_t kSpanBegin = kTraceBegin + kTraceDigits + 1;
constexpr size_t kFlagsBegin = kSpanBegin + kSpanDigits + 1;
constexpr size_t kLength = kFlagsBegin + kFlagsDigits;

constexpr std::string_view kVersion = "00";
constexpr std::string_view kInvalidVersion = "ff";

bool IsHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool IsHex(std::string_view text) { return std::ranges::all_of(text, IsHexDigit); }

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

// The lowest of the flags' eight bits.
bool IsSampled(std::string_view flags) {
  const char digit = flags.back();
  return (digit <= '9' ? digit - '0' : digit - 'a' + 10) % 2 == 1;
}

}  // namespace

std::optional<Traceparent> Traceparent::Parse(std::string_view text) {
  if (text.size() < kLength) return std::nullopt;
  for (const size_t dash : {kTraceBegin - 1, kSpanBegin - 1, kFlagsBegin - 1}) {
    if (text[dash] != '-') return std::nullopt;
  }
  const std::string_view version = text.substr(0, kVersionDigits);
  if (!IsHex(version) || version == kInvalidVersion) return std::nullopt;
  // Only a version that is not known may have more, and only behind another dash.
  if (text.size() > kLength && (version == kVersion || text[kLength] != '-')) return std::nullopt;
  const std::string_view trace_id = text.substr(kTraceBegin, kTraceDigits);
  const std::string_view span_id = text.substr(kSpanBegin, kSpanDigits);
  const std::string_view flags = text.substr(kFlagsBegin, kFlagsDigits);
  if (!IsId(trace_id) || !IsId(span_id) || !IsHex(flags)) return std::nullopt;
  return Traceparent{.trace_id = std::string(trace_id),
                     .span_id = std::string(span_id),
                     .sampled = IsSampled(flags)};
}

std::string Traceparent::ToString() const {
  return absl::StrCat("00-", trace_id, "-", span_id, sampled ? "-01" : "-00");
}

std::string RandomId() {
  // One number of the device has 32 bits: in a large fleet two would be the same before long.
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return absl::StrFormat("%016x", std::max<uint64_t>(random(), 1));
}

}  // namespace encoderd
