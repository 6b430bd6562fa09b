// Goal: what a server takes for many clients is bounded, and it gives it back: memory, threads,
// files; and it ends well with them.
// Method: the real binary on a small model, observed from outside while clients of this process
// come in numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/integration/encoderd_process.h"
#include "tests/integration/pending_call.h"

namespace encoderd {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModel =
    "--model_dir=" ENCODERD_SOURCE_DIR "/tests/goldens/fused_qkv_attention/model";

// [tokens, 10] vectors; the answer is the attention maps of three heads.
v1::EncodeRequest MapsRequest(int tokens) {
  v1::EncodeRequest request;
  v1::Tensor& vectors = *request.add_sequences()->mutable_inputs_embeds();
  vectors.add_shape(tokens);
  vectors.add_shape(10);
  vectors.set_data(std::string(static_cast<size_t>(tokens) * 10 * sizeof(float), '\0'));
  request.mutable_outputs()->mutable_attentions();
  request.set_max_response_bytes(64 << 20);
  return request;
}

// 64 clients with a connection each, all at once; each makes three calls, one after another, whose
// answers have 0.1 to 4 MB.
void Burst(const Encoderd& encoderd) {
  constexpr int kClients = 64;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&encoderd, client] {
      const auto stub = v1::EncoderService::NewStub(encoderd.Connect());
      const v1::EncodeRequest request = MapsRequest(100 + client * 37 % 478);
      for (int call = 0; call < 3; ++call) {
        grpc::ClientContext context;
        // gRPC's client takes another error for one of its connection when many connect at once.
        context.set_wait_for_ready(true);
        v1::EncodeResponse response;
        const grpc::Status status = stub->Encode(&context, request, &response);
        EXPECT_TRUE(status.ok()) << status.error_message();
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

// What the server's README states as the ceiling.
TEST(MemoryTest, IsGivenBackAfterBurstsOfLargeAnswers) {
  Encoderd encoderd({kModel, "--workers=2"});
  encoderd.AwaitServing();
  const int64_t idle = encoderd.process().ResidentBytes();
  Burst(encoderd);
  const int64_t first = encoderd.process().ResidentBytes();
  EXPECT_LT(first - idle, 32 << 20);
  Burst(encoderd);
  EXPECT_LT(encoderd.process().ResidentBytes() - first, 8 << 20);
}

// Large requests, refused as soon as they have come.
TEST(MemoryTest, IsGivenBackAfterABurstOfLargeRequests) {
  Encoderd encoderd({kModel, "--workers=2"});
  encoderd.AwaitServing();
  const int64_t idle = encoderd.process().ResidentBytes();
  v1::EncodeRequest request;
  request.set_model(std::string(size_t{30} << 20, 'm'));
  std::vector<std::thread> clients;
  for (int client = 0; client < 12; ++client) {
    clients.emplace_back([&] {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      v1::EncodeResponse response;
      EXPECT_EQ(v1::EncoderService::NewStub(encoderd.Connect())
                    ->Encode(&context, request, &response)
                    .error_code(),
                grpc::StatusCode::NOT_FOUND);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(encoderd.process().PeakResidentBytes() - idle, 60 << 20);
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (encoderd.process().ResidentBytes() - idle > 64 << 20 && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_LT(encoderd.process().ResidentBytes() - idle, 64 << 20);
}

// A few megabytes that would be a gigabyte, were they unpacked.
TEST(MemoryTest, IsNotTakenForCompressedMessages) {
  Encoderd encoderd({kModel, "--workers=2"});
  encoderd.AwaitServing();
  v1::EncodeRequest request;
  request.set_model(std::string(size_t{256} << 20, 'm'));
  const int64_t before = encoderd.process().PeakResidentBytes();
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::EncodeResponse response;
    EXPECT_EQ(encoderd.encoder().Encode(&context, request, &response).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_LT(encoderd.process().PeakResidentBytes() - before, 32 << 20);
  grpc::ClientContext context;
  v1::EncodeResponse response;
  EXPECT_TRUE(encoderd.encoder().Encode(&context, MapsRequest(10), &response).ok());
}

// ---- Clients in numbers -------------------------------------------------------------------------

// As many calls at once as clients; every one is answered, by the threads that are there anyway.
TEST(ThreadsTest, AreTheSameForFourClientsAndForTwoHundred) {
  Encoderd encoderd({kModel, "--workers=2", "--max_queue_time=60s"});
  encoderd.AwaitServing();
  const v1::EncodeRequest request = MapsRequest(300);
  const auto serve = [&](int clients) {
    std::vector<std::unique_ptr<v1::EncoderService::Stub>> stubs;
    std::vector<std::unique_ptr<PendingCall>> calls;
    for (int i = 0; i < clients; ++i) {
      stubs.push_back(v1::EncoderService::NewStub(encoderd.Connect()));
      calls.push_back(std::make_unique<PendingCall>(*stubs.back(), request));
    }
    std::vector<absl::Duration> health;
    for (int i = 0; i < 21; ++i) {
      const absl::Time start = absl::Now();
      EXPECT_EQ(encoderd.Health(), grpc::health::v1::HealthCheckResponse::SERVING);
      health.push_back(absl::Now() - start);
    }
    const int threads = encoderd.process().Threads();
    std::ranges::sort(health);
    EXPECT_LT(health[10], absl::Milliseconds(100));
    for (auto& call : calls) EXPECT_TRUE(call->status().ok()) << call->status().error_message();
    return threads;
  };
  serve(4);  // what starts on demand has started
  const int few = serve(4);
  // gRPC's own pool grows and shrinks by a few; clients add none.
  EXPECT_LE(serve(200), few + 8);
}

int OwnFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

// Clients who connect, send and are gone within 20 ms, beside some who stay.
TEST(VanishingClientsTest, LeaveNothingBehindAndDisturbNobody) {
  Encoderd encoderd({kModel, "--workers=2", "--max_queue_time=60s"});
  encoderd.AwaitServing();
  const v1::EncodeRequest request = MapsRequest(200);
  const auto answer = [&request](v1::EncoderService::Stub& stub) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::EncodeResponse response;
    const grpc::Status status = stub.Encode(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  };
  Burst(encoderd);  // what starts on demand has started
  answer(encoderd.encoder());
  const int files = encoderd.process().Files();
  const int own_files = OwnFiles();
  const int threads = encoderd.process().Threads();
  {
    std::vector<std::thread> clients;
    for (int steady = 0; steady < 4; ++steady) {
      clients.emplace_back([&] {
        const auto stub = v1::EncoderService::NewStub(encoderd.Connect());
        for (int i = 0; i < 50; ++i) answer(*stub);
      });
    }
    for (int vanishing = 0; vanishing < 4; ++vanishing) {
      clients.emplace_back([&encoderd, &request, vanishing] {
        for (int i = 0; i < 50; ++i) {
          const auto stub = v1::EncoderService::NewStub(encoderd.Connect());
          const absl::Duration life = absl::Milliseconds((i * 7 + vanishing) % 21);
          PendingCall call(*stub, request, life);
          if (i % 2 == 0) call.Cancel();
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }
  // Sockets of whoever went are closed soon after. gRPC's client keeps some that it gave up while
  // it connected, and those are open on both sides.
  const auto left = [&] {
    return (encoderd.process().Files() - files) - (OwnFiles() - own_files);
  };
  const absl::Time end = absl::Now() + absl::Seconds(10);
  while (left() > 0 && absl::Now() < end) std::this_thread::yield();
  EXPECT_LE(left(), 0);
  EXPECT_LE(encoderd.process().Threads(), threads + 2);
  answer(encoderd.encoder());
  encoderd.process().Signal(SIGTERM);
  EXPECT_EQ(encoderd.process().Wait(), 0);
  EXPECT_THAT(encoderd.process().output(), HasSubstr("every accepted call was answered"));
}

// ---- The end ------------------------------------------------------------------------------------

// An idle client, a batch that runs, calls that wait, an open Watch and a delay.
TEST(ShutdownTest, EndsInTimeWithEverythingUnderWay) {
  Encoderd encoderd({kModel, "--workers=1", "--drain_delay=300ms", "--drain_timeout=20s",
                     "--max_queue_time=60s"});
  encoderd.AwaitServing();
  const auto idle = encoderd.Connect();
  ASSERT_TRUE(idle->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(20))));
  grpc::ClientContext context;
  const auto health = grpc::health::v1::Health::NewStub(encoderd.Connect());
  const auto watch = health->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse state;
  ASSERT_TRUE(watch->Read(&state));
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 50; ++i) {
    calls.push_back(std::make_unique<PendingCall>(encoderd.encoder(), MapsRequest(577)));
  }
  encoderd.process().Signal(SIGTERM);
  encoderd.process().AwaitLine("Draining.");
  while (watch->Read(&state)) {
    EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  }
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  for (auto& call : calls) EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  EXPECT_EQ(encoderd.process().Wait(absl::Seconds(21)), 0);
  EXPECT_THAT(encoderd.process().output(), HasSubstr("every accepted call was answered"));
}

// Steady calls on one connection from before the signal to after the end.
TEST(ShutdownTest, LosesNoAcceptedCall) {
  Encoderd encoderd({kModel, "--workers=2", "--drain_delay=500ms"});
  encoderd.AwaitServing();
  const v1::EncodeRequest request = MapsRequest(50);
  int answered_since_signal = 0;
  grpc::Status last;
  absl::Time signalled = absl::InfiniteFuture();
  for (int i = 0; last.ok(); ++i) {
    if (i == 20) {
      signalled = absl::Now();
      encoderd.process().Signal(SIGTERM);
    }
    grpc::ClientContext context;
    v1::EncodeResponse response;
    last = encoderd.encoder().Encode(&context, request, &response);
    if (last.ok() && i >= 20) ++answered_since_signal;
  }
  // Not accepted: refused when the delay was over, or dropped by gRPC 1.51, which cancels what
  // comes between the end of its server and the client's hearing of it.
  EXPECT_THAT(last.error_code(), ::testing::AnyOf(grpc::StatusCode::UNAVAILABLE,
                                                  grpc::StatusCode::CANCELLED))
      << last.error_message();
  EXPECT_GT(absl::Now() - signalled, absl::Milliseconds(450));
  EXPECT_GT(answered_since_signal, 10);
  EXPECT_EQ(encoderd.process().Wait(), 0);
  EXPECT_THAT(encoderd.process().output(), HasSubstr("every accepted call was answered"));
}

}  // namespace
}  // namespace encoderd
