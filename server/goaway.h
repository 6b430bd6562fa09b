// goaway.h — asks clients to take their next calls elsewhere while the calls that they have already
// sent are still served.
//
// Role:   the middle of a drain (server.cc). grpc::Server::Shutdown asks them too, but drops every
//         call that it meets from that moment on, those included that a client sent before it could
//         know: without this, a client that does not try again loses a call for every server that
//         goes.
// Source: https://github.com/grpc/proposal/blob/master/A9-server-side-conn-mgt.md, the graceful
//         GOAWAY of HTTP/2 (RFC 9113, 6.8): one that names the highest stream there is, a ping, and
//         once that is back one that names the last stream that was taken.
#pragma once

#include <grpcpp/server.h>

namespace encoderd {

// Every connection that is open; returns at once. Clients of gRPC begin their next call on a new
// connection, and close the old one when its calls have ended. Where gRPC's library does not have
// what this needs, nothing happens.
void SendGoaways(grpc::Server& server);

}  // namespace encoderd
