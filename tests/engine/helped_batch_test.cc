// Goal:   helpers move no bit of any answer, and never hold one up: not when they are stopped at
//         any point, not when their cores are taken away, not when a batch ends while they are
//         inside.
// Method: a small BERT with the row widths of a real one; the judge is an engine without helpers.
//         A helper is stopped as the kernel would stop it, between two instructions: by a signal
//         whose handler waits.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status_matchers.h"
#include "engine/encoder.h"
#include "engine/engine.h"
#include "engine/helpers.h"
#include "engine/load_weights.h"
#include "engine/model/model_folder.h"
#include "engine/ops/runtime.h"
#include "engine/parts.h"
#include "engine/phase_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/random_model.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;

constexpr BertShape kShape = {
    .layers = 3, .hidden = 384, .heads = 12, .ffn = 1536, .vocab = 100, .positions = 512};

std::unique_ptr<Engine> LoadWithWorkers(const std::string& folder, int workers) {
  auto engine = Engine::Load({.model_dir = folder, .workers = workers});
  CHECK(engine.ok()) << engine.status();
  return *std::move(engine);
}

std::set<pid_t> Threads() {
  std::set<pid_t> threads;
  DIR* const folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) {
    if (const pid_t id = std::atoi(entry->d_name); id > 0) threads.insert(id);
  }
  closedir(folder);
  return threads;
}

// Stops threads of this process wherever they are.
class Stopper {
 public:
  Stopper() {
    CHECK_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    struct sigaction action = {};
    action.sa_handler = [](int) {
      const int saved = errno;
      ++stopped_;
      char byte;
      while (read(pipe_[0], &byte, 1) < 0 && errno == EINTR) {
      }
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    CHECK_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  }
  ~Stopper() {
    Release();
    signal(SIGUSR1, SIG_DFL);
    close(pipe_[0]);
    close(pipe_[1]);
  }

  void Stop(pid_t thread) {
    const int before = stopped_;
    ++to_release_;
    CHECK_EQ(syscall(SYS_tgkill, getpid(), thread, SIGUSR1), 0);
    while (stopped_ == before) std::this_thread::yield();
  }
  void Release() {
    for (; to_release_ > 0; --to_release_) CHECK_EQ(write(pipe_[1], "", 1), 1);
  }

 private:
  static inline int pipe_[2];
  static inline std::atomic<int> stopped_{0};
  int to_release_ = 0;
};

class HelpedBatchTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    WriteRandomBert(kShape, *folder_);
    alone_ = LoadWithWorkers(folder_->path(), 1).release();
  }
  static void TearDownTestSuite() {
    delete alone_;
    delete folder_;
  }

  Sequence RandomSequence(int64_t tokens) {
    auto& ids = ids_.emplace_back(static_cast<size_t>(tokens));
    for (int32_t& id : ids) id = static_cast<int32_t>(rng_() % kShape.vocab);
    return {.input_ids = ids};
  }

  std::span<const uint8_t> RandomBits(int64_t count) {
    auto& bits = bits_.emplace_back(static_cast<size_t>(count));
    for (uint8_t& bit : bits) bit = rng_() % 4 != 0;
    bits[0] = 1;
    return bits;
  }

  static OutputSpec States() {
    OutputSpec outputs;
    outputs.last_hidden_state = true;
    outputs.hidden_states = {0, 1};
    outputs.pooled = {{}, {.kind = Pooling::kMax, .layer = 2}};
    return outputs;
  }

  // Long ones, batches, masks of each part, maps.
  std::vector<Request> Requests() {
    std::vector<Request> requests;
    for (const int64_t tokens : {512, 384, 300, 129, 65}) {
      requests.push_back({.sequences = {RandomSequence(tokens)}, .outputs = States()});
    }
    requests.push_back(
        {.sequences = {RandomSequence(200), RandomSequence(150), RandomSequence(100)},
         .outputs = States()});
    Request masked = {.sequences = {RandomSequence(320), RandomSequence(100)}, .outputs = States()};
    masked.sequences[0].mask = {.keys = RandomBits(320), .pairs = RandomBits(320 * 320)};
    masked.sequences[1].mask = {.keys = RandomBits(100), .causal = true};
    masked.sequences[1].spans = {{0, 1}, {0, 100}};
    requests.push_back(masked);
    Request maps = {.sequences = {RandomSequence(300)}, .outputs = States()};
    maps.outputs.attentions = AttentionSpec{.layers = {1}, .heads = {3}, .query_rows = {7, 299}};
    requests.push_back(maps);
    return requests;
  }

  static std::vector<std::vector<std::byte>> BytesOf(const Answer& answer) {
    std::vector<std::vector<std::byte>> bytes;
    auto add = [&](const AnswerTensor& tensor) {
      bytes.emplace_back(tensor.data.bytes().begin(), tensor.data.bytes().end());
    };
    add(answer.last_hidden_state);
    for (const AnswerTensor& state : answer.hidden_states) add(state);
    for (const AttentionMap& map : answer.attentions) add(map.tensor);
    for (const AnswerTensor& pooled : answer.pooled) add(pooled);
    return bytes;
  }

  std::vector<std::vector<std::vector<std::byte>>> AnswersOf(const Engine& engine, Worker& worker,
                                                             const std::vector<Request>& requests) {
    std::vector<std::vector<std::vector<std::byte>>> answers;
    for (const Request& request : requests)
      answers.push_back(BytesOf(Ask(engine, worker, request)));
    return answers;
  }

  static const TempFolder* folder_;
  static const Engine* alone_;
  std::mt19937 rng_{5};
  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<uint8_t>> bits_;
};

