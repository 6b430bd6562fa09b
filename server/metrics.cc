#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/cpu_quota.h"
#include "server/metrics_http.h"
#include "server/mutex.h"
#include "server/process_stats.h"

namespace encoderd {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::MetricFamily;
using prometheus::MetricType;
using prometheus::Registry;

// Those whose calls wait for a worker.
constexpr std::array kQueued = {Method::kEncode, Method::kEncodeChunked};

constexpr std::array kShadowDrops = {"no_room", "too_large", "failed"};  // by ShadowDrop

// Upper bounds from `first` until `last` is covered, each `ratio` times the one before, rounded to
// three digits.
std::vector<double> GeometricBuckets(double first, double ratio, double last) {
  std::vector<double> bounds;
  for (double bound = first; bounds.empty() || bounds.back() < last; bound *= ratio) {
    const double unit = std::pow(10.0, std::floor(std::log10(bound)) - 2);
    bounds.push_back(std::round(bound / unit) * unit);
  }
  return bounds;
}

// Ratio 1.24: a quantile read from the buckets is at most 25 % off, rounding included, from 0.4 ms
// (so that 0.5 ms lies between two bounds) to an hour, the longest deadline and queue time that
// flags give. The same for all, so that replicas with other flags can be added up.
std::vector<double> SecondsBuckets() { return GeometricBuckets(0.0004, 1.24, 3600); }
std::vector<double> SequencesBuckets() { return GeometricBuckets(1, 2, 4096); }
// 0.125 … 8: a batch that took as long as predicted lies around 1.
std::vector<double> RatioBuckets() { return GeometricBuckets(0.125, std::pow(2.0, 0.25), 8); }
// From what rounding to bf16 does to the best of sequences, to far beyond any bound.
std::vector<double> ErrorBuckets() {
  return {1e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1};
}
std::vector<double> TokensBuckets() { return GeometricBuckets(8, std::sqrt(2.0), 65536); }

Counter& AddCounter(Registry& registry, const std::string& name, const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

Histogram& AddHistogram(Registry& registry, const std::string& name, const std::string& help,
                        const std::vector<double>& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

void AddInfo(Registry& registry, const std::string& name, const std::string& help,
             const Labels& labels) {
  prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels).Set(1);
}

// A family of one value, made at a scrape.
MetricFamily OneValue(std::string name, std::string help, MetricType type, double value) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return family;
}

double BusySeconds(const BatcherSnapshot& snapshot) {
  absl::Duration busy;
  for (const WorkerSnapshot& worker : snapshot.workers) busy += worker.busy;
  return absl::ToDoubleSeconds(busy);
}

// The values that are read when Prometheus asks.
class ScrapedValues : public prometheus::Collectable {
 public:
  void SetBatcher(const Batcher* batcher) {
    MutexLock lock(mutex_);
    // A counter never goes back: the work of a batcher that goes is remembered.
    if (batcher_ != nullptr) busy_before_ += BusySeconds(batcher_->Snapshot());
    batcher_ = batcher;
  }

  void SetConnections(std::function<ConnectionCounts()> source) {
    MutexLock lock(mutex_);
    if (connections_ != nullptr) refused_before_ += connections_().refused;
    connections_ = std::move(source);
  }

  void SetInflightBytes(std::function<int64_t()> source) {
    MutexLock lock(mutex_);
    inflight_bytes_ = std::move(source);
  }

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families;
    const auto add = [&families](const char* name, const char* help, MetricType type,
                                 double value) {
      families.push_back(OneValue(name, help, type, value));
    };

