// Goal: every accepted call is answered exactly once with the right status, whatever happens to
//       its batch, and the batcher's bounds and counts hold.
// Method: real worker threads around a fake engine that is held and released, and a fake clock.
#include "server/batching/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/status/status_matchers.h"
#include "tests/server/batching/fake_clock.h"
#include "tests/server/batching/fakes.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BatcherTest : public ::testing::Test {
 protected:
  void Start(BatcherOptions options = {}) {
    auto batcher = Batcher::Start(options, clock_, observer_, engine_.Factory());
    ASSERT_THAT(batcher, IsOk());
    batcher_ = *std::move(batcher);
  }

  // Every test ends with an empty queue, however it went.
  void TearDown() override {
    engine_.Release();
    if (batcher_ == nullptr) return;
    batcher_->Stop();
    const BatcherSnapshot snapshot = batcher_->Snapshot();
    EXPECT_EQ(snapshot.calls_waiting, 0);
    EXPECT_EQ(snapshot.sequences_waiting, 0);
    EXPECT_EQ(snapshot.tokens_waiting, 0);
    EXPECT_EQ(snapshot.calls_unfinished, 0);
  }

  std::shared_ptr<FakeCall> MakeCall(std::string name, std::vector<int64_t> tokens,
                                     Priority priority = Priority::kInteractive,
                                     absl::Time deadline = absl::InfiniteFuture()) {
    return std::make_shared<FakeCall>(CallInfo{.sequences = OfTokens(tokens),
                                               .priority = priority,
                                               .arrival = clock_.Now(),
                                               .deadline = deadline},
                                      std::move(name));
  }

  std::shared_ptr<FakeCall> Submit(std::string name, std::vector<int64_t> tokens,
                                   Priority priority = Priority::kInteractive,
                                   absl::Time deadline = absl::InfiniteFuture()) {
    auto call = MakeCall(std::move(name), std::move(tokens), priority, deadline);
    EXPECT_THAT(batcher_->Submit(call), IsOk());
    return call;
  }

  // Keeps the only worker busy, so that what is submitted next waits.
  std::shared_ptr<FakeCall> OccupyWorker() {
    engine_.Hold();
    auto call = Submit("busy", {1});
    engine_.AwaitBegun(1);
    return call;
  }

  FakeClock clock_;
  FakeObserver observer_;
  FakeEngine engine_;
  std::unique_ptr<Batcher> batcher_;
};

// ---- Submit -------------------------------------------------------------------------------------

TEST_F(BatcherTest, RunsACallAndAnswersIt) {
  Start();
  const auto call = Submit("a", {3, 4});
  EXPECT_THAT(call->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("a0 a1"));
  EXPECT_EQ(call->timing().batches, 1);
  EXPECT_EQ(call->timing().batch_tokens, 7);
}

TEST_F(BatcherTest, RefusesCallsWithNothingToRun) {
  Start();
  EXPECT_THAT(batcher_->Submit(MakeCall("a", {})), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(batcher_->Submit(MakeCall("a", {5, 0})),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(BatcherTest, RefusesTheCallAfterTheLastThatFitsTheQueue) {
  Start({.max_queue_requests = 2});
  OccupyWorker();
  Submit("a", {1});
  const auto b = Submit("b", {1});
  const auto refused = MakeCall("c", {1});
  EXPECT_THAT(batcher_->Submit(refused),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("2 calls wait, max_queue_requests is 2")));
  EXPECT_EQ(batcher_->Snapshot().calls_waiting, 2);

  // A refused call is untouched, and welcome once there is room.
  EXPECT_EQ(refused->finishes(), 0);
  EXPECT_TRUE(batcher_->Cancel(*b, absl::CancelledError()));
  EXPECT_THAT(batcher_->Submit(refused), IsOk());
}

TEST_F(BatcherTest, RefusesTheCallThatWouldBeOneTokenOver) {
  Start({.max_queue_tokens = 100});
  OccupyWorker();
  Submit("a", {60});
  EXPECT_THAT(batcher_->Submit(MakeCall("b", {20, 21})),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("41 tokens, 60 wait, max_queue_tokens is 100")));
  Submit("c", {20, 20});
  EXPECT_EQ(batcher_->Snapshot().tokens_waiting, 100);
}

TEST_F(BatcherTest, KeepsItsTokenBoundEvenForALoneCall) {
  Start({.max_queue_tokens = 100});
  EXPECT_THAT(batcher_->Submit(MakeCall("a", {101})),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Submit("b", {100})->Await(), IsOk());
}

TEST_F(BatcherTest, RefusesADeadlineThatHasPassed) {
  Start();
  EXPECT_THAT(
      batcher_->Submit(MakeCall("a", {1}, Priority::kInteractive, clock_.Now() - absl::Seconds(2))),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("2s")));
  EXPECT_THAT(engine_.batches(), IsEmpty());
}