const TempFolder* HelpedBatchTest::folder_ = nullptr;
const Engine* HelpedBatchTest::alone_ = nullptr;

TEST_F(HelpedBatchTest, BitsAreThoseOfOneWorkerWithAnyNumberOfHelpers) {
  const std::vector<Request> requests = Requests();
  const auto expected = AnswersOf(*alone_, *NewWorker(*alone_), requests);
  for (const int workers : {2, 3, 4}) {
    const auto engine = LoadWithWorkers(folder_->path(), workers);
    EXPECT_EQ(engine->info().numerics_id, alone_->info().numerics_id);
    const auto worker = NewWorker(*engine);
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(AnswersOf(*engine, *worker, requests), expected) << workers << " workers";
    }
  }
}

// The owner does less than it does alone: that is what helpers are for.
TEST_F(HelpedBatchTest, HelpersTakeTilesOfALoneSequence) {
  const auto engine = LoadWithWorkers(folder_->path(), 2);
  const auto worker = NewWorker(*engine);
  const Request request = {.sequences = {RandomSequence(512)}, .outputs = States()};
  // Four tiles of 128 rows: the owner's operations when nobody helps.
  const int64_t all = 4 * (1 + kShape.layers * 6);
  bool helped = false;
  for (int i = 0; i < 200 && !helped; ++i) {
    const int64_t before = ops::ThreadOpCounts().executes;
    Ask(*engine, *worker, request);
    helped = ops::ThreadOpCounts().executes - before < all;
  }
  EXPECT_TRUE(helped);
}

