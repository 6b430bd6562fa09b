// connect.h — clients that share nothing with one another.
#pragma once

#include <grpcpp/create_channel.h>

#include <memory>
#include <string>

namespace encoderd {

// A channel with a connection of its own; equal channels would share one otherwise.
inline std::shared_ptr<grpc::Channel> ConnectAlone(
    const std::string& address, grpc::ChannelArguments arguments = {},
    const std::shared_ptr<grpc::ChannelCredentials>& credentials =
        grpc::InsecureChannelCredentials()) {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace encoderd
