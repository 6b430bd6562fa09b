// service_config.h — service_config.json, which says how a gRPC client balances and retries, as it
// was when this program was built.
//
// Source: https://github.com/grpc/proposal/blob/master/A6-client-retries.md
#pragma once

namespace encoderd::client {

// For grpc::ChannelArguments::SetServiceConfigJSON.
const char* ServiceConfigJson();

}  // namespace encoderd::client