    BatcherSnapshot snapshot;
    ConnectionCounts connections;
    double busy = 0;
    int64_t inflight_bytes = 0;
    {
      MutexLock lock(mutex_);
      if (connections_ != nullptr) connections = connections_();
      connections.refused += refused_before_;
      if (inflight_bytes_ != nullptr) inflight_bytes = inflight_bytes_();
      if (batcher_ != nullptr) snapshot = batcher_->Snapshot();
      busy = busy_before_ + BusySeconds(snapshot);
    }
    add("encoderd_queue_calls", "Calls with a sequence that has not started.", MetricType::Gauge,
        static_cast<double>(snapshot.calls_waiting));
    add("encoderd_queue_sequences", "Sequences that have not started.", MetricType::Gauge,
        static_cast<double>(snapshot.sequences_waiting));
    add("encoderd_queue_tokens", "Tokens of the sequences that have not started.",
        MetricType::Gauge, static_cast<double>(snapshot.tokens_waiting));
    add("encoderd_queue_predicted_wait_seconds", "How long a bulk call sent now would wait.",
        MetricType::Gauge, absl::ToDoubleSeconds(snapshot.predicted_wait));
    const CostCoefficients& cost = snapshot.cost.coefficients();
    add("encoderd_max_batch_tokens", "Tokens that a batch of several sequences is filled up to.",
        MetricType::Gauge, static_cast<double>(snapshot.max_batch_tokens));
    add("encoderd_cost_pass_seconds", "Time of a batch for each pass over the model's weights.",
        MetricType::Gauge, cost.per_pass);
    add("encoderd_cost_token_seconds", "Time of a batch for each token.", MetricType::Gauge,
        cost.per_token);
    add("encoderd_cost_token_pair_seconds",
        "Time of a batch for each pair of tokens of a sequence, S x S of them.", MetricType::Gauge,
        cost.per_square);
    add("encoderd_cost_answer_byte_seconds", "Time of a batch for each byte of its answers.",
        MetricType::Gauge, cost.per_answer_byte);
    add("encoderd_cost_correction_ratio",
        "What these times are multiplied by to fit the latest batches.", MetricType::Gauge,
        snapshot.cost.correction());
    add("encoderd_workers", "Worker threads.", MetricType::Gauge,
        static_cast<double>(snapshot.workers.size()));
    add("encoderd_worker_busy_seconds_total",
        "Time that the workers have spent on batches, the running ones included.",
        MetricType::Counter, busy);
    add("encoderd_inflight_bytes",
        "What the calls in flight hold: requests, and answers until they are sent.",
        MetricType::Gauge, static_cast<double>(inflight_bytes));
    add("encoderd_connections", "gRPC connections that are open.", MetricType::Gauge,
        static_cast<double>(connections.open));
    add("encoderd_connections_refused_total",
        "gRPC connections that were closed at once, as many being open as the limit allows.",
        MetricType::Counter, static_cast<double>(connections.refused));

    // Zero where the kernel does not say, so that the series are there on every machine.
    add("encoderd_cpu_throttled_seconds_total", "Time that the CPU quota kept the process waiting.",
        MetricType::Counter, ReadThrottledSeconds().value_or(0));
    const ProcessStats process = ReadProcessStats().value_or(ProcessStats{});
    add("process_resident_memory_bytes", "Resident memory size in bytes.", MetricType::Gauge,
        process.resident_bytes);
    add("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.",
        MetricType::Counter, process.cpu_seconds);
    add("process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
        MetricType::Gauge, process.start_time_seconds);
    return families;
  }

 private:
  mutable Mutex mutex_;
  const Batcher* batcher_ ABSL_GUARDED_BY(mutex_) = nullptr;
  double busy_before_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<int64_t()> inflight_bytes_ ABSL_GUARDED_BY(mutex_);
  std::function<ConnectionCounts()> connections_ ABSL_GUARDED_BY(mutex_);
  int64_t refused_before_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

// Every counted series; made once, so that all are there from the start.
struct Metrics::State {
  State(const std::string& version, const std::string& build_id);

  const std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  const std::shared_ptr<ScrapedValues> scraped = std::make_shared<ScrapedValues>();

  std::array<std::array<Counter*, kCodeNames.size()>, kMethodNames.size()> calls;  // [method][code]
  std::array<Histogram*, kMethodNames.size()> whole_seconds;
  // Null for methods that never queue.
  std::array<Histogram*, kMethodNames.size()> queue_seconds = {};
  std::array<Histogram*, kMethodNames.size()> compute_seconds = {};
  std::map<std::string_view, Counter*> refusals;

