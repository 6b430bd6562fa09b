#include "server/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/status_macros.h"
#include "server/access.h"
#include "server/access_log.h"
#include "server/batching/batcher.h"
#include "server/calibration.h"
#include "server/encode_service.h"
#include "server/engine_runner.h"
#include "server/goaway.h"
#include "server/health_port.h"
#include "server/health_service.h"
#include "server/heap.h"
#include "server/keys/key_watch.h"
#include "server/keys/keys.h"
#include "server/keys/tls_credentials.h"
#include "server/listener.h"
#include "server/log.h"
#include "server/mutex.h"
#include "server/poll_heartbeat.h"
#include "server/shadow.h"
#include "server/transport.h"
#include "server/unknown_methods.h"
#include "server/watchdog.h"

namespace encoderd {
namespace {

// How long what is not an answer of Encode may take to end: refusals leave in that time, and
// streams of reflection, which nobody may ever close, are cut off after it.
constexpr absl::Duration kLastBytes = absl::Milliseconds(500);

// How long clients that are asked to go may take to hear of it: two ways across a continent, and
// more than an idle one is worth.
constexpr absl::Duration kGoodbye = absl::Milliseconds(500);

// Reflection is the one service with threads of its own, one for each open stream.
constexpr int kMaxReflectionThreads = 8;

EncodeOptions ServiceOptions(const Options& options) {
  return {.server_version = Version(),
          .limits = {.max_request_sequences = options.max_request_sequences,
                     .max_request_tokens = options.max_request_tokens},
          .max_response_bytes = options.max_response_bytes,
          .default_deadline = options.default_deadline,
          .max_connection_inflight = options.max_connection_inflight,
          .max_inflight_bytes = options.max_inflight_bytes};
}

// What the libraries have to say goes into our log, in our format, errors only: they describe
// peers' mistakes as well as ours.
void RouteLibraryLogs() {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function(
      [](gpr_log_func_args* args) { LOG_EVERY_N_SEC(WARNING, 0.1) << "gRPC: " << args->message; });
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel, const char*, int, const std::string& message) {
        LOG_EVERY_N_SEC(WARNING, 0.1) << "protobuf: " << message;
      });
}

TransportLimits Transport(const EncodeOptions& service, const Options& options) {
  return {
      // Above our own limit, so that a request beyond that is refused by us, with details, and the
      // connection stays of use.
      .max_message_bytes = static_cast<int>(2 * service.limits.max_request_bytes),
      // Above our own share of a connection, for the same reason.
      .max_connection_streams = std::max(1024, 2 * service.max_connection_inflight),
      .max_threads = kMaxReflectionThreads,
      .max_incoming_bytes =
          std::max(service.max_inflight_bytes, CallBytes(service.limits.max_request_bytes, 0)),
      .min_ping_interval = options.min_ping_interval,
      .handshake_timeout = options.handshake_timeout};
}

// A client that is asked to go has its calls finished and connects again, wherever the balancer
// sends it by then.
void SetConnectionAge(grpc::ServerBuilder& builder, const Options& options) {
  if (options.max_connection_age == absl::ZeroDuration()) return;
  const auto milliseconds = [](absl::Duration time) {
    return static_cast<int>(absl::ToInt64Milliseconds(time));
  };
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             milliseconds(options.max_connection_age));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             milliseconds(options.max_connection_age_grace));
}

void LogModel(const std::string& name, const Engine& engine, int64_t batch_tokens,
              const Calibration& calibration) {
  const EngineInfo& info = engine.info();
  const CostCoefficients& cost = calibration.cost;
  LOG(INFO) << "Loaded the model. name=" << LogValue(name)
            << " family=" << LogValue(engine.spec().family) << " parameters=" << info.parameters
            << " weights_bytes=" << info.weights_bytes << " isa=" << info.isa
            << " precision=" << info.precision << " numerics_id=" << info.numerics_id
            << " max_sequence_tokens=" << info.max_sequence_tokens
            << " max_batch_tokens=" << batch_tokens << " calibration=" << calibration.took
            << " calibration_blocks=" << calibration.blocks
            << " pass=" << absl::Seconds(cost.per_pass)
            << " token=" << absl::Seconds(cost.per_token)
            << " token_pair=" << absl::Seconds(cost.per_square)
            << " answer_kib=" << absl::Seconds(1024 * cost.per_answer_byte);
}

