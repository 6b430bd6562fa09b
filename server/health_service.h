// health_service.h — grpc.health.v1: Check, List and Watch.
//
// Role:    told by the server what holds; asked by balancers and orchestrators. Our own, because
//          gRPC's says SERVING for "" before anything is loaded and its open Watches hold a
//          shutdown.
// Source:  https://github.com/grpc/grpc/blob/master/doc/health-checking.md
#pragma once

#include <deque>
#include <string>
#include <unordered_set>

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/mutex.h"

namespace encoderd {

// Thread-safe. Never blocks: a Watch that nobody reads costs its memory and holds nothing up.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  using HealthCheckResponse = grpc::health::v1::HealthCheckResponse;

  // "" and "encoderd.v1.EncoderService". False until told otherwise.
  void SetReady(bool ready);
  // "liveness". True until told otherwise.
  void SetLive(bool live);
  bool live() const {
    MutexLock lock(mutex_);
    return live_;
  }

  // Ends every Watch with UNAVAILABLE, those that come later at once. Call before the gRPC server
  // shuts down.
  void EndWatches();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  HealthCheckResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const grpc::health::v1::HealthListRequest* request,
                                 grpc::health::v1::HealthListResponse* response) override;
  grpc::ServerWriteReactor<HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  struct Steps;

  // What a name stands for. Names are the caller's and of any length: a Watch keeps none.
  enum class Subject { kReadiness, kLiveness, kUnknown };
  static Subject SubjectOf(const std::string& service);
  // SERVICE_UNKNOWN for a name that is not ours.
  HealthCheckResponse::ServingStatus StatusOf(Subject subject) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is to be done, without the lock, to tell every watcher what holds.
  Steps ReportAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool live_ ABSL_GUARDED_BY(mutex_) = true;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace encoderd
