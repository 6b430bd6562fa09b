#include "server/health_service.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace encoderd {
namespace {

constexpr const char* kReadyNames[] = {"", "encoderd.v1.EncoderService"};
constexpr const char* kLivenessName = "liveness";

// Each open Watch is memory that somebody else decides about. Whoever can connect may watch: one
// connection must not take what others need.
constexpr size_t kMaxWatches = 4096;
constexpr int64_t kMaxConnectionWatches = 64;

grpc::Status TooMany(const char* what) { return {grpc::StatusCode::RESOURCE_EXHAUSTED, what}; }

grpc::Status ShuttingDown() {
  return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
}

}  // namespace

// One open Watch. Lives until gRPC says that it is done with it.
//
// What to do next is decided under the service's lock and done without it, because gRPC may call
// back while a write or an end is being started. At most one of both is under way: whoever decides
// on one does it, and the object cannot go before that, since gRPC is not done with it.
class HealthService::Watcher : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  enum class Step { kNone, kWrite, kEnd };

  Watcher(HealthService& health, Subject subject, std::string peer)
      : health_(health), subject_(subject), peer_(std::move(peer)) {}

  Subject subject() const { return subject_; }
  const std::string& peer() const { return peer_; }

  // Notes the status if it is a change.
  Step Report(HealthCheckResponse::ServingStatus status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_.mutex_) {
    if (status == last_reported_) return Step::kNone;
    last_reported_ = status;
    to_write_.push_back(status);
    return Next();
  }

  // After what is still to be written.
  Step End(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_.mutex_) {
    if (ending_) return Step::kNone;
    ending_ = true;
    end_status_ = std::move(status);
    return Next();
  }

  void Do(Step step) {
    if (step == Step::kWrite) StartWrite(&message_);
    if (step == Step::kEnd) Finish(end_status_);
  }

  void OnWriteDone(bool ok) override {
    Step step;
    {
      MutexLock lock(health_.mutex_);
      busy_ = false;
      step = ok ? Next() : Abandon();
    }
    Do(step);
  }

  void OnCancel() override {
    Step step;
    {
      MutexLock lock(health_.mutex_);
      step = Abandon();
    }
    Do(step);
  }

  void OnDone() override {
    {
      MutexLock lock(health_.mutex_);
      health_.watchers_.erase(this);
    }
    delete this;
  }

 private:
  // Nobody reads any more.
  Step Abandon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_.mutex_) {
    to_write_.clear();
    return ending_ ? Next() : End(grpc::Status::CANCELLED);
  }

  Step Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_.mutex_) {
    if (busy_ || (to_write_.empty() && !ending_)) return Step::kNone;
    busy_ = true;
    if (to_write_.empty()) return Step::kEnd;
    message_.set_status(to_write_.front());
    to_write_.pop_front();
    return Step::kWrite;
  }

  HealthService& health_;
  const Subject subject_;
  const std::string peer_;  // the connection
  // UNKNOWN is never reported, so the first status is always a change.
  HealthCheckResponse::ServingStatus last_reported_ = HealthCheckResponse::UNKNOWN;
  std::deque<HealthCheckResponse::ServingStatus> to_write_;  // grows by a few in a process's life
  HealthCheckResponse message_;                              // of the write under way
  bool busy_ = false;  // a write is under way, or the end, after which nothing comes
  bool ending_ = false;
  grpc::Status end_status_;
};

struct HealthService::Steps {
  // Those with something to do: the others may be gone before it is done.
  void Add(Watcher* watcher, Watcher::Step step) {
    if (step != Watcher::Step::kNone) steps.emplace_back(watcher, step);
  }
  void Do() {
    for (const auto& [watcher, step] : steps) watcher->Do(step);
  }

  std::vector<std::pair<Watcher*, Watcher::Step>> steps;
};

void HealthService::SetReady(bool ready) {
  Steps steps;
  {
    MutexLock lock(mutex_);
    ready_ = ready;
    steps = ReportAll();
  }
  steps.Do();
}

void HealthService::SetLive(bool live) {
  Steps steps;
  {
    MutexLock lock(mutex_);
    live_ = live;
    steps = ReportAll();
  }
  steps.Do();
}

HealthService::Steps HealthService::ReportAll() {
  Steps steps;
  for (Watcher* watcher : watchers_) {
    steps.Add(watcher, watcher->Report(StatusOf(watcher->subject())));
  }
  return steps;
}

void HealthService::EndWatches() {
  Steps steps;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    for (Watcher* watcher : watchers_) {
      steps.Add(watcher, watcher->End(ShuttingDown()));
    }
  }
  steps.Do();
}

HealthService::Subject HealthService::SubjectOf(const std::string& service) {
  if (service == kLivenessName) return Subject::kLiveness;
  for (const char* name : kReadyNames) {
    if (service == name) return Subject::kReadiness;
  }
  return Subject::kUnknown;
}

HealthService::HealthCheckResponse::ServingStatus HealthService::StatusOf(Subject subject) const {
  if (subject == Subject::kUnknown) return HealthCheckResponse::SERVICE_UNKNOWN;
  const bool serving = subject == Subject::kReadiness ? ready_ : live_;
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const grpc::health::v1::HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::Status status;
  {
    MutexLock lock(mutex_);
    response->set_status(StatusOf(SubjectOf(request->service())));
  }
  if (response->status() == HealthCheckResponse::SERVICE_UNKNOWN) {
    status = {grpc::StatusCode::NOT_FOUND,
              "no such service; expected \"\", \"encoderd.v1.EncoderService\" or \"liveness\""};
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

grpc::ServerUnaryReactor* HealthService::List(grpc::CallbackServerContext* context,
                                              const grpc::health::v1::HealthListRequest*,
                                              grpc::health::v1::HealthListResponse* response) {
  {
    MutexLock lock(mutex_);
    for (const char* name : kReadyNames) {
      (*response->mutable_statuses())[name].set_status(StatusOf(Subject::kReadiness));
    }
    (*response->mutable_statuses())[kLivenessName].set_status(StatusOf(Subject::kLiveness));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthService::HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) {
  auto* watcher = new Watcher(*this, SubjectOf(request->service()), context->peer());
  Watcher::Step step;
  {
    MutexLock lock(mutex_);
    const auto is_of_peer = [&](const Watcher* one) { return one->peer() == watcher->peer(); };
    if (ended_) {
      step = watcher->End(ShuttingDown());
    } else if (watchers_.size() >= kMaxWatches) {
      step = watcher->End(TooMany("too many open Watches"));
    } else if (std::ranges::count_if(watchers_, is_of_peer) >= kMaxConnectionWatches) {
      step = watcher->End(TooMany("the connection has 64 open Watches, as many as it may have"));
    } else {
      watchers_.insert(watcher);
      step = watcher->Report(StatusOf(watcher->subject()));
    }
  }
  watcher->Do(step);
  return watcher;
}

}  // namespace encoderd
