// Goal: dashboards that read quantiles from the histograms read what callers met with, to a quarter.
// Method: the latencies of a simulated standard load, and loads at the edges, through the metrics;
//         quantiles as Prometheus estimates them beside those of the values themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "server/metrics.h"
#include "tests/server/batching/load_simulation.h"
#include "tests/server/batching/passages.h"
#include "tests/server/metrics_text.h"

namespace encoderd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string LabelsOf(const std::string& phase) {
  return "method=\"Encode\",phase=\"" + phase + "\"";
}

double Quantile(double quantile, std::vector<double> values) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(quantile * static_cast<double>(values.size() - 1))];
}

// The part beyond the last finite bound.
double Beyond(const std::map<double, double>& buckets) {
  const double all = buckets.rbegin()->second;
  return (all - std::next(buckets.rbegin())->second) / all;
}

class MetricsBucketsTest : public ::testing::Test {
 protected:
  MetricsBucketsTest() { metrics_ = *Metrics::Start("", "1", "id"); }

  // Calls of these seconds, the same in every phase.
  void End(const std::vector<double>& seconds) {
    for (const double value : seconds) {
      const absl::Duration time = absl::Seconds(value);
      metrics_->CallStarted();
      metrics_->CallEnded({.method = Method::kEncode,
                           .whole = time,
                           .timing = CallTiming{.queue = time, .compute = time, .batches = 1}});
    }
  }
  std::map<double, double> Seconds(const std::string& phase) const {
    return Buckets("encoderd_call_seconds", LabelsOf(phase));
  }
  std::map<double, double> Buckets(const std::string& name, const std::string& labels) const {
    return ReadBuckets(ReadMetrics(metrics_->Text()), name, labels);
  }

  std::unique_ptr<Metrics> metrics_;
};

// At seven tenths of what the machine can do, as a service that is sized well.
std::vector<double> StandardLoad() {
  const Report report =
      LoadSimulation({.options = PassageOptions(),
                      .true_cost = kMiniLmCost,
                      .streams = {{.calls_per_second = 0.7 * Capacity(PassageTokens),
                                   .tokens = PassageTokens}}})
          .Run();
  return report.streams[0].seconds;
}

TEST_F(MetricsBucketsTest, QuantilesOfAStandardLoadAreReadToAQuarter) {
  const std::vector<double> seconds = StandardLoad();
  ASSERT_GT(seconds.size(), 1000);
  End(seconds);
  for (const char* phase : {"queue", "compute", "whole"}) {
    const auto buckets = Seconds(phase);
    ASSERT_FALSE(buckets.empty()) << phase;
    EXPECT_EQ(Beyond(buckets), 0) << phase;
    for (const double quantile : {0.5, 0.9, 0.95, 0.99, 0.999}) {
      const double measured = Quantile(quantile, seconds);
      EXPECT_NEAR(HistogramQuantile(quantile, buckets), measured, 0.25 * measured)
          << phase << " p" << quantile;
    }
    const auto between = std::distance(buckets.upper_bound(Quantile(0.5, seconds)),
                                       buckets.lower_bound(Quantile(0.99, seconds)));
    EXPECT_GE(between, 4) << phase << ": bounds between p50 and p99";
  }
}

// The hour that --default_deadline and --max_queue_time may be: everybody waits to the end.
TEST_F(MetricsBucketsTest, NobodyIsBeyondTheBoundsAtTheLongestDeadline) {
  End(std::vector<double>(100, 3600));
  for (const char* phase : {"queue", "compute", "whole"}) {
    const auto buckets = Seconds(phase);
    EXPECT_LE(Beyond(buckets), 0.05) << phase;
    EXPECT_NEAR(HistogramQuantile(0.5, buckets), 3600, 0.25 * 3600) << phase;
  }
}

// Of any single length, from the shortest that a call takes to the longest that it may.
TEST_F(MetricsBucketsTest, EveryLengthIsReadToAQuarter) {
  for (double seconds = 0.0005; seconds <= 3600; seconds *= 1.1) {
    metrics_ = *Metrics::Start("", "1", "id");
    End({seconds});
    EXPECT_NEAR(HistogramQuantile(1, Seconds("whole")), seconds, 0.25 * seconds);
    EXPECT_NEAR(HistogramQuantile(0.01, Seconds("whole")), seconds, 0.25 * seconds);
  }
}

TEST_F(MetricsBucketsTest, SizesOfBatchesAreWithinTheBounds) {
  for (int64_t sequences = 1; sequences <= 64; ++sequences) {
    metrics_->OnBatch({.sequences = sequences, .tokens = sequences * 256});
  }
  const auto sequences = Buckets("encoderd_batch_sequences", "");
  const auto tokens = Buckets("encoderd_batch_tokens", "");
  ASSERT_EQ(sequences.count(kInfinity), 1);
  EXPECT_EQ(Beyond(sequences), 0);
  EXPECT_EQ(Beyond(tokens), 0);
  for (const double quantile : {0.1, 0.5, 0.9, 0.99}) {
    EXPECT_NEAR(HistogramQuantile(quantile, sequences), 64 * quantile, 0.25 * 64 * quantile);
    EXPECT_NEAR(HistogramQuantile(quantile, tokens), 16384 * quantile, 0.25 * 16384 * quantile);
  }
  // A batch of one is told from larger ones.
  EXPECT_EQ(sequences.at(1), 1);
}

}  // namespace
}  // namespace encoderd
