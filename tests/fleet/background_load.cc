#include "tests/fleet/background_load.h"

#include <utility>

#include "absl/log/check.h"
#include "absl/time/clock.h"

namespace encoderd::fleet {

BackgroundLoad::BackgroundLoad(client::LoadOptions options) : options_(std::move(options)) {
  options_.stop = stop_.get_token();
  thread_ = std::thread([this] { Run(); });
}

void BackgroundLoad::Run() {
  auto result = client::RunLoad(options_, [this](const client::LoadProgress& progress) {
    MutexLock lock(mutex_);
    window_start_ = absl::Now() - progress.elapsed + options_.warm_up;
    under_way_ = under_way_ || progress.latency.count > 0;
    if (under_way_) changed_.NotifyAll();
  });
  CHECK(result.ok()) << result.status();
  result_ = *std::move(result);
}

void BackgroundLoad::AwaitUnderWay() {
  MutexLock lock(mutex_);
  while (!under_way_) changed_.Wait(mutex_);
}

absl::Duration BackgroundLoad::Now() {
  MutexLock lock(mutex_);
  return absl::Now() - *window_start_;
}

const client::LoadResult& BackgroundLoad::Stop() {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
  return result_;
}

client::LoadOptions LoadOn(const std::string& target, const std::string& lengths, double rate) {
  auto distribution = client::LengthDistribution::Parse(lengths);
  CHECK(distribution.ok()) << distribution.status();
  client::LoadOptions options = {.target = target,
                                 .arrival = client::Arrival::kEven,
                                 .rate = rate,
                                 .lengths = *std::move(distribution),
                                 .deadline = absl::Seconds(20),
                                 .warm_up = absl::ZeroDuration(),
                                 .duration = absl::Minutes(10)};
  options.outputs.set_last_hidden_state(true);
  return options;
}

double Capacity(client::LoadOptions options, absl::Duration duration) {
  options.arrival = client::Arrival::kSaturate;
  options.rate = 0;
  options.outstanding = 24;
  options.warm_up = absl::Seconds(1);
  options.duration = duration;
  const auto result = client::RunLoad(options, /*progress=*/nullptr);
  CHECK(result.ok()) << result.status();
  CHECK_EQ(result->answered, result->offered()) << result->first_failure.error_message();
  return result->achieved_rate;
}

}  // namespace encoderd::fleet
