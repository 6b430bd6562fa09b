// drained_service.h — the service of a server that drains, without that server, which sends clients
// away before they could meet a refusal.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/access.h"
#include "server/encode_service.h"
#include "server/keys/keys.h"
#include "tests/integration/connect.h"

namespace encoderd {

class DrainedService {
 public:
  explicit DrainedService(CallObserver& calls)
      : service_(EncodeOptions(), access_, SteadyClock(), calls) {
    service_.Drain();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    CHECK(server_ != nullptr);
  }

  std::shared_ptr<grpc::Channel> Connect() const {
    return ConnectAlone(absl::StrCat("127.0.0.1:", port_));
  }

 private:
  const std::unique_ptr<Keys> no_keys_ = *Keys::Load({}, absl::Now());
  const Access access_{{}, *no_keys_};
  EncodeService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace encoderd