  Counter& without_deadline =
      AddCounter(*registry, "encoderd_calls_without_deadline_total",
                 "Calls whose caller set no deadline and got the default one.");
  Counter& sequences = AddCounter(*registry, "encoderd_sequences_total", "Sequences answered.");
  Counter& tokens = AddCounter(*registry, "encoderd_tokens_total", "Tokens answered.");
  Counter& answer_bytes =
      AddCounter(*registry, "encoderd_answer_bytes_total", "Bytes of the tensors of all answers.");
  Histogram& batch_sequences = AddHistogram(
      *registry, "encoderd_batch_sequences",
      "Sequences per batch; its sum counts every sequence that was run.", SequencesBuckets());
  Histogram& batch_tokens =
      AddHistogram(*registry, "encoderd_batch_tokens",
                   "Tokens per batch; its sum counts every token that was run.", TokensBuckets());
  Histogram& batch_ratio = AddHistogram(
      *registry, "encoderd_batch_actual_to_predicted_ratio",
      "Time of each batch that ran to its end, divided by the time predicted when it began.",
      RatioBuckets());
  Counter& batch_failures =
      AddCounter(*registry, "encoderd_batch_failures_total", "Batches that failed as a whole.");
  Counter& batch_retries = AddCounter(*registry, "encoderd_batch_retries_total",
                                      "Calls of failed batches that were run again alone.");
  Counter& batches_abandoned =
      AddCounter(*registry, "encoderd_batches_abandoned_total",
                 "Batches that were not run to their end, because every caller had gone.");
  Counter& access_log_dropped =
      AddCounter(*registry, "encoderd_access_log_dropped_total",
                 "Lines of the access log that found no room or could not be written.");
  Counter& shadow_sampled = AddCounter(*registry, "encoderd_shadow_sampled_total",
                                       "Sequences that were sampled to be compared with fp32.");
  Histogram& shadow_error =
      AddHistogram(*registry, "encoderd_shadow_error",
                   "Largest 1 - cosine of a sampled sequence's tokens to fp32.", ErrorBuckets());
  std::array<Counter*, kShadowDrops.size()> shadow_dropped;  // by ShadowDrop
  prometheus::Family<Counter>& reloads =
      prometheus::BuildCounter()
          .Name("encoderd_tls_reloads_total")
          .Help("Changes of the files of certificates, key and tokens, by what came of them.")
          .Register(*registry);
  Counter& reloads_ok = reloads.Add({{"result", "ok"}});
  Counter& reloads_failed = reloads.Add({{"result", "failed"}});
  Gauge& in_flight = prometheus::BuildGauge()
                         .Name("encoderd_calls_in_flight")
                         .Help("Calls that have arrived and not ended.")
                         .Register(*registry)
                         .Add({});
  Gauge& ready = prometheus::BuildGauge()
                     .Name("encoderd_ready")
                     .Help("1 while calls are accepted, else 0.")
                     .Register(*registry)
                     .Add({});