// What is to be known of the products, and of the folder's tensors and files.
void LogDetails(const EngineInfo& info) {
  if (!info.kept_in_bf16.empty()) {
    LOG(INFO) << "Products that lose too much in int8 stay in bf16. names="
              << LogValue(absl::StrJoin(info.kept_in_bf16, ","));
  }
  if (info.self_check.has_value()) {
    LOG(INFO) << "The model passed its self-check. sequences=" << info.self_check->sequences
              << " error=" << info.self_check->error << " tolerance=" << info.self_check->tolerance;
  }
  if (!info.tensors_nonfinite.empty()) {
    LOG(WARNING) << "The model has weights that are not finite; --allow_nonfinite_weights has "
                    "them served. tensors="
                 << LogValue(absl::StrJoin(info.tensors_nonfinite, "; "));
  }
  if (!info.tensors_unused.empty()) {
    LOG(WARNING) << "The model folder has tensors that are not used. names="
                 << LogValue(absl::StrJoin(info.tensors_unused, ","));
  }
  if (!info.tensors_harmless.empty()) {
    VLOG(1) << "The model folder has tensors that mean nothing. names="
            << LogValue(absl::StrJoin(info.tensors_harmless, ","));
  }
  if (!info.stray_files.empty()) {
    LOG(WARNING) << "The model folder has weights files that were not opened. names="
                 << LogValue(absl::StrJoin(info.stray_files, ","));
  }
}

class GrpcServer final : public Server {
 public:
  // Without an access log the metrics alone are told of calls.
  GrpcServer(const Options& options, std::unique_ptr<Keys> keys, Metrics& metrics,
             std::unique_ptr<AccessLog> access_log, Clock& clock)
      : options_(options),
        metrics_(metrics),
        clock_(clock),
        keys_(std::move(keys)),
        access_(options.allowed_clients, *keys_),
        access_log_(std::move(access_log)),
        calls_(access_log_ != nullptr ? static_cast<CallObserver&>(*access_log_) : metrics),
        encode_(ServiceOptions(options), access_, clock, calls_),
        unknown_(access_, clock, calls_) {}

  ~GrpcServer() override {
    metrics_.SetBatcher(nullptr);
    metrics_.SetConnections(nullptr);
    metrics_.SetInflightBytes(nullptr);
    heartbeat_.reset();
    key_watch_.reset();
    trimmer_.reset();
    watchdog_.reset();
    if (listener_ != nullptr) listener_->Stop();
    if (grpc_ != nullptr) {
      health_.EndWatches();
      grpc_->Shutdown(std::chrono::system_clock::now());
    }
    if (stopping_.joinable()) stopping_.join();
    if (batcher_ != nullptr) batcher_->Stop();
  }

