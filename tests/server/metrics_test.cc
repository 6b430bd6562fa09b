// Goal: the series that dashboards and autoscalers read are there from the start, under their
//       names, and add up.
// Method: what a scrape gives, parsed into name{labels} → value; once over HTTP.
#include "server/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/server/metrics_text.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What Prometheus would store.
class Scrape {
 public:
  explicit Scrape(const std::string& text) : values_(ReadMetrics(text)) {}

  // NaN when there is no such series.
  double operator[](const std::string& series) const {
    const auto found = values_.find(series);
    return found == values_.end() ? std::nan("") : found->second;
  }

  // Sum of all series that begin so.
  double Sum(const std::string& prefix) const {
    double sum = 0;
    for (const auto& [series, value] : values_) {
      if (series.starts_with(prefix)) sum += value;
    }
    return sum;
  }
  size_t Count(const std::string& prefix) const {
    size_t count = 0;
    for (const auto& [series, value] : values_) count += series.starts_with(prefix) ? 1u : 0u;
    return count;
  }

  std::vector<double> Bounds(const std::string& prefix) const {
    std::set<double> bounds;
    for (const auto& [series, value] : values_) {
      if (!series.starts_with(prefix)) continue;
      const double bound = std::strtod(series.c_str() + series.find("le=\"") + 4, nullptr);
      if (std::isfinite(bound)) bounds.insert(bound);
    }
    return {bounds.begin(), bounds.end()};
  }

  const std::map<std::string, double>& values() const { return values_; }

 private:
  const std::map<std::string, double> values_;
};

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto metrics = Metrics::Start("", "1.2.3", "abcdef");
    ASSERT_THAT(metrics, IsOk());
    metrics_ = *std::move(metrics);
  }
  Scrape Read() const { return Scrape(metrics_->Text()); }
  void End(const CallRecord& call) {
    metrics_->CallStarted();
    metrics_->CallEnded(call);
  }

  std::unique_ptr<Metrics> metrics_;
};

TEST_F(MetricsTest, HasEverySeriesFromTheStartAtZero) {
  const Scrape scrape = Read();
  EXPECT_EQ(scrape.Count("encoderd_calls_total{"), 4 * 17);
  EXPECT_EQ(scrape.Count("encoderd_refusals_total{"), std::size(kReasons));
  EXPECT_EQ(scrape.Count("encoderd_call_seconds_count{"), 8);
  for (const char* name : {"encoderd_calls_without_deadline_total",
                           "encoderd_sequences_total",
                           "encoderd_tokens_total",
                           "encoderd_answer_bytes_total",
                           "encoderd_access_log_dropped_total",
                           "encoderd_batch_sequences_count",
                           "encoderd_batch_tokens_count",
                           "encoderd_batch_failures_total",
                           "encoderd_batch_retries_total",
                           "encoderd_batches_abandoned_total",
                           "encoderd_batch_actual_to_predicted_ratio_count",
                           "encoderd_max_batch_tokens",
                           "encoderd_cost_pass_seconds",
                           "encoderd_cost_token_seconds",
                           "encoderd_cost_token_pair_seconds",
                           "encoderd_cost_answer_byte_seconds",
                           "encoderd_calls_in_flight",
                           "encoderd_ready",
                           "encoderd_queue_calls",
                           "encoderd_queue_sequences",
                           "encoderd_queue_tokens",
                           "encoderd_queue_predicted_wait_seconds",
                           "encoderd_workers",
                           "encoderd_worker_busy_seconds_total",
                           "encoderd_inflight_bytes",
                           "encoderd_connections",
                           "encoderd_connections_refused_total"}) {
    EXPECT_EQ(scrape[name], 0) << name;
  }
  EXPECT_GE(scrape["encoderd_cpu_throttled_seconds_total"], 0);
  EXPECT_EQ(scrape["encoderd_build_info{build_id=\"abcdef\",version=\"1.2.3\"}"], 1);
}