  std::unique_ptr<MetricsHttp> http;  // last, so that it ends before what it serves
};

Metrics::State::State(const std::string& version, const std::string& build_id) {
  auto& calls_family = prometheus::BuildCounter()
                           .Name("encoderd_calls_total")
                           .Help("Calls that have ended, by method and gRPC code.")
                           .Register(*registry);
  auto& seconds_family =
      prometheus::BuildHistogram()
          .Name("encoderd_call_seconds")
          .Help(
              "Time of calls by phase: queue (arrival to first start), compute (first start to "
              "last end) of those that were queued, whole (arrival to end) of all.")
          .Register(*registry);
  for (size_t method = 0; method < kMethodNames.size(); ++method) {
    for (size_t code = 0; code < kCodeNames.size(); ++code) {
      calls[method][code] =
          &calls_family.Add({{"method", kMethodNames[method]}, {"code", kCodeNames[code]}});
    }
    whole_seconds[method] = &seconds_family.Add(
        {{"method", kMethodNames[method]}, {"phase", "whole"}}, SecondsBuckets());
  }
  for (const Method queued : kQueued) {
    const size_t method = IndexOf(queued);
    queue_seconds[method] = &seconds_family.Add(
        {{"method", kMethodNames[method]}, {"phase", "queue"}}, SecondsBuckets());
    compute_seconds[method] = &seconds_family.Add(
        {{"method", kMethodNames[method]}, {"phase", "compute"}}, SecondsBuckets());
  }

  auto& refusals_family = prometheus::BuildCounter()
                              .Name("encoderd_refusals_total")
                              .Help("Calls that were refused or failed, by reason.")
                              .Register(*registry);
  for (std::string_view reason : kReasons) {
    refusals[reason] = &refusals_family.Add({{"reason", std::string(reason)}});
  }
  auto& dropped_family = prometheus::BuildCounter()
                             .Name("encoderd_shadow_dropped_total")
                             .Help("Sampled sequences that were not compared with fp32, by reason.")
                             .Register(*registry);
  for (size_t reason = 0; reason < kShadowDrops.size(); ++reason) {
    shadow_dropped[reason] = &dropped_family.Add({{"reason", kShadowDrops[reason]}});
  }
  AddInfo(*registry, "encoderd_build_info", "The running binary.",
          {{"version", version}, {"build_id", build_id}});
}

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Start(const std::string& listen,
                                                        const std::string& version,
                                                        const std::string& build_id) {
  auto state = std::make_unique<State>(version, build_id);
  if (!listen.empty()) {
    auto http = MetricsHttp::Start(listen);
    if (!http.ok()) return std::move(http).status();
    state->http = *std::move(http);
    state->http->Serve(state->registry);
    state->http->Serve(state->scraped);
  }
  return std::unique_ptr<Metrics>(new Metrics(std::move(state)));
}

Metrics::Metrics(std::unique_ptr<State> state) : state_(std::move(state)) {}
Metrics::~Metrics() = default;

int Metrics::port() const { return state_->http == nullptr ? 0 : state_->http->port(); }

void Metrics::CallStarted() { state_->in_flight.Increment(); }

void Metrics::CallEnded(const CallRecord& call) {
  const size_t method = IndexOf(call.method);
  state_->calls[method][IndexOfCode(call.code)]->Increment();
  state_->whole_seconds[method]->Observe(absl::ToDoubleSeconds(call.whole));
  if (call.without_deadline) state_->without_deadline.Increment();

  if (call.timing) {
    state_->queue_seconds[method]->Observe(absl::ToDoubleSeconds(call.timing->queue));
    if (call.timing->batches > 0) {
      state_->compute_seconds[method]->Observe(absl::ToDoubleSeconds(call.timing->compute));
    }
  }
  if (call.code == 0) {
    state_->sequences.Increment(static_cast<double>(call.sequences));
    state_->tokens.Increment(static_cast<double>(call.tokens));
    state_->answer_bytes.Increment(static_cast<double>(call.answer_bytes));
  } else {
    const auto found = state_->refusals.find(call.reason);
    (found != state_->refusals.end() ? found->second : state_->refusals.at("OTHER"))->Increment();
  }
  state_->in_flight.Decrement();
}

void Metrics::AccessLogDropped(int64_t lines) {
  state_->access_log_dropped.Increment(static_cast<double>(lines));
}

void Metrics::OnBatch(const BatchObservation& batch) {
  state_->batch_sequences.Observe(static_cast<double>(batch.sequences));
  state_->batch_tokens.Observe(static_cast<double>(batch.tokens));
  if (batch.abandoned) state_->batches_abandoned.Increment();
  if (!batch.abandoned && !batch.failed && batch.predicted > absl::ZeroDuration()) {
    state_->batch_ratio.Observe(absl::FDivDuration(batch.duration, batch.predicted));
  }
  if (batch.retry) {
    state_->batch_retries.Increment();
  } else if (batch.failed) {
    state_->batch_failures.Increment();
  }
}

void Metrics::ShadowSampled() { state_->shadow_sampled.Increment(); }

void Metrics::ShadowCompared(double error) { state_->shadow_error.Observe(error); }

void Metrics::ShadowDropped(ShadowDrop reason) {
  state_->shadow_dropped[static_cast<size_t>(reason)]->Increment();
}

void Metrics::KeysReloaded(bool taken) {
  (taken ? state_->reloads_ok : state_->reloads_failed).Increment();
}

void Metrics::SetCertificateNotAfter(absl::Time not_after) {
  prometheus::BuildGauge()
      .Name("encoderd_tls_certificate_not_after_seconds")
      .Help("When the certificate that the server shows ends, since unix epoch in seconds.")
      .Register(*state_->registry)
      .Add({})
      .Set(static_cast<double>(absl::ToUnixSeconds(not_after)));
}

void Metrics::SetReady(bool ready) { state_->ready.Set(ready ? 1 : 0); }

void Metrics::SetModel(const ModelLabels& model) {
  AddInfo(*state_->registry, "encoderd_model_info", "The model that is served.",
          {{"name", model.name},
           {"family", model.family},
           {"precision", model.precision},
           {"isa", model.isa},
           {"numerics_id", model.numerics_id}});
}

void Metrics::SetPrecisionTrials(std::span<const PrecisionTrial> trials) {
  auto& errors = prometheus::BuildGauge()
                     .Name("encoderd_precision_error")
                     .Help(
                         "Largest 1 - cosine of a token to fp32 on fixed sequences, measured to "
                         "choose the precision.")
                     .Register(*state_->registry);
  auto& rates = prometheus::BuildGauge()
                    .Name("encoderd_precision_tokens_per_second")
                    .Help("Tokens per second of one worker, measured to choose the precision.")
                    .Register(*state_->registry);
  for (const PrecisionTrial& trial : trials) {
    if (!trial.refused.empty()) continue;
    const Labels labels = {{"precision", std::string(PrecisionName(trial.precision))}};
    errors.Add(labels).Set(trial.error);
    rates.Add(labels).Set(trial.tokens_per_second);
  }
}

void Metrics::SetBatcher(const Batcher* batcher) { state_->scraped->SetBatcher(batcher); }

void Metrics::SetConnections(std::function<ConnectionCounts()> source) {
  state_->scraped->SetConnections(std::move(source));
}

void Metrics::SetInflightBytes(std::function<int64_t()> source) {
  state_->scraped->SetInflightBytes(std::move(source));
}

std::string Metrics::Text() const {
  std::vector<MetricFamily> families = state_->registry->Collect();
  for (MetricFamily& family : state_->scraped->Collect()) families.push_back(std::move(family));
  return prometheus::TextSerializer().prometheus::Serializer::Serialize(families);
}

}  // namespace encoderd
