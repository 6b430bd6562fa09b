// call_record.h — one call that has ended, and those who are told of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "server/batching/call.h"
#include "server/call_identity.h"

namespace encoderd {

// kOther: a method that the server does not have.
enum class Method { kEncode, kEncodeChunked, kGetModel, kOther };
inline constexpr std::array kMethodNames = {"Encode", "EncodeChunked", "GetModel", "other"};

inline constexpr std::array kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// Places in the two lists. A code that gRPC does not have is UNKNOWN, as for gRPC itself.
constexpr size_t IndexOf(Method method) { return static_cast<size_t>(method); }
constexpr size_t IndexOfCode(int code) {
  constexpr size_t kUnknown = 2;
  return code >= 0 && static_cast<size_t>(code) < kCodeNames.size() ? static_cast<size_t>(code)
                                                                    : kUnknown;
}

// Of what the caller sent and got, the sizes alone.
struct CallRecord {
  Method method = Method::kOther;
  CallIdentity identity;
  int code = 0;                      // of grpc::StatusCode, 0 … 16
  std::string_view reason;           // of kReasons, while CallEnded runs; empty if the code is OK
  absl::Duration whole;              // arrival to end
  std::optional<CallTiming> timing;  // of calls that the batcher accepted
  int64_t sequences = 0;             // sent, as far as the request was read
  int64_t tokens = 0;                // of them, once they were found to be in order
  int64_t request_bytes = 0;
  int64_t answer_bytes = 0;
  bool without_deadline = false;  // the caller set none
};

// Thread-safe, and never waits.
class CallObserver {
 public:
  virtual ~CallObserver() = default;

  // One of each for every call.
  virtual void CallStarted() = 0;
  virtual void CallEnded(const CallRecord& call) = 0;
};

}  // namespace encoderd
