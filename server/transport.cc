#include "server/transport.h"

#include <grpcpp/resource_quota.h>

namespace encoderd {

void SetTransport(grpc::ServerBuilder& builder, const TransportLimits& limits) {
  builder.SetMaxReceiveMessageSize(limits.max_message_bytes);
  builder.SetMaxSendMessageSize(-1);
  // gRPC unpacks a message whole before it looks at the size: one of a megabyte would take a
  // gigabyte. Who compresses is told so with UNIMPLEMENTED, before anything is unpacked.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_connection_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(limits.handshake_timeout)));
  // Pings of clients, with and without calls: the third that comes too soon ends the connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(limits.min_ping_interval)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  // We ping every minute: peers that vanished without a word are noticed and their calls dropped.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  // Services with threads of their own have one that polls, and one for each open call. A call
  // beyond that is refused with RESOURCE_EXHAUSTED.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  grpc::ResourceQuota quota("encoderd");
  quota.SetMaxThreads(limits.max_threads);
  quota.Resize(static_cast<size_t>(limits.max_incoming_bytes));
  builder.SetResourceQuota(quota);
}

void HandOver(int fd, grpc::experimental::ExternalConnectionAcceptor& connections) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = fd;
  connections.HandleNewConnection(&connection);
}

}  // namespace encoderd
