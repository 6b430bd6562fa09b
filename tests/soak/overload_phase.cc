// More than the server can do, and work that nobody waits for any more.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/soak/phases.h"

namespace encoderd::soak {
namespace {

constexpr const char* kOk = "encoderd_calls_total{code=\"OK\",method=\"Encode\"}";
constexpr const char* kSequencesRun = "encoderd_batch_sequences_sum";
constexpr const char* kWaiting = "encoderd_queue_calls";

// Twice the rate that saturates it, calls of 100 ms; against as many as it can answer in that time.
void CheckGoodput(const Soak& soak, const BenchServer& server) {
  constexpr int kTurns = 3;
  constexpr absl::Duration kDeadline = absl::Milliseconds(100);
  std::vector<double> ratios;
  double ran = 0, answered = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    client::LoadOptions peak = ClosedLoop(server, "fixed:64", soak.Turn(30, 2 * kTurns), 4);
    peak.deadline = kDeadline;
    const client::LoadResult at_peak = Drive(soak, peak);

    client::LoadOptions twice =
        OpenLoop(server, "fixed:64", soak.Turn(30, 2 * kTurns), 2 * at_peak.achieved_rate);
    twice.deadline = kDeadline;
    twice.connections = 16;
    const Scrape before = ScrapeOf(server);
    const client::LoadResult result = Drive(soak, twice);
    const Scrape after = ScrapeOf(server);
    ran += after[kSequencesRun] - before[kSequencesRun];
    answered += after[kOk] - before[kOk];
    ratios.push_back(result.goodput_rate / at_peak.goodput_rate);
    soak.report.Note(absl::StrFormat("peak %.0f/s in time; at %.0f/s: %.0f/s in time; %s",
                                     at_peak.goodput_rate, result.offered_rate, result.goodput_rate,
                                     CodesText(result)));
  }
  soak.report.AtLeast("goodput at twice the load ÷ peak goodput", Median(ratios), 0.8, "");
  soak.report.Note(absl::StrFormat("sequences run %.0f, answered %.0f: %.1f %% for nobody", ran,
                                   answered, 100 * (ran - answered) / ran));
}

// Calls that wait behind a long one go, all at once: none of them is run.
void CheckCancelledWhileWaiting(const Soak& soak, const BenchServer& server, int round) {
  const auto encoder = v1::EncoderService::NewStub(server.Connect());
  const Scrape before = ScrapeOf(server);
  constexpr int kAhead = 20, kCalls = 50;
  Call ahead(soak, *encoder, RequestOf(std::vector<int64_t>(kAhead, 512), v1::PRIORITY_BULK));
  AwaitAtLeast(server, kWaiting, 1);
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<Call>(soak, *encoder, RequestOf({16}, v1::PRIORITY_BULK)));
  }
  const bool queued = AwaitAtLeast(server, kWaiting, kCalls + 1);
  for (const auto& call : calls) call->Cancel();
  calls.clear();
  const bool left = AwaitAtMost(server, kWaiting, 1);
  const bool answered = ahead.ok();
  const double ran = ScrapeOf(server)[kSequencesRun] - before[kSequencesRun];
  soak.report.Check(queued && left && answered && ran <= kAhead,
                    absl::StrFormat("50 cancelled while they wait, round %d: sequences run", round),
                    absl::StrFormat("at most %d", kAhead),
                    absl::StrFormat("%.0f (queued %d, gone %d, the one ahead answered %d)", ran,
                                    queued, left, answered));
}

}  // namespace

void Overload(const Soak& soak) {
  {
    BenchServer server(load::MiniLm());
    CheckGoodput(soak, server);
    CheckEnds(soak, server, absl::Seconds(5));
  }
  BenchServer server(load::MiniLm(), {"--workers=1", "--max_queue_time=1m"});
  for (int round = 1; round <= 3; ++round) CheckCancelledWhileWaiting(soak, server, round);
  CheckEnds(soak, server, absl::Seconds(5));
}

}  // namespace encoderd::soak
