// service_config.h — service_config.json, which says how a gRPC client balances and retries, as it
// was when this program was built.
//
// Source: https://github.com/grpc/proposal/blob/master/A6-client-retries.md, A17 for health
#pragma once

namespace encoderd::client {

// For grpc::ChannelArguments::SetServiceConfigJSON.
const char* ServiceConfigJson();

// service_config_direct.json: the same for a client that reaches the replicas themselves, which
// watches the health of each and calls those that serve. Not through a proxy, where the watch would
// be of one replica and the calls of another.
const char* DirectServiceConfigJson();

}  // namespace encoderd::client
