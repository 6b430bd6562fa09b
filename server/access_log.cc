#include "server/access_log.h"

#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace encoderd {
namespace {

constexpr int kInternal = 13;  // of grpc::StatusCode

// Names in certificates may be of any length; a line must not be.
constexpr size_t kMaxNameBytes = 200;

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
  using Json = nlohmann::ordered_json;
  const CallIdentity& identity = call.identity;
  Json line = {{"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", arrival, absl::UTCTimeZone())},
               {"method", kMethodNames[IndexOf(call.method)]},
               {"code", kCodeNames[IndexOfCode(call.code)]}};
  if (!call.reason.empty()) line["reason"] = call.reason;
  line["peer"] = identity.peer.substr(0, kMaxNameBytes);
  if (!identity.client.empty()) line["client"] = identity.client.substr(0, kMaxNameBytes);
  line["request_id"] = identity.request_id;
  if (identity.parent.has_value()) {
    line["trace_id"] = identity.parent->trace_id;
    line["parent_span_id"] = identity.parent->span_id;
    line["span_id"] = identity.span_id;
  }
  line["sequences"] = call.sequences;
  line["tokens"] = call.tokens;
  line["request_bytes"] = call.request_bytes;
  line["answer_bytes"] = call.answer_bytes;
  if (call.timing.has_value()) {
    line["queue_us"] = absl::ToInt64Microseconds(call.timing->queue);
    line["compute_us"] = absl::ToInt64Microseconds(call.timing->compute);
    line["batches"] = call.timing->batches;
    line["batch_tokens"] = call.timing->batch_tokens;
  }
  line["whole_us"] = absl::ToInt64Microseconds(call.whole);
  return line.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace encoderd