  absl::Status Bind() {
    RouteLibraryLogs();
    ASSIGN_OR_RETURN(listener_,
                     Listener::Bind("listen", options_.listen, options_.max_connections));
    if (options_.health_listen.has_value()) {
      ASSIGN_OR_RETURN(health_port_, HealthPort::Start(*options_.health_listen, health_));
    }
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        keys_->tls() == nullptr ? grpc::InsecureServerCredentials()
                                : std::make_shared<TlsCredentials>(*keys_));
    SetTransport(builder, Transport(ServiceOptions(options_), options_));
    SetConnectionAge(builder, options_);
    builder.RegisterService(&encode_);
    builder.RegisterService(&health_);
    builder.RegisterCallbackGenericService(&unknown_);
    grpc_ = builder.BuildAndStart();
    if (grpc_ == nullptr) return absl::InternalError("gRPC did not start; its log lines say why");
    key_watch_.emplace(*keys_, clock_, metrics_);
    heartbeat_.emplace(SteadyClock());  // that of gRPC's threads, whatever clock calls have
    listener_->Start([this](int fd) { HandOver(fd, *connections_); });
    metrics_.SetConnections([this] { return listener_->Counts(); });
    metrics_.SetInflightBytes([this] { return encode_.inflight_bytes(); });
    trimmer_.emplace(clock_, [this] { return encode_.inflight_bytes() == 0; });
    return absl::OkStatus();
  }

  absl::Status Load(const ModelLoader& load_model) override {
    ASSIGN_OR_RETURN(model_, load_model());
    const Engine& engine = *model_.engine;
    const EngineInfo& info = engine.info();
    ASSIGN_OR_RETURN(const Calibration calibration,
                     Calibrate(engine, options_.workers, SteadyClock()));
    const int64_t batch_tokens =
        options_.max_batch_tokens > 0
            ? info.max_batch_tokens
            : EfficientBatchTokens(calibration.cost, info.max_batch_tokens);
    RETURN_IF_ERROR(StartWorkers(batch_tokens, calibration.cost));
    const std::string name = ModelName(options_.model_dir);
    LogModel(name, engine, batch_tokens, calibration);
    LogDetails(info);
    metrics_.SetModel({.name = name,
                       .family = engine.spec().family,
                       .precision = info.precision,
                       .isa = info.isa,
                       .numerics_id = info.numerics_id});
    if (model_.choice.has_value()) metrics_.SetPrecisionTrials(model_.choice->trials);
    metrics_.SetBatcher(batcher_.get());
    watchdog_ = std::make_unique<Watchdog>(*batcher_, clock_, health_);
    encode_.Serve({.model_name = name,
                   .engine = &engine,
                   .choice = model_.choice.has_value() ? &*model_.choice : nullptr,
                   .batcher = batcher_.get(),
                   .max_sequence_tokens = info.max_sequence_tokens});
    SetReady(true);
    return absl::OkStatus();
  }

  bool Drain() override {
    // Whoever routes calls to us learns that we go before we refuse any.
    const absl::Time refusing = clock_.Now() + options_.drain_delay;
    SetReady(false);
    SleepUntil(refusing);
    const absl::Time end = clock_.Now() + options_.drain_timeout;
    // Those who have not heard of it are sent away, and served until they know.
    listener_->Stop();
    health_.EndWatches();
    SendGoaways(*grpc_);
    AwaitGone();
    encode_.Drain();
    const bool finished = batcher_ == nullptr || batcher_->Drain(end - clock_.Now());
    // Stop ends what is left and then waits for running batches, for which nobody here waits.
    if (!finished) stopping_ = std::thread([this] { batcher_->Stop(); });
    const bool sent = encode_.AwaitSent(end);
    if (!sent) encode_.CutOff();
    grpc_->Shutdown(absl::ToChronoTime(absl::Now() + kLastBytes));
    if (access_log_ != nullptr) access_log_->Flush();
    return finished && sent;
  }

  int port() const override { return listener_->port(); }
  int health_port() const override { return health_port_ == nullptr ? 0 : health_port_->port(); }

 private:
  absl::Status StartWorkers(int64_t batch_tokens, const CostCoefficients& cost) {
    if (model_.reference != nullptr) {
      const ShadowOptions shadow = {.rate = options_.shadow_every, .workers = options_.workers};
      ASSIGN_OR_RETURN(shadow_,
                       Shadow::Start(shadow, *model_.engine, *model_.reference, metrics_, clock_));
    }
    ASSIGN_OR_RETURN(batcher_, Batcher::Start({.workers = options_.workers,
                                               .max_batch_tokens = batch_tokens,
                                               .cost = cost,
                                               .predict_deadlines = options_.predict_deadlines,
                                               .max_batch_wait = options_.max_batch_wait,
                                               .max_queue_requests = options_.max_queue_requests,
                                               .max_queue_tokens = options_.max_queue_tokens,
                                               .max_queue_time = options_.max_queue_time},
                                              clock_, metrics_, [this] {
                                                return MakeWarmRunner(*model_.engine,
                                                                      options_.model_dir,
                                                                      shadow_.get());
                                              }));
    return absl::OkStatus();
  }

  void SleepUntil(absl::Time end) {
    MutexLock lock(sleep_mutex_);
    while (clock_.Now() < end) clock_.WaitUntil(never_, sleep_mutex_, end);
  }

  // Until every client has closed its connection, at most kGoodbye.
  void AwaitGone() {
    const absl::Time end = absl::Now() + std::min(kGoodbye, options_.drain_timeout);
    while (listener_->Counts().open > 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  }

  void SetReady(bool ready) {
    health_.SetReady(ready);
    metrics_.SetReady(ready);
  }

  const Options options_;
  Metrics& metrics_;
  Clock& clock_;
  const std::unique_ptr<Keys> keys_;
  const Access access_;
  const std::unique_ptr<AccessLog> access_log_;  // null: none
  CallObserver& calls_;
  HealthService health_;
  EncodeService encode_;
  UnknownMethods unknown_;
  std::unique_ptr<HealthPort> health_port_;  // null: none; the last to go, so that probes are told
  std::unique_ptr<Listener> listener_;
  // What gives gRPC the sockets that the listener has accepted.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  ServedModel model_;
  std::unique_ptr<Shadow> shadow_;  // null: nothing is compared; the batcher's workers use it
  std::unique_ptr<Batcher> batcher_;
  std::unique_ptr<Watchdog> watchdog_;
  std::optional<HeapTrimmer> trimmer_;
  std::optional<PollHeartbeat> heartbeat_;
  std::optional<KeyWatch> key_watch_;
  std::thread stopping_;
  Mutex sleep_mutex_;
  CondVar never_;  // notified by the clock alone
  std::unique_ptr<grpc::Server> grpc_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Listen(const Options& options, Metrics& metrics,
                                                       Clock& clock) {
  ASSIGN_OR_RETURN(std::unique_ptr<Keys> keys,
                   Keys::Load({.tls_cert_file = options.tls_cert_file,
                               .tls_key_file = options.tls_key_file,
                               .tls_client_ca_file = options.tls_client_ca_file,
                               .token_file = options.token_file},
                              clock.Now()));
  std::unique_ptr<AccessLog> access_log;
  if (!options.access_log.empty()) {
    ASSIGN_OR_RETURN(access_log,
                     AccessLog::Open(options.access_log, options.access_log_every, metrics));
  }
  auto server =
      std::make_unique<GrpcServer>(options, std::move(keys), metrics, std::move(access_log), clock);
  RETURN_IF_ERROR(server->Bind());
  return server;
}

std::string ModelName(const std::string& model_dir) {
  const std::filesystem::path path = (std::filesystem::absolute(model_dir) / "").lexically_normal();
  return path.parent_path().filename().string();
}

std::string Version() { return ENCODERD_VERSION; }

}  // namespace encoderd
