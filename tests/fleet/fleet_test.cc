// Goal: a fleet is restarted replica by replica, loses one, and has a slow one, and callers lose
// nothing that could be kept: behind HAProxy, and with round robin in the client.
// Method: three real servers with the bundled model under load, deploy/haproxy/haproxy.cfg and
// service_config.json as they are shipped. Calls are counted; how long they take is
// ../fleet.sh's business.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "tests/fleet/haproxy.h"
#include "tests/fleet/rehearsals.h"
#include "tests/soak/health_watch.h"

namespace encoderd::fleet {
namespace {

using grpc::health::v1::HealthCheckResponse;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Le;

// Evenly spaced calls a second of either client.
constexpr double kRate = 100;

std::vector<std::string> Flags(const std::string& drain_delay) {
  return {"--model_dir=" ENCODERD_SOURCE_DIR "/deploy/models/reverse", "--workers=1",
          "--drain_delay=" + drain_delay};
}

client::LoadOptions Load(const std::string& target = "") {
  return LoadOn(target, "fixed:16", kRate);
}

// Clients that choose among the replicas themselves, by round robin, each with a connection to
// every one. They hear that one is about to go when it goes: there is no delay.
class RoundRobinTest : public testing::Test {
 protected:
  Replicas replicas_{3, Flags(/*drain_delay=*/"0s")};
  const Path path_ = {
      .name = "round robin", .target = replicas_.Target(), .direct = true, .connections = 2};
};

class HaProxyTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HaProxy::IsInstalled()) GTEST_SKIP() << "there is no HAProxy on this machine";
    replicas_ = std::make_unique<Replicas>(HaProxy::kServers, Flags(/*drain_delay=*/"2s"));
    replicas_->Stop(HaProxy::kServers - 1);  // the place of a successor
    proxy_ = std::make_unique<HaProxy>(replicas_->addresses());
    path_ = {.name = "HAProxy", .target = proxy_->Target(), .connections = 1};
  }

  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<HaProxy> proxy_;
  Path path_;
};

void ExpectNothingLost(const Rolled& rolled) {
  EXPECT_THAT(rolled.exit_codes, ElementsAre(0, 0, 0));
  EXPECT_EQ(rolled.seen.strict.failed(), 0) << rolled.seen.strict.Text();
  EXPECT_EQ(rolled.seen.retrying.failed(), 0) << rolled.seen.retrying.Text();
  EXPECT_GT(rolled.seen.strict.result.answered, kRate);
}

void ExpectOnlyCallsInFlightWereHit(const Killed& killed) {
  const Observed& strict = killed.seen.strict;
  EXPECT_EQ(killed.seen.retrying.failed(), 0) << killed.seen.retrying.Text();
  // The client hears of the death in less than this.
  EXPECT_EQ(strict.FailedOfThoseSentAfter(strict.end + absl::Milliseconds(200)), 0)
      << strict.Text();
  EXPECT_THAT(strict.result.codes, Each(Key(testing::AnyOf("OK", "UNAVAILABLE"))));
  EXPECT_LE(killed.surplus, 0) << "calls were tried again that had been answered";
}

TEST_F(RoundRobinTest, ARestartOfEveryReplicaLosesNoCallEvenWithoutRetries) {
  ExpectNothingLost(ReplaceAll(replicas_, path_, Load(), absl::ZeroDuration(), Start::kAsIs));
}

TEST_F(HaProxyTest, AReplacementOfEveryReplicaLosesNoCallEvenWithoutRetries) {
  ExpectNothingLost(ReplaceAll(*replicas_, path_, Load(), absl::ZeroDuration(), Start::kAsIs));
  EXPECT_THAT(proxy_->output(), HasSubstr("Server replicas/replica1 is DOWN"));
}

TEST_F(RoundRobinTest, OfAReplicaThatIsKilledOnlyTheCallsInFlightAreTriedAgain) {
  const Killed killed = KillOne(replicas_, path_, Load());
  ExpectOnlyCallsInFlightWereHit(killed);
  // A third of the calls of the 300 ms for which it was stopped.
  EXPECT_GT(killed.seen.strict.failed(), 0);
  EXPECT_LE(killed.seen.strict.failed(), 0.5 * kRate);
}

TEST_F(HaProxyTest, OfAReplicaThatIsKilledOnlyTheCallsInFlightAreTriedAgain) {
  const Killed killed = KillOne(*replicas_, path_, Load());
  ExpectOnlyCallsInFlightWereHit(killed);
  EXPECT_LE(killed.seen.strict.failed(), 0.5 * kRate);
}

TEST_F(HaProxyTest, ASlowReplicaGetsFewerCallsThanTheOthers) {
  const std::vector<double> calls =
      CallsWhileOneIsSlow(*replicas_, path_, Load(), absl::Seconds(2));
  EXPECT_GT(calls[0], 0);
  EXPECT_LT(calls[0], calls[1]);
  EXPECT_LT(calls[0], calls[2]);
  EXPECT_EQ(calls[3], 0);  // not alive
}

// Of two replicas one is told to end, while a client has only ever known that one, and others know
// both.
TEST(DrainTest, AServerServesOnThenSendsClientsAwayThenFinishesAndEnds) {
  constexpr absl::Duration kDelay = absl::Seconds(2);
  Replicas replicas(2, Flags(absl::FormatDuration(kDelay)));
  Encoderd& ending = replicas[0];
  client::LoadOptions steady = Load(ending.address());
  steady.rate = 50;
  BackgroundLoad old_connection(steady);
  steady.retry = true;
  steady.target = replicas.Target();
  BackgroundLoad retrying(steady);
  soak::HealthWatch watch(ending.Connect());
  old_connection.AwaitUnderWay();
  retrying.AwaitUnderWay();

  const absl::Duration signalled = old_connection.Now();
  ending.process().Signal(SIGTERM);
  HealthCheckResponse::ServingStatus health = HealthCheckResponse::SERVING;
  while (health == HealthCheckResponse::SERVING) health = ending.Health();
  EXPECT_EQ(health, HealthCheckResponse::NOT_SERVING);
  EXPECT_LT(old_connection.Now() - signalled, kDelay);
  EXPECT_EQ(ending.process().Wait(), 0);
  EXPECT_THAT(ending.process().output(), HasSubstr("every accepted call was answered"));
  EXPECT_EQ(watch.AwaitEnd(), "SERVING, NOT_SERVING");
  absl::SleepFor(absl::Seconds(5) - (old_connection.Now() - signalled));

  int64_t late = 0;
  for (const client::CallRecord& call : old_connection.Stop().calls) {
    const absl::Duration sent = call.due + call.lag - signalled;
    if (sent < kDelay) {
      EXPECT_TRUE(call.answered()) << "code " << call.code << ", sent after " << sent;
    } else if (!call.answered()) {
      EXPECT_EQ(call.code, grpc::StatusCode::UNAVAILABLE) << "sent after " << sent;
      ++late;
    }
  }
  EXPECT_GT(late, 0);
  const client::LoadResult& retried = retrying.Stop();
  EXPECT_EQ(retried.answered, retried.offered()) << retried.first_failure.error_message();
}

}  // namespace
}  // namespace encoderd::fleet