TEST_F(MetricsTest, NamesEverythingByTheRule) {
  const Scrape scrape = Read();
  for (const auto& [series, value] : scrape.values()) {
    EXPECT_TRUE(series.starts_with("encoderd_") || series.starts_with("process_")) << series;
  }
}

TEST_F(MetricsTest, AddsUpCallsCodesAndLatencies) {
  for (int i = 0; i < 7; ++i) End({.method = Method::kEncode, .code = 0});
  for (int i = 0; i < 2; ++i) {
    End({.method = Method::kEncode, .code = 3, .reason = "TOKEN_OUT_OF_RANGE"});
  }
  End({.method = Method::kEncode, .code = 1, .reason = "CANCELLED"});
  End({.method = Method::kEncode, .code = 4, .reason = "DEADLINE"});
  End({.method = Method::kGetModel, .code = 0});

  const Scrape scrape = Read();
  EXPECT_EQ(scrape["encoderd_calls_total{code=\"OK\",method=\"Encode\"}"], 7);
  EXPECT_EQ(scrape["encoderd_calls_total{code=\"INVALID_ARGUMENT\",method=\"Encode\"}"], 2);
  EXPECT_EQ(scrape["encoderd_calls_total{code=\"CANCELLED\",method=\"Encode\"}"], 1);
  EXPECT_EQ(scrape["encoderd_calls_total{code=\"DEADLINE_EXCEEDED\",method=\"Encode\"}"], 1);
  EXPECT_EQ(scrape.Sum("encoderd_calls_total{"), 12);
  EXPECT_EQ(scrape["encoderd_call_seconds_count{method=\"Encode\",phase=\"whole\"}"], 11);
  EXPECT_EQ(scrape["encoderd_call_seconds_count{method=\"GetModel\",phase=\"whole\"}"], 1);
  EXPECT_EQ(scrape.Sum("encoderd_refusals_total{"), 4);
  EXPECT_EQ(scrape["encoderd_refusals_total{reason=\"TOKEN_OUT_OF_RANGE\"}"], 2);
  EXPECT_EQ(scrape["encoderd_calls_in_flight"], 0);
}

TEST_F(MetricsTest, CountsWhatWasAnsweredAndNotWhatWasRefused) {
  CallRecord call = {.method = Method::kEncode, .sequences = 3, .tokens = 50, .answer_bytes = 999};
  End(call);
  call.code = 8;
  call.reason = "QUEUE_FULL";
  call.without_deadline = true;
  End(call);
  const Scrape scrape = Read();
  EXPECT_EQ(scrape["encoderd_sequences_total"], 3);
  EXPECT_EQ(scrape["encoderd_tokens_total"], 50);
  EXPECT_EQ(scrape["encoderd_answer_bytes_total"], 999);
  EXPECT_EQ(scrape["encoderd_calls_without_deadline_total"], 1);
}

TEST_F(MetricsTest, ObservesPhasesOfCallsThatGotSoFar) {
  const CallTiming waited = {.queue = absl::Seconds(2)};
  const CallTiming ran = {.queue = absl::Seconds(1), .compute = absl::Seconds(3), .batches = 1};
  End({.method = Method::kEncode, .whole = absl::Seconds(9)});
  End({.method = Method::kEncode, .code = 1, .timing = waited});
  End({.method = Method::kEncode, .timing = ran});
  const Scrape scrape = Read();
  EXPECT_EQ(scrape["encoderd_call_seconds_count{method=\"Encode\",phase=\"whole\"}"], 3);
  EXPECT_EQ(scrape["encoderd_call_seconds_sum{method=\"Encode\",phase=\"whole\"}"], 9);
  EXPECT_EQ(scrape["encoderd_call_seconds_count{method=\"Encode\",phase=\"queue\"}"], 2);
  EXPECT_EQ(scrape["encoderd_call_seconds_sum{method=\"Encode\",phase=\"queue\"}"], 3);
  EXPECT_EQ(scrape["encoderd_call_seconds_count{method=\"Encode\",phase=\"compute\"}"], 1);
  EXPECT_EQ(scrape["encoderd_call_seconds_sum{method=\"Encode\",phase=\"compute\"}"], 3);
}

