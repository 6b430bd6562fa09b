// Idle cores, crowded cores, quotas, and memory.
#include <algorithm>
#include <memory>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "tests/load/drive.h"
#include "tests/load/measurements.h"
#include "tests/load/quota_group.h"

namespace encoderd::load {
namespace {

// A lone call of 512 tokens: one worker ÷ a worker per core, in turns.
Found LoneBigCall(const BenchServer& one_worker, const BenchServer& all_cores, int turns) {
  std::vector<double> slow, fast;
  for (int turn = 0; turn < turns; ++turn) {
    slow.push_back(1e3 * MedianSeconds(LoneCalls(one_worker, 512, 1)));
    fast.push_back(1e3 * MedianSeconds(LoneCalls(all_cores, 512, 1)));
  }
  return {Median(slow) / Median(fast), Detail(Median(slow), Median(fast), "ms")};
}

std::vector<Found> LoneBigCalls(const Settings& settings) {
  const BenchServer one_worker(BertBase(), {"--workers=1"}), all_cores(BertBase());
  const int turns = settings.quick ? 3 : 7;
  const Found alone = LoneBigCall(one_worker, all_cores, turns);
  const CpuHog hog;
  return {alone, LoneBigCall(one_worker, all_cores, turns)};
}

std::vector<Found> BesideAHog(const Settings& settings) {
  const BenchServer server(MiniLm());
  const double alone = Saturate(server, "fixed:128", settings.seconds).tokens_rate;
  const CpuHog hog;
  const double beside = Saturate(server, "fixed:128", settings.seconds).tokens_rate;
  return {{beside / alone, Detail(beside, alone, "tokens/s")}};
}

// Calls of all lengths in batches of all sizes; the first block alone is run, since shapes count
// here and work does not.
std::vector<Found> Memory(const Settings& settings) {
  const BenchServer server(MiniLm());
  const int64_t few = settings.quick ? 500 : 2'000, many = settings.quick ? 5'000 : 20'000;
  int64_t calls = 0;
  uint64_t seed = 1;
  const auto send_until = [&](int64_t count) {
    while (calls < count) {
      client::LoadOptions options = LoadOf(server, "uniform:1-512", 1);
      options.arrival = client::Arrival::kSaturate;
      // 1 to 32 sequences in a batch, as far as its tokens allow.
      options.outstanding = static_cast<int64_t>(1 + seed * 7 % 32);
      options.warm_up = absl::ZeroDuration();
      options.seed = seed++;
      options.outputs.Clear();
      v1::PoolingSpec& pooled = *options.outputs.add_pooled();
      pooled.set_kind(v1::POOLING_MEAN);
      pooled.set_layer(1);
      calls += Drive(options).answered;
    }
    return static_cast<double>(server.ResidentBytes()) / (1 << 20);
  };
  const double early = send_until(few);
  const double late = send_until(many);
  return {{late / early, Detail(late, early, "MiB")}};
}

std::vector<Found> UnderQuota(const Settings& settings) {
  const auto group = QuotaGroup::Create(1);
  CHECK(group.ok()) << group.status();
  const auto rate = [&](const std::vector<std::string>& flags) {
    const BenchServer server(MiniLm(), flags, group->folder());
    return Saturate(server, "fixed:128", settings.seconds).tokens_rate;
  };
  double best = 0;
  for (int workers = 1; workers <= std::max(2, Cpus()); ++workers) {
    best = std::max(best, rate({absl::StrCat("--workers=", workers)}));
  }
  const double found = rate({});
  return {{found / best, Detail(found, best, "tokens/s")}};
}

std::string WhyNoQuota() {
  const auto group = QuotaGroup::Create(1);
  return group.ok() ? "" : std::string(group.status().message());
}

}  // namespace

std::vector<Measurement> MachineMeasurements() {
  return {
      {.key = "lone_big_call",
       .figures = {{"lone BERT-base call of 512 tokens: idle cores ÷ 1 worker", 1.6, 1.9},
                   {"the same beside a hog on every core", 0.90, 1.0}},
       .round = LoneBigCalls},
      {.key = "hog",
       .figures = {{"throughput beside a 2-thread hog ÷ alone", 0.35, 0.48}},
       .round = BesideAHog},
      {.key = "memory",
       .figures = {{"RSS after 20,000 random shapes ÷ after the first 2,000", 1.05, 1.01,
                    Better::kLower}},
       .round = Memory,
       .rounds = 1},
      {.key = "quota",
       .figures = {{"throughput under a 1-CPU quota ÷ best worker count", 0.90, 1.0}},
       .round = UnderQuota,
       .why_skipped = WhyNoQuota},
  };
}

}  // namespace encoderd::load
