// health_watch.h — what a server says of its health from now on, as a balancer hears it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>
#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/mutex.h"

namespace encoderd::soak {

// A Watch of the health of the whole server, read to its end.
class HealthWatch {
 public:
  // Returns once it has heard the first.
  explicit HealthWatch(const std::shared_ptr<grpc::Channel>& channel);
  ~HealthWatch();

  // What it heard, once the server has ended it: "SERVING, NOT_SERVING".
  std::string AwaitEnd();

 private:
  void Read();

  grpc::ClientContext context_;
  std::unique_ptr<grpc::health::v1::Health::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>> reader_;
  Mutex mutex_;
  CondVar changed_;
  std::string statuses_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace encoderd::soak