TEST_F(MetricsTest, CountsNamesThatItDoesNotKnowAsOther) {
  End({.code = 13, .reason = "MADE_UP"});
  End({.code = 99, .reason = ""});
  const Scrape scrape = Read();
  EXPECT_EQ(scrape["encoderd_refusals_total{reason=\"OTHER\"}"], 2);
  EXPECT_EQ(scrape["encoderd_calls_total{code=\"INTERNAL\",method=\"other\"}"], 1);
  EXPECT_EQ(scrape["encoderd_calls_total{code=\"UNKNOWN\",method=\"other\"}"], 1);
}

// Every text in capitals of the files that refuse calls is a reason, and there are no others.
TEST(ReasonsTest, AreThoseThatTheSourcesGive) {
  std::set<std::string> used = {"OTHER"};
  for (const char* path :
       {"engine/validation.cc", "engine/validation_outputs.cc", "engine/validation_sequence.cc",
        "server/access.cc", "server/batching/scheduler.cc", "server/encode_call.cc", "server/encode_chunked.cc",
        "server/encode_service.cc", "server/encode_whole.cc", "server/engine_runner.cc",
        "server/request_decoder.cc", "server/unknown_methods.h", "server/wire_scan.cc"}) {
    std::ifstream file(absl::StrCat(ENCODERD_SOURCE_DIR, "/", path));
    ASSERT_TRUE(file) << path;
    for (std::string text; std::getline(file, text, '"');) {
      const bool capitals =
          text.size() > 3 && text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == text.npos;
      if (capitals) used.insert(text);
    }
  }
  EXPECT_EQ(used, std::set<std::string>(std::begin(kReasons), std::end(kReasons)));
}

TEST_F(MetricsTest, CountsBatchesAndTheirFailures) {
  metrics_->OnBatch({.sequences = 4, .tokens = 100, .failed = true});
  metrics_->OnBatch({.sequences = 3, .tokens = 90, .retry = true});
  metrics_->OnBatch({.sequences = 1, .tokens = 10, .failed = true, .retry = true});
  const Scrape scrape = Read();
  EXPECT_EQ(scrape["encoderd_batch_failures_total"], 1);
  EXPECT_EQ(scrape["encoderd_batch_retries_total"], 2);
  EXPECT_EQ(scrape["encoderd_batch_sequences_count"], 3);
  EXPECT_EQ(scrape["encoderd_batch_sequences_sum"], 8);
  EXPECT_EQ(scrape["encoderd_batch_tokens_sum"], 200);
}

TEST_F(MetricsTest, ComparesBatchesThatRanToTheirEndWithWhatWasPredicted) {
  const absl::Duration second = absl::Seconds(1);
  metrics_->OnBatch({.duration = 3 * second, .predicted = 2 * second});
  metrics_->OnBatch({.duration = second, .predicted = 2 * second});
  metrics_->OnBatch({.duration = second, .predicted = 2 * second, .abandoned = true});
  metrics_->OnBatch({.duration = second, .predicted = 2 * second, .failed = true});
  metrics_->OnBatch({.duration = second});
  const Scrape scrape = Read();
  EXPECT_EQ(scrape["encoderd_batch_actual_to_predicted_ratio_count"], 2);
  EXPECT_EQ(scrape["encoderd_batch_actual_to_predicted_ratio_sum"], 2);
  EXPECT_EQ(scrape["encoderd_batches_abandoned_total"], 1);
}

TEST_F(MetricsTest, HasBucketsThatShowATailWithin25Percent) {
  for (const char* phase : {"queue", "compute", "whole"}) {
    const std::vector<double> bounds = Read().Bounds(
        absl::StrCat("encoderd_call_seconds_bucket{method=\"Encode\",phase=\"", phase, "\""));
    ASSERT_GT(bounds.size(), 2);
    EXPECT_LE(bounds.front(), 0.0005);
    EXPECT_GE(bounds.back(), 3600);
    for (size_t i = 1; i < bounds.size(); ++i) EXPECT_LE(bounds[i] / bounds[i - 1], 1.25);
  }
  EXPECT_GE(Read().Bounds("encoderd_batch_sequences_bucket").back(), 1024);
  EXPECT_GE(Read().Bounds("encoderd_batch_tokens_bucket").back(), 16384);
}