// A helper that has not left the last block yet is stopped until the next one has begun: it comes
// to that one as well. What counts is where batches run, and not where helpers are.
TEST_F(HelpedBatchTest, HelperThatReturnsBetweenBlocksHelpsWithTheNext) {
  auto folder = OpenModelFolder(folder_->path());
  ASSERT_THAT(folder, IsOk());
  RowCheck check;
  const auto weights = LoadWeights(folder->spec, folder->checkpoint, Precision::kFp32,
                                   /*allow_nonfinite=*/false, check);
  ASSERT_THAT(weights, IsOk());
  const BatchLimits limits = {.max_batch_tokens = 512, .max_sequence_tokens = 512};
  const auto memory = PhaseMemory::Create(
      {.width = kShape.hidden, .hidden = kShape.hidden, .limits = limits, .helpers = 1});
  ASSERT_THAT(memory, IsOk());
  const std::set<pid_t> before = Threads();
  const auto helpers = Helpers::Start(folder->spec, *weights, limits.max_sequence_tokens, 2);
  ASSERT_THAT(helpers, IsOk());
  pid_t helper = 0;
  for (const pid_t thread : Threads()) {
    if (!before.contains(thread)) helper = thread;
  }
  ops::EnterNumericEnvironment();
  const auto encoder = Encoder::Create({.spec = folder->spec,
                                        .weights = *weights,
                                        .limits = limits,
                                        .memory = **memory,
                                        .helpers = helpers->get()});
  ASSERT_THAT(encoder, IsOk());
  const Request request = {.sequences = {RandomSequence(512)}, .outputs = States()};
  // Operations of the last block.
  const int64_t all = 4 * 5;
  bool returned = false;
  for (int round = 0; round < 300 && !returned; ++round) {
    Stopper stopper;
    std::atomic<bool> running{false}, held{false}, next{false};
    // Stops the helper while it has a core, and lets it go when the last block runs.
    std::thread stop([&] {
      while (!running) std::this_thread::yield();
      for (int i = 0; i < 10'000 && (*helpers)->IdleCores() > 0; ++i) std::this_thread::yield();
      stopper.Stop(helper);
      held = true;
      while (!next) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      stopper.Release();
    });
    Prepared call(*alone_, request);
    std::vector<BatchItem> items;
    call.AppendItems(items);
    int block = 0;
    bool inside = false;
    int64_t executes = 0;
    EXPECT_THAT((*encoder)->Run(items,
                                [&] {
                                  if (block == 0) running = true;
                                  if (++block < kShape.layers) return false;
                                  while (!held) std::this_thread::yield();
                                  inside = (*helpers)->IdleCores() == 0;
                                  executes = ops::ThreadOpCounts().executes;
                                  next = true;
                                  return false;
                                }),
                IsOk());
    stop.join();
    returned = inside && ops::ThreadOpCounts().executes - executes < all;
  }
  EXPECT_TRUE(returned);
}

TEST_F(HelpedBatchTest, StoppedHelperHoldsNothingUp) {
  const std::vector<Request> requests = Requests();
  const auto expected = AnswersOf(*alone_, *NewWorker(*alone_), requests);
  const std::set<pid_t> before = Threads();
  const auto engine = LoadWithWorkers(folder_->path(), 3);
  std::vector<pid_t> helpers;
  for (const pid_t thread : Threads()) {
    if (!before.contains(thread)) helpers.push_back(thread);
  }
  ASSERT_EQ(helpers.size(), 2u);
  const auto worker = NewWorker(*engine);
  for (int round = 0; round < 12; ++round) {
    Stopper stopper;
    // Somewhere in the middle of a batch, one or both of them stop for all the batches that follow.
    std::atomic<bool> stopping{false};
    std::thread stop([&] {
      while (!stopping) std::this_thread::yield();
      for (auto spins = rng_() % 100'000; spins > 0; --spins)
        std::atomic_thread_fence(std::memory_order_seq_cst);
      stopper.Stop(helpers[static_cast<size_t>(round % 2)]);
      if (round % 3 == 0) stopper.Stop(helpers[static_cast<size_t>((round + 1) % 2)]);
    });
    stopping = true;
    EXPECT_EQ(BytesOf(Ask(*engine, *worker, requests[0])), expected[0]);
    stop.join();
    EXPECT_EQ(AnswersOf(*engine, *worker, requests), expected) << "with a helper that is stopped";
    stopper.Release();
    EXPECT_EQ(AnswersOf(*engine, *worker, {requests[0], requests[6]}),
              (std::vector{expected[0], expected[6]}))
        << "with one that has come back";
  }
}

TEST_F(HelpedBatchTest, BitsAreTheSameWhileOtherWorkersTakeTheCoresBack) {
  const std::vector<Request> requests = Requests();
  const auto expected = AnswersOf(*alone_, *NewWorker(*alone_), requests);
  const auto engine = LoadWithWorkers(folder_->path(), 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      const auto worker = NewWorker(*engine);
      for (int round = 0; round < 6; ++round) {
        EXPECT_EQ(AnswersOf(*engine, *worker, requests), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HelpedBatchTest, AbandonedBatchLeavesTheWorkerAndItsHelpersAsTheyWere) {
  const auto engine = LoadWithWorkers(folder_->path(), 2);
  const auto worker = NewWorker(*engine);
  const Request request = {.sequences = {RandomSequence(512)}, .outputs = States()};
  const auto expected = BytesOf(Ask(*alone_, *NewWorker(*alone_), request));
  for (int round = 0; round < 10; ++round) {
    Prepared call(*engine, request);
    std::vector<BatchItem> items;
    call.AppendItems(items);
    int asked = 0;
    EXPECT_THAT(worker->Run(items, [&] { return ++asked > round % kShape.layers; }),
                StatusIs(absl::StatusCode::kCancelled));
    EXPECT_EQ(BytesOf(Ask(*engine, *worker, request)), expected);
  }
}

TEST_F(HelpedBatchTest, PartsOfAPassAreHelpedWithAsWell) {
  const auto engine = LoadWithWorkers(folder_->path(), 3);
  const auto worker = NewWorker(*engine);
  OutputSpec outputs;
  outputs.last_hidden_state = true;
  const Request request = {.sequences = {RandomSequence(500)}, .outputs = outputs};
  const auto expected = BytesOf(Ask(*alone_, *NewWorker(*alone_), request));
  const Prepared whole(*engine, request);
  std::vector<float> hidden(500 * static_cast<size_t>(kShape.hidden));
  for (int64_t block = 0; block < kShape.layers; ++block) {
    const Plan part =
        PartOf(engine->spec(), whole.plan, {.first_block = block, .end_block = block + 1});
    auto answer = engine->AllocateAnswer(part);
    ASSERT_THAT(answer, IsOk());
    BatchItem item = {.request = &request, .plan = &part, .answer = &*answer, .hidden = hidden};
    ASSERT_THAT(worker->Run({&item, 1}, NeverAbandoned), IsOk());
    if (block + 1 == kShape.layers) {
      EXPECT_EQ(BytesOf(*answer), expected);
    }
  }
}

TEST_F(HelpedBatchTest, ScratchOfHelpersIsTold) {
  const auto engine = LoadWithWorkers(folder_->path(), 2);
  auto folder = OpenModelFolder(folder_->path());
  ASSERT_THAT(folder, IsOk());
  RowCheck check;
  const auto weights = LoadWeights(folder->spec, folder->checkpoint, Precision::kFp32,
                                   /*allow_nonfinite=*/false, check);
  ASSERT_THAT(weights, IsOk());
  // Rows of one tile, and what attention and oneDNN ask for.
  const int64_t rows = 256 * (kShape.hidden * 5 + kShape.ffn) * 4 +
                       static_cast<int64_t>(weights->attention.scratch_bytes(kShape.positions) +
                                            weights->scratchpad_bytes());
  // Two generations, with hidden rows, q, k and v: first copies, one second copy, what lies behind.
  const int64_t stored = (2 * 512 + 64) + 256 + 64;
  const int64_t phases =
      2 * stored * 4 * kShape.hidden * 4 + static_cast<int64_t>(BatchLayout::kMaxMaskBytes);
  EXPECT_EQ(engine->info().scratch_bytes_per_helper, rows + phases);
  EXPECT_GT(engine->info().scratch_bytes_per_worker, engine->info().scratch_bytes_per_helper);
}

}  // namespace
}  // namespace encoderd
