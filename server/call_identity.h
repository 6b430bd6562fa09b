// call_identity.h — who called, and what the call is known by in logs, answers and traces.
//
// Role: read by every method when a call arrives.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/trace_context.h"

namespace grpc {
class CallbackServerContext;
}

namespace encoderd {

// What logs and answers tell of a name at most: certificates have names of any length.
inline constexpr size_t kMaxToldNameBytes = 200;

struct CallIdentity {
  std::string peer;    // the connection, as gRPC writes it: "ipv4:127.0.0.1:40312"
  std::string client;  // the name in the certificate that TLS has verified, cut; "" without one
  std::string request_id;
  std::optional<Traceparent> parent;  // the caller's span; nothing without a valid traceparent
  std::string span_id;                // ours below it, "" without one

  // The tail of a log line: "request_id=… peer=…", and the others where they are there.
  std::string ToLog() const;
};

// Of a call that has arrived. The request id is that of the metadata `x-request-id` when it is
// acceptable, else made up. The answer to a call with a valid `traceparent` gets one with our span:
// in its trailing metadata, which a refusal has as well, however early it comes.
CallIdentity IdentifyCall(grpc::CallbackServerContext& context);

// 1 to 128 printable ASCII characters.
inline constexpr size_t kMaxRequestIdBytes = 128;
bool IsRequestId(std::string_view text);

}  // namespace encoderd