TEST_F(MetricsTest, ShowsReadinessModelAndCallsInFlight) {
  metrics_->SetReady(true);
  metrics_->SetModel({.name = "minilm",
                      .family = "bert",
                      .precision = "fp32",
                      .isa = "avx512",
                      .numerics_id = "0a1b"});
  metrics_->CallStarted();
  metrics_->CallStarted();
  EXPECT_EQ(Read()["encoderd_ready"], 1);
  EXPECT_EQ(Read()["encoderd_model_info{family=\"bert\",isa=\"avx512\",name=\"minilm\","
                   "numerics_id=\"0a1b\",precision=\"fp32\"}"],
            1);
  EXPECT_EQ(Read()["encoderd_calls_in_flight"], 2);
  metrics_->SetReady(false);
  metrics_->CallEnded({});
  EXPECT_EQ(Read()["encoderd_ready"], 0);
  EXPECT_EQ(Read()["encoderd_calls_in_flight"], 1);
}

TEST_F(MetricsTest, ShowsWhatWasMeasuredOfEachPrecisionThatRuns) {
  metrics_->SetPrecisionTrials(std::vector<PrecisionTrial>{
      {.tokens_per_second = 7000},
      {.precision = Precision::kBf16, .error = 0.25, .tokens_per_second = 9000},
      {.precision = Precision::kInt8, .refused = "no such instructions"}});
  EXPECT_EQ(Read()["encoderd_precision_error{precision=\"fp32\"}"], 0);
  EXPECT_EQ(Read()["encoderd_precision_error{precision=\"bf16\"}"], 0.25);
  EXPECT_EQ(Read()["encoderd_precision_tokens_per_second{precision=\"bf16\"}"], 9000);
  EXPECT_THAT(metrics_->Text(), ::testing::Not(::testing::HasSubstr("int8")));
}

TEST_F(MetricsTest, ShowsWhatBecameOfTheSequencesOfTheShadow) {
  EXPECT_EQ(Read()["encoderd_shadow_sampled_total"], 0);
  EXPECT_EQ(Read()["encoderd_shadow_error_count"], 0);
  for (int i = 0; i < 4; ++i) metrics_->ShadowSampled();
  metrics_->ShadowCompared(0.02);
  metrics_->ShadowDropped(ShadowDrop::kNoRoom);
  metrics_->ShadowDropped(ShadowDrop::kTooLarge);
  metrics_->ShadowDropped(ShadowDrop::kFailed);
  EXPECT_EQ(Read()["encoderd_shadow_sampled_total"], 4);
  EXPECT_EQ(Read()["encoderd_shadow_error_bucket{le=\"0.01\"}"], 0);
  EXPECT_EQ(Read()["encoderd_shadow_error_bucket{le=\"0.03\"}"], 1);
  for (const char* reason : {"no_room", "too_large", "failed"}) {
    EXPECT_EQ(Read()[absl::StrCat("encoderd_shadow_dropped_total{reason=\"", reason, "\"}")], 1);
  }
}

TEST_F(MetricsTest, ReadsTheProcess) {
  const Scrape scrape = Read();
  EXPECT_GT(scrape["process_resident_memory_bytes"], 1e6);
  EXPECT_GT(scrape["process_cpu_seconds_total"], 0);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(scrape["process_start_time_seconds"], now);
  EXPECT_GT(scrape["process_start_time_seconds"], now - 3600);
  // To the bit, since a change means a restart.
  EXPECT_EQ(Read()["process_start_time_seconds"], scrape["process_start_time_seconds"]);
}

