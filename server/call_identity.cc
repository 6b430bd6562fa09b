#include "server/call_identity.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/access.h"
#include "server/log.h"

namespace encoderd {
namespace {

constexpr const char* kTraceparent = "traceparent";

std::string ClientOf(const grpc::CallbackServerContext& context) {
  const std::vector<std::string> names = ClientNames(*context.auth_context());
  return names.empty() ? "" : names.front().substr(0, kMaxToldNameBytes);
}

std::string RequestIdOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  if (const auto found = metadata.find("x-request-id"); found != metadata.end()) {
    const std::string_view id(found->second.data(), found->second.size());
    if (IsRequestId(id)) return std::string(id);
  }
  return RandomId();
}

// Of several headers none can be trusted to be the caller's.
std::optional<Traceparent> TraceparentOf(const grpc::CallbackServerContext& context) {
  const auto [first, last] = context.client_metadata().equal_range(kTraceparent);
  if (first == last || std::next(first) != last) return std::nullopt;
  return Traceparent::Parse({first->second.data(), first->second.size()});
}

}  // namespace

std::string CallIdentity::ToLog() const {
  std::string text = absl::StrCat("request_id=", LogValue(request_id), " peer=", LogValue(peer));
  if (!client.empty()) absl::StrAppend(&text, " client=", LogValue(client));
  if (parent.has_value()) {
    absl::StrAppend(&text, " trace_id=", parent->trace_id, " span_id=", span_id);
  }
  return text;
}

CallIdentity IdentifyCall(grpc::CallbackServerContext& context) {
  CallIdentity identity = {.peer = context.peer(),
                           .client = ClientOf(context),
                           .request_id = RequestIdOf(context),
                           .parent = TraceparentOf(context)};
  if (!identity.parent.has_value()) return identity;
  identity.span_id = RandomId();
  Traceparent own = *identity.parent;
  own.span_id = identity.span_id;
  context.AddTrailingMetadata(kTraceparent, own.ToString());
  return identity;
}

bool IsRequestId(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestIdBytes &&
         std::ranges::all_of(text, [](unsigned char c) { return absl::ascii_isprint(c); });
}

}  // namespace encoderd