// ---- Batches ------------------------------------------------------------------------------------

TEST_F(BatcherTest, RunsWhatWaitsInBatchesUpToTheTarget) {
  Start({.max_batch_tokens = 100});
  OccupyWorker();
  const auto a = Submit("a", {40, 40, 40});
  const auto b = Submit("b", {20});
  engine_.Release();
  EXPECT_THAT(a->Await(), IsOk());
  EXPECT_THAT(b->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0", "a0 a1 b0", "a2"));
  EXPECT_EQ(a->timing().batches, 2);
  EXPECT_EQ(a->timing().batch_tokens, 100);
  EXPECT_EQ(b->timing().batches, 1);
}

TEST_F(BatcherTest, SplitsACallOfThreeOverBatchesOfTwo) {
  Start({.max_batch_tokens = 2});
  const auto call = Submit("a", {1, 1, 1});
  EXPECT_THAT(call->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("a0 a1", "a2"));
}

TEST_F(BatcherTest, SplitsACallLargerThanAnyBatch) {
  Start({.max_batch_tokens = 8});
  const auto call = Submit("a", std::vector<int64_t>(5000, 1));
  EXPECT_THAT(call->Await(), IsOk());
  EXPECT_EQ(call->timing().batches, 625);
  EXPECT_EQ(call->timing().batch_tokens, 8);
}

TEST_F(BatcherTest, RunsASequenceLongerThanTheTargetAndTheShortOnesBesideIt) {
  Start({.max_batch_tokens = 100});
  OccupyWorker();
  const auto longest = Submit("long", {101});
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(Submit("s", {5}));
  engine_.Release();
  EXPECT_THAT(longest->Await(), IsOk());
  for (const auto& call : calls) EXPECT_THAT(call->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0", "long0", "s0 s0 s0 s0 s0 s0 s0 s0 s0 s0"));
}

TEST_F(BatcherTest, LetsOtherCallersInBetweenTheBatchesOfALargeCall) {
  Start({.max_batch_tokens = 8});
  OccupyWorker();
  const auto large = Submit("large", std::vector<int64_t>(64, 8), Priority::kBulk);
  const auto small = Submit("small", {8});
  engine_.Release();
  EXPECT_THAT(large->Await(), IsOk());
  EXPECT_THAT(small->Await(), IsOk());
  EXPECT_THAT(engine_.batches().at(1), "small0");
  EXPECT_EQ(large->timing().batches, 64);
}

TEST_F(BatcherTest, HoldsThirtyOneShortSequencesUpForOneBatchOfALongOne) {
  Start({.max_batch_tokens = 256});
  OccupyWorker();
  const auto longest = Submit("long", {512});
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 31; ++i) calls.push_back(Submit("s", {8}));
  engine_.Release();
  EXPECT_THAT(longest->Await(), IsOk());
  for (const auto& call : calls) {
    EXPECT_THAT(call->Await(), IsOk());
    EXPECT_EQ(call->timing().batch_tokens, 31 * 8);  // all of them at once, and nothing padded
  }
  EXPECT_EQ(engine_.batches().size(), 3);
}

TEST_F(BatcherTest, UsesEveryIdleWorkerForALoneCall) {
  Start({.workers = 2});
  engine_.Hold();
  const auto call = Submit("a", {128, 128});
  engine_.AwaitBegun(2);  // both at once, or this would wait for ever
  engine_.Release();
  EXPECT_THAT(call->Await(), IsOk());
  EXPECT_EQ(call->timing().batches, 2);
  EXPECT_EQ(call->timing().batch_tokens, 128);
}

TEST_F(BatcherTest, ServesInteractiveFirstAndBulkEveryFourthTime) {
  Start({.max_batch_tokens = 10});
  OccupyWorker();
  const auto bulk = Submit("b", std::vector<int64_t>(3, 10), Priority::kBulk);
  const auto interactive = Submit("i", std::vector<int64_t>(6, 10));
  engine_.Release();
  EXPECT_THAT(bulk->Await(), IsOk());
  EXPECT_THAT(interactive->Await(), IsOk());
  EXPECT_THAT(engine_.batches(),
              ElementsAre("busy0", "i0", "i1", "i2", "b0", "i3", "i4", "i5", "b1", "b2"));
}

TEST_F(BatcherTest, MeasuresQueueAndComputeTime) {
  Start({.max_batch_tokens = 10});
  OccupyWorker();
  const auto call = Submit("a", {10, 10});
  clock_.Advance(absl::Seconds(3));
  engine_.set_result([this](std::span<Slot>) {
    clock_.Advance(absl::Seconds(2));
    return absl::OkStatus();
  });
  engine_.Release();
  EXPECT_THAT(call->Await(), IsOk());
  EXPECT_EQ(call->timing().queue, absl::Seconds(5));    // 3 and the end of the batch before
  EXPECT_EQ(call->timing().compute, absl::Seconds(4));  // two batches
}

TEST_F(BatcherTest, HoldsBackABatchThatIsNotFullForMaxBatchWait) {
  Start({.max_batch_tokens = 100, .max_batch_wait = absl::Milliseconds(10)});
  const auto a = Submit("a", {10});
  clock_.Advance(absl::Milliseconds(9));
  const auto b = Submit("b", {10});
  EXPECT_THAT(engine_.batches(), IsEmpty());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(a->Await(), IsOk());
  EXPECT_THAT(b->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("a0 b0"));
  EXPECT_EQ(a->timing().queue, absl::Milliseconds(10));
}

TEST_F(BatcherTest, DoesNotHoldBackAFullBatch) {
  Start({.max_batch_tokens = 20, .max_batch_wait = absl::Hours(1)});
  const auto a = Submit("a", {10});
  const auto b = Submit("b", {10});
  EXPECT_THAT(a->Await(), IsOk());
  EXPECT_THAT(b->Await(), IsOk());
}

// ---- Cancel and deadlines -----------------------------------------------------------------------

TEST_F(BatcherTest, CountsTenWaitingThenFiveAfterCancelsThenNone) {
  Start();
  OccupyWorker();
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(Submit("c" + std::to_string(i), {7}));
  EXPECT_EQ(batcher_->Snapshot().calls_waiting, 10);
  EXPECT_EQ(batcher_->Snapshot().sequences_waiting, 10);
  EXPECT_EQ(batcher_->Snapshot().tokens_waiting, 70);

  for (int i = 0; i < 5; ++i) EXPECT_TRUE(batcher_->Cancel(*calls[i], absl::CancelledError()));
  EXPECT_EQ(batcher_->Snapshot().calls_waiting, 5);
  EXPECT_EQ(batcher_->Snapshot().tokens_waiting, 35);
  EXPECT_EQ(batcher_->Snapshot().calls_unfinished, 6);

  engine_.Release();
  for (int i = 5; i < 10; ++i) EXPECT_THAT(calls[i]->Await(), IsOk());
  EXPECT_EQ(batcher_->Snapshot().calls_waiting, 0);
  EXPECT_EQ(batcher_->Snapshot().tokens_waiting, 0);

  // The cancelled ones never entered a batch.
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0", "c50 c60 c70 c80 c90"));
}

TEST_F(BatcherTest, AnswersACancelledCallAtOnceWithTheStatusGiven) {
  Start();
  OccupyWorker();
  const auto call = Submit("a", {1});
  clock_.Advance(absl::Milliseconds(200));
  EXPECT_TRUE(batcher_->Cancel(*call, absl::DeadlineExceededError("too late")));
  EXPECT_THAT(call->Await(), StatusIs(absl::StatusCode::kDeadlineExceeded, "too late"));
  EXPECT_EQ(call->timing().queue, absl::Milliseconds(200));
  EXPECT_EQ(call->timing().batches, 0);
  EXPECT_FALSE(batcher_->Cancel(*call, absl::CancelledError()));
  EXPECT_EQ(call->finishes(), 1);
}

TEST_F(BatcherTest, AnswersACallCancelledWhileItRunsOnce) {
  Start();
  const auto call = OccupyWorker();
  EXPECT_TRUE(batcher_->Cancel(*call, absl::CancelledError()));
  EXPECT_THAT(call->Await(), StatusIs(absl::StatusCode::kCancelled));
  engine_.Release();
  EXPECT_THAT(Submit("next", {1})->Await(), IsOk());  // the worker is past it
  EXPECT_EQ(call->finishes(), 1);
}

TEST_F(BatcherTest, RunsNoMoreOfACallCancelledHalfWay) {
  Start({.max_batch_tokens = 10});
  engine_.Hold();
  const auto call = Submit("a", {10, 10, 10});
  engine_.AwaitBegun(1);
  EXPECT_TRUE(batcher_->Cancel(*call, absl::CancelledError()));
  engine_.Release();
  EXPECT_THAT(Submit("next", {1})->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("a0", "next0"));
}

TEST_F(BatcherTest, AbandonsABatchWhenTheLastCallerHasGoneAndDoesNotRunItAgain) {
  Start();
  engine_.AskWhetherAbandoned();
  const auto gone = OccupyWorker();
  EXPECT_TRUE(batcher_->Cancel(*gone, absl::CancelledError()));
  engine_.Release();
  EXPECT_THAT(Submit("next", {1})->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0", "next0"));
  EXPECT_TRUE(observer_.batches().at(0).abandoned);
  EXPECT_FALSE(observer_.batches().at(0).failed);
  EXPECT_EQ(gone->finishes(), 1);
}

TEST_F(BatcherTest, AbandonsABatchWhoseDeadlinesHavePassedAndSaysSo) {
  Start();
  engine_.AskWhetherAbandoned();
  engine_.Hold();
  const auto call =
      Submit("a", {1}, Priority::kInteractive, clock_.Now() + absl::Milliseconds(200));
  engine_.AwaitBegun(1);
  clock_.Advance(absl::Milliseconds(200));
  engine_.Release();
  EXPECT_THAT(call->Await(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("ran")));
  EXPECT_TRUE(observer_.batches().at(0).abandoned);
}

TEST_F(BatcherTest, RunsABatchToItsEndWhileOneOfItsCallersWaits) {
  Start();
  engine_.AskWhetherAbandoned();
  OccupyWorker();
  const auto gone = Submit("gone", {1});
  const auto patient = Submit("patient", {1});
  engine_.set_result([this, gone](std::span<Slot>) {
    batcher_->Cancel(*gone, absl::CancelledError());
    return absl::OkStatus();
  });
  engine_.Release();
  EXPECT_THAT(patient->Await(), IsOk());
  EXPECT_FALSE(observer_.batches().at(1).abandoned);
}

TEST_F(BatcherTest, AbandonsTheRetryOfACallThatNobodyWaitsForAnyMore) {
  Start();
  engine_.AskWhetherAbandoned();
  OccupyWorker();
  const auto a = Submit("a", {1}, Priority::kInteractive, clock_.Now() + absl::Seconds(1));
  const auto b = Submit("b", {1});
  engine_.set_result([this](std::span<Slot> slots) {
    if (slots.size() == 2) return absl::UnknownError("once");
    clock_.Advance(absl::Seconds(1));
    return absl::OkStatus();
  });
  engine_.Release();
  EXPECT_THAT(a->Await(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(b->Await(), IsOk());
}

TEST_F(BatcherTest, KnowsNoCallThatWasNotSubmitted) {
  Start();
  EXPECT_FALSE(batcher_->Cancel(*MakeCall("a", {1}), absl::CancelledError()));
}

TEST_F(BatcherTest, DoesNotRunACallWhoseDeadlinePassedInTheQueue) {
  Start();
  OccupyWorker();
  const auto call =
      Submit("a", {1}, Priority::kInteractive, clock_.Now() + absl::Milliseconds(200));
  const auto patient = Submit("b", {1});
  clock_.Advance(absl::Milliseconds(200));
  engine_.Release();
  EXPECT_THAT(call->Await(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(patient->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0", "b0"));
}

TEST_F(BatcherTest, AnswersExpiredCallsWhenNothingElseWaits) {
  Start();
  OccupyWorker();
  const auto call =
      Submit("a", {1}, Priority::kInteractive, clock_.Now() + absl::Milliseconds(200));
  clock_.Advance(absl::Milliseconds(200));
  engine_.Release();
  EXPECT_THAT(call->Await(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0"));
}

TEST_F(BatcherTest, LetsFinishCallBackIntoTheBatcher) {
  Start();
  const auto next = MakeCall("next", {1});
  const auto call = MakeCall("a", {1});
  call->on_finish = [&] {
    EXPECT_EQ(batcher_->Snapshot().calls_waiting, 0);
    EXPECT_THAT(batcher_->Submit(next), IsOk());
  };
  ASSERT_THAT(batcher_->Submit(call), IsOk());
  EXPECT_THAT(next->Await(), IsOk());
}

// ---- Failures -----------------------------------------------------------------------------------

// Fails any batch that has a sequence of the call named so.
FakeEngine::Result FailWith(std::string name) {
  return [name](std::span<Slot> slots) {
    for (const Slot& slot : slots) {
      if (static_cast<const FakeCall&>(*slot.call).name() == name) {
        return absl::UnknownError("out of memory");
      }
    }
    return absl::OkStatus();
  };
}

TEST_F(BatcherTest, RunsEachCallOfAFailedBatchAloneAndFailsOnlyTheBadOne) {
  Start();
  OccupyWorker();
  const auto a = Submit("a", {1, 1});
  const auto bad = Submit("bad", {1});
  const auto b = Submit("b", {1});
  const auto c = Submit("c", {1});
  engine_.set_result(FailWith("bad"));
  engine_.Release();
  EXPECT_THAT(bad->Await(), StatusIs(absl::StatusCode::kInternal, HasSubstr("out of memory")));
  for (const auto& good : {a, b, c}) EXPECT_THAT(good->Await(), IsOk());
  EXPECT_THAT(engine_.batches(),
              ElementsAre("busy0", "a0 a1 bad0 b0 c0", "a0 a1", "bad0", "b0", "c0"));

  // The next ones are served as ever.
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Submit("n", {1})->Await(), IsOk());
  EXPECT_EQ(bad->finishes(), 1);
}

TEST_F(BatcherTest, ReportsFailuresAndRetriesToTheObserver) {
  Start();
  OccupyWorker();
  const auto a = Submit("a", {2, 3});
  const auto bad = Submit("bad", {4});
  engine_.set_result(FailWith("bad"));
  engine_.Release();
  EXPECT_THAT(a->Await(), IsOk());
  EXPECT_THAT(bad->Await(), StatusIs(absl::StatusCode::kInternal));
  std::string seen;
  for (const BatchObservation& batch : observer_.batches()) {
    seen += std::to_string(batch.sequences) + "/" + std::to_string(batch.tokens) +
            (batch.failed ? " failed" : "") + (batch.retry ? " retry" : "") +
            (batch.abandoned ? " abandoned" : "") + "; ";
  }
  EXPECT_EQ(seen, "1/1; 3/9 failed; 2/5 retry; 1/4 failed retry; ");
}

TEST_F(BatcherTest, RunsALoneCallAgainOnceToo) {
  Start();
  int runs = 0;
  engine_.set_result([&runs](std::span<Slot>) {
    return ++runs == 1 ? absl::UnknownError("once") : absl::OkStatus();
  });
  EXPECT_THAT(Submit("a", {1})->Await(), IsOk());
  EXPECT_EQ(runs, 2);
}

TEST_F(BatcherTest, DoesNotRetryACallThatWasCancelledMeanwhile) {
  Start();
  OccupyWorker();
  const auto gone = Submit("gone", {1});
  const auto bad = Submit("bad", {1});
  engine_.set_result([this, gone, fail = FailWith("bad")](std::span<Slot> slots) {
    if (slots.front().call == gone) batcher_->Cancel(*gone, absl::CancelledError());
    return fail(slots);
  });
  engine_.Release();
  EXPECT_THAT(bad->Await(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0", "gone0 bad0", "bad0"));
}

TEST_F(BatcherTest, EndsACallWithItsFirstSlotsErrorAndLeavesOthersAlone) {
  Start({.max_batch_tokens = 10});
  OccupyWorker();
  const auto bad = Submit("bad", {3, 3, 9});  // the last one waits for another batch
  const auto good = Submit("good", {3});
  engine_.set_result([](std::span<Slot> slots) {
    for (Slot& slot : slots) {
      if (static_cast<const FakeCall&>(*slot.call).name() == "bad") {
        slot.status = absl::InternalError("sequence " + std::to_string(slot.sequence));
      }
    }
    return absl::OkStatus();
  });
  engine_.Release();
  EXPECT_THAT(bad->Await(), StatusIs(absl::StatusCode::kInternal, "sequence 0"));
  EXPECT_THAT(good->Await(), IsOk());
  EXPECT_THAT(Submit("next", {1})->Await(), IsOk());
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0", "bad0 bad1 good0", "next0"));
  EXPECT_EQ(bad->finishes(), 1);
}

TEST_F(BatcherTest, DoesNotStartWhenARunnerCannotBeMade) {
  const auto factory = []() -> absl::StatusOr<std::unique_ptr<Runner>> {
    return absl::InternalError("no memory for scratch");
  };
  EXPECT_THAT(Batcher::Start({.workers = 3}, clock_, observer_, factory),
              StatusIs(absl::StatusCode::kInternal, "no memory for scratch"));
}

// ---- The end ------------------------------------------------------------------------------------

TEST_F(BatcherTest, DrainFinishesWhatWasAcceptedAndRefusesTheRest) {
  Start();
  OccupyWorker();
  const auto waiting = Submit("a", {1});
  bool drained = false;
  std::thread drain([&] { drained = batcher_->Drain(absl::Seconds(20)); });
  while (batcher_->Submit(MakeCall("late", {1})).code() != absl::StatusCode::kUnavailable) {
    std::this_thread::yield();  // until the other thread has begun to drain
  }
  EXPECT_EQ(waiting->finishes(), 0);
  engine_.Release();
  drain.join();
  EXPECT_TRUE(drained);
  EXPECT_EQ(waiting->finishes(), 1);
  EXPECT_THAT(waiting->Await(), IsOk());
}

TEST_F(BatcherTest, DrainGivesUpAtItsTimeoutAndStopAnswersTheRest) {
  Start();
  const auto running = OccupyWorker();
  const auto waiting = Submit("a", {1});
  EXPECT_FALSE(batcher_->Drain(absl::ZeroDuration()));
  EXPECT_EQ(waiting->finishes(), 0);

  std::thread stop([&] { batcher_->Stop(); });
  EXPECT_THAT(waiting->Await(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(running->Await(), StatusIs(absl::StatusCode::kUnavailable));
  engine_.Release();
  stop.join();
  EXPECT_THAT(engine_.batches(), ElementsAre("busy0"));
}

TEST_F(BatcherTest, DrainWaitsForTheClockOnly) {
  Start();
  OccupyWorker();
  bool drained = true;
  std::thread drain([&] { drained = batcher_->Drain(absl::Seconds(20)); });
  while (batcher_->Submit(MakeCall("late", {1})).code() != absl::StatusCode::kUnavailable) {
    std::this_thread::yield();
  }
  clock_.Advance(absl::Seconds(20));
  drain.join();
  EXPECT_FALSE(drained);
}

TEST_F(BatcherTest, DrainReleasesABatchThatIsHeldBack) {
  Start({.max_batch_wait = absl::Hours(1)});
  const auto call = Submit("a", {1});
  EXPECT_TRUE(batcher_->Drain(absl::Seconds(20)));
  EXPECT_THAT(call->Await(), IsOk());
}

TEST_F(BatcherTest, AnswersEveryoneWhenDestroyedWithWorkQueued) {
  Start();
  const auto running = OccupyWorker();
  const auto waiting = Submit("a", {1, 1});
  std::thread destroy([&] { batcher_.reset(); });
  EXPECT_THAT(waiting->Await(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(running->Await(), StatusIs(absl::StatusCode::kUnavailable));
  engine_.Release();
  destroy.join();
  EXPECT_EQ(waiting->finishes(), 1);
}

TEST_F(BatcherTest, RefusesCallsAfterStop) {
  Start();
  batcher_->Stop();
  EXPECT_THAT(batcher_->Submit(MakeCall("a", {1})), StatusIs(absl::StatusCode::kUnavailable));
}

// ---- What is seen from outside ------------------------------------------------------------------

TEST_F(BatcherTest, ShowsSinceWhenAWorkerRunsAndCountsThatTimeAsBusy) {
  Start();
  EXPECT_EQ(batcher_->Snapshot().workers.at(0).running_since, std::nullopt);
  const absl::Time start = clock_.Now();
  const auto call = OccupyWorker();
  clock_.Advance(absl::Seconds(7));
  EXPECT_EQ(batcher_->Snapshot().workers.at(0).running_since, start);
  EXPECT_EQ(batcher_->Snapshot().workers.at(0).busy, absl::Seconds(7));
  engine_.Release();
  EXPECT_THAT(call->Await(), IsOk());
  clock_.Advance(absl::Seconds(7));
  EXPECT_EQ(batcher_->Snapshot().workers.at(0).running_since, std::nullopt);
  EXPECT_EQ(batcher_->Snapshot().workers.at(0).busy, absl::Seconds(7));
}

TEST_F(BatcherTest, ReportsWhatItPredictedAndWhatABatchTook) {
  Start({.cost = {.per_token = 1}});
  engine_.set_result([this](std::span<Slot>) {
    clock_.Advance(absl::Seconds(9));
    return absl::OkStatus();
  });
  EXPECT_THAT(Submit("a", {6})->Await(), IsOk());
  EXPECT_THAT(Submit("b", {6})->Await(), IsOk());
  EXPECT_EQ(observer_.batches().at(0).predicted, absl::Seconds(6));
  EXPECT_EQ(observer_.batches().at(0).duration, absl::Seconds(9));
  EXPECT_GT(observer_.batches().at(1).predicted, absl::Seconds(6));  // it learns
}

// Many callers, workers, failures and cancels at once, with the real clock: everyone is answered
// exactly once.
TEST(BatcherSmokeTest, AnswersEveryCallOnceUnderMixedLoad) {
  constexpr int kCallers = 4;
  constexpr int kCallsEach = 250;
  FakeObserver observer;
  FakeEngine engine;
  engine.set_result(FailWith("bad"));
  auto batcher = Batcher::Start({.workers = 3, .max_batch_tokens = 64}, SteadyClock(), observer,
                                engine.Factory());
  ASSERT_THAT(batcher, IsOk());

  std::vector<std::shared_ptr<FakeCall>> calls[kCallers];
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < kCallsEach; ++i) {
        auto call = std::make_shared<FakeCall>(
            CallInfo{.sequences = OfTokens(std::vector<int64_t>(1 + i % 5, 1 + i % 90)),
                     .priority = i % 3 == 0 ? Priority::kBulk : Priority::kInteractive,
                     .arrival = SteadyClock().Now(),
                     .deadline = SteadyClock().Now() + absl::Minutes(1)},
            i % 7 == 0 ? "bad" : "good");
        ASSERT_THAT((*batcher)->Submit(call), IsOk());
        if (i % 5 == 0) (*batcher)->Cancel(*call, absl::CancelledError());
        calls[caller].push_back(std::move(call));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE((*batcher)->Drain(absl::Seconds(30)));

  for (const auto& own : calls) {
    for (const auto& call : own) {
      EXPECT_EQ(call->finishes(), 1);
      const absl::StatusCode code = call->Await().code();
      EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kCancelled ||
                  (code == absl::StatusCode::kInternal && call->name() == "bad"))
          << code;
    }
  }
  EXPECT_EQ((*batcher)->Snapshot().calls_unfinished, 0);
}

}  // namespace
}  // namespace encoderd