// A batcher that only says what it is told.
class StillBatcher : public Batcher {
 public:
  absl::Status Submit(std::shared_ptr<Call>) override { return absl::OkStatus(); }
  bool Cancel(const Call&, absl::Status) override { return false; }
  bool Drain(absl::Duration) override { return true; }
  void Stop() override {}
  BatcherSnapshot Snapshot() const override { return snapshot; }

  BatcherSnapshot snapshot;
};

TEST_F(MetricsTest, ReadsQueueAndWorkersAtEachScrape) {
  StillBatcher batcher;
  metrics_->SetBatcher(&batcher);
  batcher.snapshot = {.calls_waiting = 10,
                      .sequences_waiting = 20,
                      .tokens_waiting = 300,
                      .predicted_wait = absl::Seconds(1.5),
                      .workers = {{std::nullopt, absl::Seconds(2)}, {{}, absl::Seconds(3)}}};
  EXPECT_EQ(Read()["encoderd_queue_calls"], 10);
  EXPECT_EQ(Read()["encoderd_queue_sequences"], 20);
  EXPECT_EQ(Read()["encoderd_queue_tokens"], 300);
  EXPECT_EQ(Read()["encoderd_queue_predicted_wait_seconds"], 1.5);
  EXPECT_EQ(Read()["encoderd_workers"], 2);
  EXPECT_EQ(Read()["encoderd_worker_busy_seconds_total"], 5);
  batcher.snapshot.calls_waiting = 5;
  EXPECT_EQ(Read()["encoderd_queue_calls"], 5);

  // The gauges fall with the batcher; the counter stays.
  metrics_->SetBatcher(nullptr);
  EXPECT_EQ(Read()["encoderd_queue_calls"], 0);
  EXPECT_EQ(Read()["encoderd_worker_busy_seconds_total"], 5);
}

TEST_F(MetricsTest, ReadsConnectionsAtEachScrape) {
  ConnectionCounts counts = {.open = 2, .refused = 7};
  metrics_->SetConnections([&counts] { return counts; });
  EXPECT_EQ(Read()["encoderd_connections"], 2);
  EXPECT_EQ(Read()["encoderd_connections_refused_total"], 7);
  counts.open = 1;
  EXPECT_EQ(Read()["encoderd_connections"], 1);

  metrics_->SetConnections(nullptr);
  EXPECT_EQ(Read()["encoderd_connections"], 0);
  EXPECT_EQ(Read()["encoderd_connections_refused_total"], 7);
}

// ---- Over HTTP ----------------------------------------------------------------------------------

// The whole answer to GET /metrics on 127.0.0.1.
std::string Get(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return "";
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return answer;
}

TEST(MetricsHttpTest, ServesBothKindsOfValuesOnAFreePort) {
  auto metrics = Metrics::Start("127.0.0.1:0", "1", "id");
  ASSERT_THAT(metrics, IsOk());
  ASSERT_GT((*metrics)->port(), 0);
  const std::string answer = Get((*metrics)->port());
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("\nencoderd_sequences_total 0"));
  EXPECT_THAT(answer, HasSubstr("\nencoderd_queue_calls 0"));
}

TEST(MetricsHttpTest, EndsAtOnce) {
  for (const char* listen : {"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "localhost:0"}) {
    auto metrics = Metrics::Start(listen, "1", "id");
    if (*listen == '[' && !metrics.ok()) continue;  // a machine without IPv6
    ASSERT_THAT(metrics, IsOk()) << listen;
    const absl::Time start = absl::Now();
    metrics->reset();
    EXPECT_LT(absl::Now() - start, absl::Seconds(1)) << listen;  // two without the help
  }
}

TEST(MetricsHttpTest, SaysWhichAddressIsTaken) {
  auto first = Metrics::Start("127.0.0.1:0", "1", "id");
  ASSERT_THAT(first, IsOk());
  const std::string taken = absl::StrCat("127.0.0.1:", (*first)->port());
  EXPECT_THAT(Metrics::Start(taken, "1", "id"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(taken)));
}

}  // namespace
}  // namespace encoderd
