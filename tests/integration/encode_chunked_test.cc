// Goal: a stream gives what Encode gives, to the bit, at any size; it holds no more memory than is
// stated, whoever reads it; and its end leaves nothing behind.
// Method: a whole server around the fake engine, over a socket. --max_response_bytes scales the
// steps down: a stream holds at most that.
#include "server/encode_chunked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "deploy/client/chunks.h"
#include "tests/integration/test_server.h"
#include "tests/server/batching/fake_clock.h"

namespace encoderd {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 40;
constexpr const char* kInflightBytes = "encoderd_inflight_bytes";

std::string EndedWith(const char* code) {
  return absl::StrCat("encoderd_calls_total{code=\"", code, "\",method=\"EncodeChunked\"}");
}

// A stream that is read message by message.
class Stream {
 public:
  Stream(v1::EncoderService::Stub& encoder, const v1::EncodeRequest& request,
         absl::Duration timeout = absl::InfiniteDuration()) {
    if (timeout != absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    }
    reader_ = encoder.EncodeChunked(&context_, request);
  }
  ~Stream() {
    context_.TryCancel();
    Finish();
  }

  bool Read(v1::EncodeChunk& chunk) { return reader_->Read(&chunk); }
  void Cancel() { context_.TryCancel(); }
  // The status, whatever has not been read.
  grpc::Status Finish() {
    if (!status_.has_value()) {
      v1::EncodeChunk rest;
      while (reader_->Read(&rest)) {
      }
      status_ = reader_->Finish();
    }
    return *status_;
  }
  const grpc::ClientContext& context() const { return context_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::EncodeChunk>> reader_;
  std::optional<grpc::Status> status_;
};

// Reads to the end, checks every message, and puts the answer together.
struct Whole {
  grpc::Status status;
  v1::EncodeResponse answer;
  int pieces = 0;
};
Whole ReadWhole(v1::EncoderService::Stub& encoder, const v1::EncodeRequest& request) {
  Stream stream(encoder, request);
  client::ChunkAssembler assembler(kNoLimit);
  Whole whole;
  for (v1::EncodeChunk chunk; stream.Read(chunk);) {
    if (chunk.has_piece()) {
      ++whole.pieces;
      EXPECT_LE(chunk.piece().data().size(), kMaxPieceBytes);
    }
    const absl::Status added = assembler.Add(std::move(chunk));
    EXPECT_TRUE(added.ok()) << added;
  }
  whole.status = stream.Finish();
  if (!whole.status.ok()) return whole;
  auto answer = assembler.Take();
  EXPECT_TRUE(answer.ok()) << answer.status();
  if (answer.ok()) whole.answer = *std::move(answer);
  return whole;
}

// What is left of an answer without what may differ from call to call.
std::string Comparable(v1::EncodeResponse answer) {
  answer.clear_timing();
  answer.clear_request_id();
  return answer.SerializeAsString();
}

void ExpectSameAsEncode(TestServer& server, v1::EncodeRequest request) {
  request.set_max_response_bytes(64 << 20);
  v1::EncodeResponse expected;
  const grpc::Status status = server.Encode(request, &expected);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const Whole whole = ReadWhole(server.encoder(), request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  EXPECT_EQ(Comparable(whole.answer), Comparable(expected));
  EXPECT_EQ(whole.answer.timing().layers_run(), expected.timing().layers_run());
  EXPECT_GE(whole.answer.timing().batches(), 1);
}

// Everything that the fake engine gives, of sequences of these lengths.
v1::EncodeRequest EverythingOf(const std::vector<int>& lengths) {
  v1::EncodeRequest request;
  for (const int length : lengths) {
    v1::Sequence& sequence = *request.add_sequences();
    for (int i = 0; i < length; ++i) sequence.add_input_ids((length + 7 * i) % 100);
  }
  v1::OutputSpec& outputs = *request.mutable_outputs();
  outputs.set_last_hidden_state(true);
  outputs.add_hidden_states(2);
  outputs.add_hidden_states(0);
  outputs.mutable_attentions()->add_layers(1);
  outputs.mutable_attentions()->add_layers(0);
  outputs.add_pooled();
  outputs.add_pooled()->set_layer(1);
  outputs.mutable_pooled(1)->set_dimensions(3);
  return request;
}

Options StreamsOf(int64_t bytes) {
  Options options = TestOptions();
  options.max_response_bytes = bytes;
  options.max_request_sequences = 256;
  options.max_request_tokens = 1 << 20;
  options.max_queue_tokens = 1 << 20;
  return options;
}

// Maps of both layers and heads for sequences of 512 tokens: 4 MiB each.
v1::EncodeRequest MapsOf(int sequences, int32_t id = 3) {
  v1::EncodeRequest request = IdsRequest(std::vector<std::vector<int32_t>>(
      static_cast<size_t>(sequences), std::vector<int32_t>(512, id)));
  request.mutable_outputs()->Clear();
  request.mutable_outputs()->mutable_attentions();
  return request;
}

// ---- Answers ----------------------------------------------------------------------------------

TEST(EncodeChunkedTest, GivesWhatEncodeGivesForEveryKindOfOutput) {
  TestServer server;
  for (const auto dtype : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_FP16, v1::DATA_TYPE_BF16}) {
    v1::EncodeRequest request = EverythingOf({5, 1, 300});
    request.mutable_outputs()->set_dtype(dtype);
    ExpectSameAsEncode(server, request);
  }
  v1::EncodeRequest alone[7];
  alone[0].mutable_outputs()->set_last_hidden_state(true);
  alone[1].mutable_outputs()->set_all_hidden_states(true);
  alone[2].mutable_outputs()->add_hidden_states(0);
  alone[3].mutable_outputs()->mutable_attentions();
  alone[4].mutable_outputs()->mutable_attentions()->add_query_rows(2);
  alone[4].mutable_outputs()->mutable_attentions()->add_query_rows(0);
  alone[4].mutable_outputs()->mutable_attentions()->add_heads(1);
  alone[5].mutable_outputs()->add_pooled();
  alone[6].mutable_outputs()->add_pooled();
  for (v1::EncodeRequest& request : alone) {
    *request.mutable_sequences() = EverythingOf({4, 9}).sequences();
    ExpectSameAsEncode(server, request);
  }
}

TEST(EncodeChunkedTest, ASmallAnswerIsOneStep) {
  TestServer server;
  const Whole whole = ReadWhole(server.encoder(), IdsRequest({{5, 6}, {7}}));
  ASSERT_TRUE(whole.status.ok());
  EXPECT_EQ(whole.pieces, 1);
  EXPECT_EQ(whole.answer.timing().batches(), 1);
  EXPECT_EQ(server.Metric(EndedWith("OK")), 1);
  EXPECT_EQ(server.Metric("encoderd_call_seconds_count{method=\"EncodeChunked\",phase=\"queue\"}"),
            1);
}

// Whatever the steps are: groups of sequences, blocks of one, heads or rows of one map.
TEST(EncodeChunkedTest, GivesTheSameInStepsOfAnySize) {
  v1::EncodeRequest request = EverythingOf({60, 3, 200, 17, 17, 90});
  request.mutable_sequences(2)->add_spans()->set_end(7);
  request.mutable_sequences(2)->add_spans()->set_end(100);
  v1::EncodeRequest rows = request;
  for (const int row : {2, 0, 1}) rows.mutable_outputs()->mutable_attentions()->add_query_rows(row);
  v1::EncodeRequest expected_request[] = {request, rows};
  std::string expected[2];
  {
    TestServer server;
    for (int i = 0; i < 2; ++i) {
      expected_request[i].set_max_response_bytes(64 << 20);
      v1::EncodeResponse response;
      ASSERT_TRUE(server.Encode(expected_request[i], &response).ok());
      expected[i] = Comparable(response);
    }
  }
  for (const int64_t bytes : {40'000, 60'000, 100'000, 300'000, 1'000'000}) {
    TestServer server(StreamsOf(bytes));
    for (int i = 0; i < 2; ++i) {
      const Whole whole = ReadWhole(server.encoder(), expected_request[i]);
      ASSERT_TRUE(whole.status.ok()) << bytes << ": " << whole.status.error_message();
      EXPECT_EQ(Comparable(whole.answer), expected[i]) << bytes;
    }
    server.AwaitMetric(kInflightBytes, 0);
  }
}

TEST(EncodeChunkedTest, EchoesTheRequestsIdInTheHead) {
  TestServer server;
  v1::EncodeRequest request = IdsRequest({{5}});
  request.set_request_id("mine");
  EXPECT_EQ(ReadWhole(server.encoder(), request).answer.request_id(), "mine");
}

// ---- Refusals ---------------------------------------------------------------------------------

TEST(EncodeChunkedTest, RefusesAsEncodeDoes) {
  TestServer server;
  v1::EncodeRequest none = IdsRequest({{1}});
  none.clear_outputs();
  v1::EncodeRequest other = IdsRequest({{1}});
  other.set_model("other");
  v1::EncodeRequest unknown = IdsRequest({{1}});
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddVarint(99, 1);
  for (const v1::EncodeRequest& request : {v1::EncodeRequest(), none, other, unknown,
                                           IdsRequest({{1, -1}, {}}), IdsRequest({{100}})}) {
    const grpc::Status whole = server.Encode(request);
    const grpc::Status chunked = ReadWhole(server.encoder(), request).status;
    EXPECT_EQ(chunked.error_code(), whole.error_code());
    EXPECT_EQ(chunked.error_message(), whole.error_message());
    EXPECT_EQ(ReasonOf(chunked), ReasonOf(whole));
    const auto violations = DetailOf<google::rpc::BadRequest>(whole);
    const auto same = DetailOf<google::rpc::BadRequest>(chunked);
    ASSERT_EQ(same.has_value(), violations.has_value());
    if (same.has_value()) {
      EXPECT_EQ(same->SerializeAsString(), violations->SerializeAsString());
    }
  }
  server.AwaitMetric("encoderd_calls_in_flight", 0);
}

TEST(EncodeChunkedTest, RefusesAHeadThatTheCallerCannotReceive) {
  TestServer server;
  v1::EncodeRequest request = EverythingOf(std::vector<int>(16, 3));
  request.set_max_response_bytes(2000);
  const grpc::Status refused = ReadWhole(server.encoder(), request).status;
  EXPECT_THAT(refused, Refused(grpc::StatusCode::INVALID_ARGUMENT, "ANSWER_TOO_LARGE", "the head"));
  const std::string text = refused.error_message();
  request.set_max_response_bytes(std::stoul(text.substr(text.find("needs ") + 6)));
  EXPECT_TRUE(ReadWhole(server.encoder(), request).status.ok());
}

TEST(EncodeChunkedTest, RefusesWhatCannotBeHeldAtOnce) {
  TestServer server(StreamsOf(20'000));
  // 500 tokens: 16 kB of a hidden state, and twice as much to hand on.
  v1::EncodeRequest request = EverythingOf({500});
  EXPECT_THAT(ReadWhole(server.encoder(), request).status,
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "ANSWER_TOO_LARGE", "one block"));
  EXPECT_TRUE(ReadWhole(server.encoder(), EverythingOf({100, 100, 100})).status.ok());
}

TEST(EncodeChunkedTest, TakesTheMemoryOfItsWindowAlone) {
  Options options = StreamsOf(1'000'000);
  options.max_inflight_bytes = 1'100'000;
  TestServer server(options);
  server.engine().latch().Close();
  Stream first(server.encoder(), MapsOf(4));  // 16 MiB
  server.engine().latch().AwaitWaiting(1);
  EXPECT_LE(server.Metric(kInflightBytes), 1'100'000);
  EXPECT_GE(server.Metric(kInflightBytes), 900'000);
  const auto other = v1::EncoderService::NewStub(server.Connect());
  EXPECT_THAT(ReadWhole(*other, MapsOf(1)).status,
              Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "MEMORY_BUDGET", ""));
  server.engine().latch().Open();
  EXPECT_TRUE(first.Finish().ok());
  server.AwaitMetric(kInflightBytes, 0);
}

TEST(EncodeChunkedTest, NoMemoryForTheFirstStepIsOverload) {
  TestServer server;
  for (const auto memory : {FakeEngine::Memory::kExhausted, FakeEngine::Memory::kThrows}) {
    server.engine().SetMemory(memory);
    EXPECT_THAT(ReadWhole(server.encoder(), IdsRequest({{1}})).status,
                Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for"));
  }
  server.AwaitMetric(kInflightBytes, 0);
}

// ---- In the middle ----------------------------------------------------------------------------

// What a later sequence does to the stream when the head and some pieces have been sent.
grpc::Status StatusAfterPieces(int32_t bad_id) {
  TestServer server(StreamsOf(1'000'000));
  v1::EncodeRequest request = MapsOf(3);
  request.mutable_sequences(2)->set_input_ids(0, bad_id);
  const Whole whole = ReadWhole(server.encoder(), request);
  EXPECT_GE(whole.pieces, 2);
  server.AwaitMetric(kInflightBytes, 0);
  server.AwaitMetric("encoderd_calls_in_flight", 0);
  EXPECT_EQ(server.Metric(EndedWith("INTERNAL")), 1);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
  return whole.status;
}

TEST(MidStreamTest, ANonFiniteResultEndsTheStreamWithItsStatus) {
  EXPECT_THAT(StatusAfterPieces(FakeEngine::kNonFinite),
              Refused(grpc::StatusCode::INTERNAL, "NON_FINITE_RESULT", "NaN"));
}

TEST(MidStreamTest, AFailureOfTheEngineEndsTheStreamWithItsStatus) {
  EXPECT_THAT(StatusAfterPieces(FakeEngine::kFailsBatch),
              Refused(grpc::StatusCode::INTERNAL, "ENGINE_FAILURE", "a kernel failed"));
}

TEST(MidStreamTest, NoMemoryForALaterStepEndsTheStream) {
  TestServer server(StreamsOf(1'000'000));
  server.engine().latch().Close();
  Stream stream(server.encoder(), MapsOf(3));
  server.engine().latch().AwaitWaiting(1);
  server.engine().SetMemory(FakeEngine::Memory::kThrows);
  server.engine().latch().Open();
  EXPECT_THAT(stream.Finish(),
              Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for"));
  server.AwaitMetric(kInflightBytes, 0);
}

TEST(MidStreamTest, ACallerWhoCancelsLeavesNothingBehind) {
  TestServer server(StreamsOf(1'000'000));
  for (int reads = 0; reads < 20; ++reads) {
    Stream stream(server.encoder(), MapsOf(8));
    v1::EncodeChunk chunk;
    for (int i = 0; i < reads; ++i) ASSERT_TRUE(stream.Read(chunk));
    stream.Cancel();
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  server.AwaitMetric(kInflightBytes, 0);
  server.AwaitMetric("encoderd_calls_in_flight", 0);
  server.AwaitMetric("encoderd_queue_calls", 0);
  EXPECT_EQ(server.Metric(EndedWith("CANCELLED")), 20);
}

TEST(MidStreamTest, TheDeadlineIsThatOfTheWholeStream) {
  TestServer server(StreamsOf(1'000'000));
  server.engine().latch().Close();
  Stream stream(server.encoder(), MapsOf(3), absl::Milliseconds(100));
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.engine().latch().Open();
  server.AwaitMetric(EndedWith("DEADLINE_EXCEEDED"), 1);
  server.AwaitMetric(kInflightBytes, 0);
}

TEST(MidStreamTest, TheDefaultDeadlineEndsAStreamThatIsComputedAndOneThatIsNotRead) {
  Options options = StreamsOf(1'000'000);
  options.default_deadline = absl::Milliseconds(200);
  TestServer server(options);
  server.engine().latch().Close();
  Stream computed(server.encoder(), MapsOf(3));
  EXPECT_THAT(computed.Finish(),
              Refused(grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE", "the deadline passed"));
  server.engine().latch().Open();
  server.AwaitMetric(kInflightBytes, 0);

  Stream unread(server.encoder(), MapsOf(60));  // 240 MB: more than any window takes
  server.AwaitMetric(EndedWith("DEADLINE_EXCEEDED"), 2);
  server.AwaitMetric(kInflightBytes, 0);
}

// ---- Readers who do not read ------------------------------------------------------------------

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Sequences that the engine has run, once it runs no more. No event tells so: a step may still be
// with gRPC, which other calls overtake.
int64_t RunWhenStill(TestServer& server) {
  int64_t run = -1;
  while (run != server.engine().sequences_run()) {
    run = server.engine().sequences_run();
    absl::SleepFor(absl::Milliseconds(200));
  }
  return run;
}

TEST(SlowReaderTest, StopsTheComputingOfItsOwnStream) {
  TestServer server(StreamsOf(1'000'000));
  const auto channel = server.Connect();
  const auto encoder = v1::EncoderService::NewStub(channel);
  const int64_t before = server.engine().sequences_run();
  Stream stream(*encoder, MapsOf(200));  // 800 MiB
  const int64_t run = RunWhenStill(server);
  EXPECT_LT(run - before, 200 * 8 / 4);  // a step is a head of a map: 8 for each sequence
  const int64_t still = server.engine().sequences_run();
  v1::EncodeChunk chunk;
  while (server.engine().sequences_run() < still + 8) ASSERT_TRUE(stream.Read(chunk));
}

TEST(SlowReaderTest, IsNotCountedAsComputing) {
  FakeClock clock;
  TestServer server(StreamsOf(1'000'000), clock);
  server.engine().latch().Close();
  Stream stream(server.encoder(), MapsOf(60));
  server.engine().latch().AwaitWaiting(1);
  clock.Advance(absl::Milliseconds(30));
  server.engine().latch().Open();
  RunWhenStill(server);
  clock.Advance(absl::Seconds(10));
  v1::EncodeChunk chunk;
  while (stream.Read(chunk)) continue;
  ASSERT_TRUE(stream.Finish().ok());
  ASSERT_TRUE(chunk.has_timing());
  EXPECT_EQ(chunk.timing().compute_us(), 30'000);
}

// The figure of the README: 16 readers hold 16 windows, and the server serves on.
TEST(SlowReaderTest, SixteenHoldNoMoreThanTheirWindowsAndOthersAreServed) {
  Options options = StreamsOf(4 << 20);
  TestServer server(options);
  std::vector<std::unique_ptr<v1::EncoderService::Stub>> encoders;
  std::vector<std::unique_ptr<Stream>> streams;
  const int64_t before = ResidentBytes();
  for (int i = 0; i < 16; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    encoders.push_back(v1::EncoderService::NewStub(server.Connect(arguments)));
    streams.push_back(std::make_unique<Stream>(*encoders.back(), MapsOf(64)));  // 256 MiB each
  }
  RunWhenStill(server);
  const double stated = 16 * ((4 << 20) + 2 * 100'000);
  EXPECT_LE(server.Metric(kInflightBytes), stated);
  EXPECT_LT(static_cast<double>(ResidentBytes() - before), stated + (64 << 20));
  for (int i = 0; i < 50; ++i) {
    const absl::Time start = absl::Now();
    EXPECT_TRUE(server.Encode(IdsRequest({{1, 2}})).ok());
    EXPECT_LT(absl::Now() - start, absl::Seconds(1));
  }
  for (auto& stream : streams) stream->Cancel();
  streams.clear();
  server.AwaitMetric(kInflightBytes, 0);
  EXPECT_LT(ResidentBytes() - before, 96 << 20);
}

TEST(SlowReaderTest, AConnectionMayHoldAQuarterOfTheMemory) {
  Options options = StreamsOf(1'000'000);
  options.max_inflight_bytes = 18'000'000;  // four streams of 1.1 MB fit into a quarter
  TestServer server(options);
  {
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 4; ++i) {
      streams.push_back(std::make_unique<Stream>(server.encoder(), MapsOf(60)));
      v1::EncodeChunk head;
      ASSERT_TRUE(streams.back()->Read(head));
    }
    EXPECT_THAT(ReadWhole(server.encoder(), MapsOf(1)).status,
                Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "CONNECTION_BUSY", "read on"));
    const auto other = v1::EncoderService::NewStub(server.Connect());
    EXPECT_TRUE(ReadWhole(*other, MapsOf(1)).status.ok());
  }
  server.AwaitMetric(kInflightBytes, 0);
  server.AwaitMetric("encoderd_calls_in_flight", 0);
  EXPECT_TRUE(ReadWhole(server.encoder(), MapsOf(1)).status.ok());
}

// Whichever gRPC tells first: that the message under way has failed, or that the caller went.
TEST(SlowReaderTest, AStepIsGivenUpWhenItsReaderGoes) {
  TestServer server(StreamsOf(1'000'000));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto encoder = v1::EncoderService::NewStub(server.Connect(arguments));
  for (int gone = 1; gone <= 5; ++gone) {
    Stream stream(*encoder, MapsOf(200));
    RunWhenStill(server);
    server.engine().latch().Close();
    v1::EncodeChunk chunk;
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(stream.Read(chunk));  // the head, and room for a step
    server.engine().latch().AwaitWaiting(1);
    stream.Cancel();
    server.AwaitMetric(EndedWith("CANCELLED"), gone);
    server.engine().latch().Open();
  }
  server.AwaitMetric(kInflightBytes, 0);
}

TEST(SlowReaderTest, ADeadlineThatPassesIsCountedAsOne) {
  Options options = StreamsOf(1'000'000);
  options.predict_deadlines = false;  // else a slow machine refuses some at once
  TestServer server(options);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 20; ++i) {
    streams.push_back(
        std::make_unique<Stream>(server.encoder(), MapsOf(60), absl::Milliseconds(300)));
  }
  server.AwaitMetric(EndedWith("DEADLINE_EXCEEDED"), 20);
}

// ---- Size -------------------------------------------------------------------------------------

TEST(LargeAnswerTest, HundredsOfMegabytesTakeNoMoreMemoryThanTheWindow) {
  TestServer server(StreamsOf(256 << 20));
  const v1::EncodeRequest request = MapsOf(100);  // 400 MiB
  const int64_t before = ResidentBytes();
  int64_t most_resident = 0, bytes = 0;
  double most_in_flight = 0;
  Stream stream(server.encoder(), request);
  for (v1::EncodeChunk chunk; stream.Read(chunk);) {
    bytes += static_cast<int64_t>(chunk.piece().data().size());
    most_resident = std::max(most_resident, ResidentBytes() - before);
    most_in_flight = std::max(most_in_flight, server.Metric(kInflightBytes));
  }
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(bytes, int64_t{100} * 2 * 2 * 512 * 512 * 4);
  EXPECT_GT(most_in_flight, 0);
  EXPECT_LE(most_in_flight, kStreamBytes + (1 << 20));  // with the request, parsed and not
  // The client's heap is in it, which takes 60 to 115 MiB: far from the answer all the same.
  EXPECT_LT(most_resident, 200 << 20);
  server.AwaitMetric(kInflightBytes, 0);
}

// ---- The end of the server --------------------------------------------------------------------

TEST(DrainTest, AnOpenStreamIsFinishedAndNewOnesGoElsewhere) {
  TestServer server(StreamsOf(1'000'000));
  auto stream = std::make_unique<Stream>(server.encoder(), MapsOf(100));  // 400 MiB
  v1::EncodeChunk chunk;
  client::ChunkAssembler assembler(kNoLimit);
  ASSERT_TRUE(stream->Read(chunk));
  ASSERT_TRUE(assembler.Add(std::move(chunk)).ok());
  std::thread draining([&] { EXPECT_TRUE(server.server().Drain()); });
  server.AwaitMetric("encoderd_ready", 0);
  grpc::Status late;
  do {
    late = ReadWhole(server.encoder(), IdsRequest({{1}})).status;
  } while (late.ok());
  EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE) << late.error_message();
  while (stream->Read(chunk)) ASSERT_TRUE(assembler.Add(std::move(chunk)).ok());
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish().error_message();
  EXPECT_TRUE(assembler.Take().ok());
  draining.join();
}

TEST(DrainTest, AStreamThatNobodyReadsEndsWithTheTimeout) {
  Options options = StreamsOf(1'000'000);
  options.drain_timeout = absl::Milliseconds(300);
  TestServer server(options);
  Stream stream(server.encoder(), MapsOf(100));
  RunWhenStill(server);
  const absl::Time start = absl::Now();
  EXPECT_FALSE(server.server().Drain());
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  server.AwaitMetric(EndedWith("UNAVAILABLE"), 1);
}

}  // namespace
}  // namespace encoderd
