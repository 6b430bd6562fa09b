#include "server/access_log.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace encoderd {
namespace {

constexpr int kInternal = 13;  // of grpc::StatusCode

// Written as it grows: every call pays for it, and a tree of values first took 4.6 µs instead of 2.
class JsonObject {
 public:
  JsonObject() { text_.reserve(512); }  // more than most lines

  void Add(std::string_view name, std::string_view value) {
    Begin(name);
    if (IsPlain(value)) {
      ((text_ += '"') += value) += '"';
    } else {
      using Json = nlohmann::json;
      text_ += Json(value).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
    }
  }
  void Add(std::string_view name, int64_t value) {
    Begin(name);
    absl::StrAppend(&text_, value);
  }
  std::string End() && {
    text_ += '}';
    return std::move(text_);
  }

 private:
  void Begin(std::string_view name) {
    text_ += text_.empty() ? "{\"" : ",\"";
    (text_ += name) += "\":";
  }
  static bool IsPlain(std::string_view text) {
    return std::ranges::all_of(
        text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  }

  std::string text_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path, int64_t every,
                                                           Metrics& metrics) {
  auto writer =
      LineWriter::Open(path, [&metrics](int64_t lines) { metrics.AccessLogDropped(lines); });
  if (!writer.ok()) {
    return absl::Status(writer.status().code(),
                        absl::StrCat("--access_log: ", writer.status().message()));
  }
  return std::unique_ptr<AccessLog>(new AccessLog(*std::move(writer), every, metrics));
}

void AccessLog::CallEnded(const CallRecord& call) {
  metrics_.CallEnded(call);
  if (!IsSampled(call)) return;
  try {
    writer_->Add(AccessLine(call, absl::Now() - call.whole));
  } catch (const std::bad_alloc&) {
    metrics_.AccessLogDropped(1);
  }
}

bool AccessLog::IsSampled(const CallRecord& call) {
  const int64_t before = calls_.fetch_add(1, std::memory_order_relaxed);
  return (every_ > 0 && before % every_ == 0) || call.code == kInternal;
}

std::string AccessLine(const CallRecord& call, absl::Time arrival) {
  const CallIdentity& identity = call.identity;
  JsonObject line;
  line.Add("time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", arrival, absl::UTCTimeZone()));
  line.Add("method", kMethodNames[IndexOf(call.method)]);
  line.Add("code", kCodeNames[IndexOfCode(call.code)]);
  if (!call.reason.empty()) line.Add("reason", call.reason);
  // Bounded here as well: a line is.
  const auto told = [](std::string_view name) { return name.substr(0, kMaxToldNameBytes); };
  line.Add("peer", told(identity.peer));
  if (!identity.client.empty()) line.Add("client", told(identity.client));
  line.Add("request_id", identity.request_id);
  if (identity.parent.has_value()) {
    line.Add("trace_id", identity.parent->trace_id);
    line.Add("parent_span_id", identity.parent->span_id);
    line.Add("span_id", identity.span_id);
  }
  line.Add("sequences", call.sequences);
  line.Add("tokens", call.tokens);
  line.Add("request_bytes", call.request_bytes);
  line.Add("answer_bytes", call.answer_bytes);
  if (call.timing.has_value()) {
    line.Add("queue_us", absl::ToInt64Microseconds(call.timing->queue));
    line.Add("compute_us", absl::ToInt64Microseconds(call.timing->compute));
    line.Add("batches", call.timing->batches);
    line.Add("batch_tokens", call.timing->batch_tokens);
  }
  line.Add("whole_us", absl::ToInt64Microseconds(call.whole));
  return std::move(line).End() + "\n";
}

}  // namespace encoderd
