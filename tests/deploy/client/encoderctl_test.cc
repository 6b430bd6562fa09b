// Goal: every command of encoderctl, from the words typed to what is printed and the exit code.
// Method: the whole program in this process, against a server in this process that keeps what it
// was asked and answers what it is told.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "deploy/client/command.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace encoderd::client {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::Tensor Counting(std::vector<int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t length : shape) elements *= length;
  std::vector<float> values(static_cast<size_t>(elements));
  std::iota(values.begin(), values.end(), 0.25f);
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_FP32);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

class FakeEncoder final : public v1::EncoderService::Service {
 public:
  std::function<grpc::Status(const v1::EncodeRequest&, v1::EncodeResponse&)> encode;
  v1::GetModelResponse model;
  v1::EncodeRequest request;  // the last one

 private:
  grpc::Status Encode(grpc::ServerContext*, const v1::EncodeRequest* got,
                      v1::EncodeResponse* response) override {
    {
      const std::scoped_lock lock(mutex_);
      request = *got;
    }
    return encode(*got, *response);
  }
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*,
                        v1::GetModelResponse* response) override {
    *response = model;
    return grpc::Status::OK;
  }

  std::mutex mutex_;  // a load has many calls at a time
};

class FakeHealth final : public grpc::health::v1::Health::Service {
 public:
  HealthCheckResponse::ServingStatus status = HealthCheckResponse::SERVING;
  std::vector<HealthCheckResponse::ServingStatus> watched;
  bool ends_watches = false;
  std::string service;

 private:
  grpc::Status Check(grpc::ServerContext*, const HealthCheckRequest* request,
                     HealthCheckResponse* response) override {
    service = request->service();
    if (service == "unknown") return {grpc::StatusCode::NOT_FOUND, "no such service"};
    response->set_status(status);
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context, const HealthCheckRequest*,
                     grpc::ServerWriter<HealthCheckResponse>* writer) override {
    for (const HealthCheckResponse::ServingStatus next : watched) {
      HealthCheckResponse response;
      response.set_status(next);
      writer->Write(response);
    }
    // A watch ends when the caller goes; the deadline of the tests is the bound.
    std::promise<void> never;
    const std::future<void> silence = never.get_future();
    while (!ends_watches && !context->IsCancelled()) silence.wait_for(std::chrono::milliseconds(1));
    return grpc::Status::OK;
  }
};

struct Result {
  ExitCode code;
  std::string out;
  std::string err;
};

class EncoderctlTest : public testing::Test {
 protected:
  EncoderctlTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&encoder_);
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    encoder_.model.set_name("tiny");
    encoder_.model.set_vocab_size(10);
    encoder_.model.set_max_sequence_tokens(512);
    encoder_.model.set_max_request_sequences(8);
    encoder_.model.set_max_request_tokens(4096);
    encoder_.model.add_outputs("pooled");
    encoder_.model.add_outputs("logits");
    encoder_.encode = [](const v1::EncodeRequest&, v1::EncodeResponse& response) {
      response.add_token_offsets(0);
      return grpc::Status::OK;
    };
  }
  ~EncoderctlTest() override { server_->Shutdown(); }

  // Runs the program with the server's address.
  Result Run(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.push_back(absl::StrCat("--address=127.0.0.1:", port_));
    return RunWithoutServer(arguments, input);
  }

  static Result RunWithoutServer(const std::vector<std::string>& arguments,
                                 const std::string& input = "") {
    const absl::FlagSaver saver;  // a run leaves no flag behind for the next
    std::istringstream in(input);
    std::ostringstream out;
    std::ostringstream err;
    const ExitCode code = RunEncoderctl(arguments, {.in = in, .out = out, .err = err});
    return {code, out.str(), err.str()};
  }

  int port_ = 0;
  FakeEncoder encoder_;
  FakeHealth health_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(EncoderctlTest, ExplainsItselfAndEveryCommand) {
  const Result overview = RunWithoutServer({"--help"});
  EXPECT_EQ(overview.code, kExitOk);
  for (const char* name : {"info", "encode", "attention", "load", "health"}) {
    EXPECT_THAT(overview.out, HasSubstr(absl::StrCat("\n  ", name)));
    const Result help = RunWithoutServer({name, "--help"});
    EXPECT_EQ(help.code, kExitOk);
    EXPECT_THAT(help.out, AllOf(HasSubstr(absl::StrCat("usage: encoderctl ", name)),
                                HasSubstr(absl::StrCat("\n  encoderctl ", name)),
                                HasSubstr("--address"), HasSubstr("Exit codes")));
    for (const absl::string_view line : absl::StrSplit(help.out, '\n')) {
      EXPECT_LE(line.size(), 102u) << line;  // bytes: an ellipsis has three
    }
  }
}

TEST_F(EncoderctlTest, RefusesCommandLinesItDoesNotUnderstand) {
  const std::pair<std::vector<std::string>, const char*> lines[] = {
      {{}, "expected a command"},
      {{"embed"}, "got embed"},
      {{"info", "--no_such_flag"}, "no_such_flag"},
      {{"info", "--one_hot=3"}, "--one_hot: not a flag of info"},
      {{"info", "extra"}, "expected no argument, got extra"},
      {{"health", "a", "b"}, "at most one service"},
      {{"encode", "1", "--timeout=0s"}, "--timeout: expected more than 0"},
      {{"encode", "1", "--timeout=soon"}, "timeout"},
      {{"encode", "1", "--max_response_bytes=0"}, "--max_response_bytes: expected 1.."},
      {{"encode", "1", "--values=-1"}, "--values"},
      {{"encode", "1", "--one_hot=-1"}, "--one_hot"},
      {{"encode", "x"}, "sequence 0: expected token ids"},
      {{"attention", "1", "2"}, "expected one sequence, got 2"},
      {{"attention", "1", "--labels=a", "--vocab=b"}, "expected one of them"},
      {{"load"}, "--rate: expected more than 0"},
      {{"load", "--rate=1", "--timeout=1s"}, "--timeout: not a flag of load"},
      {{"load", "--rate=100001"}, "--rate: expected more than 0, up to 100000"},
      {{"load", "--rate=1", "--arrival=often"}, "--arrival: expected poisson, even or saturate"},
      {{"load", "--rate=1", "--arrival=saturate"}, "--rate: expected none"},
      {{"load", "--rate=1", "--lengths=long"}, "--lengths: expected fixed:N"},
      {{"load", "--rate=1", "--outstanding=65537"}, "--outstanding: expected 1 to 65536"},
      {{"load", "--rate=1", "--figure=a.png"}, "--figure: expected together with --sweep"},
      {{"load", "--rate=1", "--sweep"}, "--sweep: expected neither a rate"},
      {{"load", "--sweep", "--spike=2"}, "nor a spike"},
      {{"load", "--sweep", "--relative_rate=1"}, "--sweep: expected neither a rate"},
      {{"load", "--rate=1", "--relative_rate=1"}, "--relative_rate: expected more than 0"},
      {{"load", "--relative_rate=-1"}, "--relative_rate: expected more than 0"},
      {{"load", "--rate=1", "--spike=0"}, "--spike: expected more than 0, up to 1000, got 0"},
      {{"load", "--sweep", "--p99_bound=1001ms"}, "--p99_bound: expected more than 0, up to"},
      {{"load", "--sweep", "--p99_bound=0s"}, "--p99_bound"},
      {{"load", "--sweep", "--max_runs=0"}, "--max_runs: expected 1 to 100, got 0"},
      {{"load", "--sweep", "--max_runs=101"}, "--max_runs"},
      {{"load", "--sweep", "--tries=0"}, "--tries: expected 1 to 10, got 0"},
      {{"load", "--sweep", "--tries=11"}, "--tries"},
  };
  for (const auto& [arguments, message] : lines) {
    const Result result = RunWithoutServer(arguments);
    EXPECT_EQ(result.code, kExitUsage) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST_F(EncoderctlTest, ReportsEveryFaultOfACommandLine) {
  const Result result = RunWithoutServer({"info", "--bad_a", "--bad_b", "--values=3"});
  EXPECT_THAT(result.err, AllOf(HasSubstr("bad_a"), HasSubstr("bad_b"), HasSubstr("--values")));
}

TEST_F(EncoderctlTest, PrintsTheModel) {
  v1::PrecisionTrial& trial = *encoder_.model.add_precision_trials();
  trial.set_precision("bf16");
  trial.set_error(0.25);
  trial.set_tokens_per_second(9000.5);
  const Result text = Run({"info"});
  EXPECT_EQ(text.code, kExitOk) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("tiny"), HasSubstr("pooled, logits"), HasSubstr("512"),
                              HasSubstr("precision=bf16 error=0.25 tokens_per_second=9000.5\n")));
  const auto json = nlohmann::json::parse(Run({"info", "--json"}).out);
  EXPECT_EQ(json["name"], "tiny");
  EXPECT_EQ(json["outputs"], nlohmann::json({"pooled", "logits"}));
  EXPECT_EQ(static_cast<int>(json.size()), v1::GetModelResponse::descriptor()->field_count());
}

TEST_F(EncoderctlTest, SendsWhatWasTyped) {
  Run({"encode", "1,2", "[3]", "--logits", "--pooled=mean", "--bulk", "--request_id=r", "--model=m",
       "--max_response_bytes=1000"});
  const v1::EncodeRequest& request = encoder_.request;
  ASSERT_EQ(request.sequences_size(), 2);
  EXPECT_THAT(request.sequences(0).input_ids(), ElementsAre(1, 2));
  EXPECT_THAT(request.sequences(1).input_ids(), ElementsAre(3));
  EXPECT_TRUE(request.outputs().logits());
  EXPECT_EQ(request.outputs().pooled(0).kind(), v1::POOLING_MEAN);
  EXPECT_EQ(request.priority(), v1::PRIORITY_BULK);
  EXPECT_EQ(request.request_id(), "r");
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.max_response_bytes(), 1000u);

  Run({"encode", "--logits", "--one_hot=4"}, "3 0\n");
  EXPECT_THAT(encoder_.request.sequences(0).inputs_embeds().shape(), ElementsAre(2, 4));
  EXPECT_THAT(encoder_.request.sequences(0).input_ids(), IsEmpty());
}

TEST_F(EncoderctlTest, PrintsAnswersForPeopleAndForPrograms) {
  encoder_.encode = [](const v1::EncodeRequest&, v1::EncodeResponse& response) {
    for (const uint32_t offset : {0, 2, 3}) response.add_token_offsets(offset);
    *response.mutable_last_hidden_state() = Counting({3, 8});
    *response.add_pooled() = Counting({2, 4});
    response.set_numerics_id("numerics\x1b");
    response.mutable_timing()->set_compute_us(1500);
    return grpc::Status::OK;
  };
  const Result text = Run({"encode", "1 2", "3", "--last_hidden_state", "--values=2"});
  EXPECT_EQ(text.code, kExitOk) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("2 sequences, 3 tokens"), HasSubstr("compute 1.50 ms"),
                              HasSubstr("last_hidden_state  FP32 [3, 8]\n"
                                        "  sequence 0, 2 tokens:   0.25000   1.25000 …\n"
                                        "  sequence 1, 1 token:  16.25000  17.25000 …\n"),
                              HasSubstr("pooled[0]  FP32 [2, 4]\n  row 0:"),
                              HasSubstr("numerics\\033"), Not(HasSubstr("\x1b"))));
  const auto json = nlohmann::json::parse(Run({"encode", "1 2", "3", "--logits", "--json"}).out);
  EXPECT_EQ(json["token_offsets"], nlohmann::json({0, 2, 3}));
  EXPECT_EQ(json["last_hidden_state"]["shape"], nlohmann::json({3, 8}));
  EXPECT_EQ(json["last_hidden_state"]["data"][23], 23.25);
  EXPECT_EQ(json["timing"]["compute_us"], 1500);
  EXPECT_FALSE(json.contains("logits"));
}

TEST_F(EncoderctlTest, NamesTheLabelOfTheLargestLogit) {
  int64_t rows = 3;
  encoder_.encode = [&rows](const v1::EncodeRequest&, v1::EncodeResponse& response) {
    for (const uint32_t offset : {0, 2, 3}) response.add_token_offsets(offset);
    *response.mutable_logits() = Counting({rows, 2});
    return grpc::Status::OK;
  };
  encoder_.model.add_labels("no");
  encoder_.model.add_labels("yes");
  EXPECT_THAT(Run({"encode", "1 2", "3", "--logits"}).out,
              HasSubstr("  sequence 0, 2 tokens:   0.25000   1.25000  yes\n"));
  rows = 2;
  EXPECT_THAT(Run({"encode", "1 2", "3", "--logits"}).out,
              HasSubstr("logits  FP32 [2, 2]\n  sequence 0:   0.25000   1.25000  yes\n"));
}

TEST_F(EncoderctlTest, PrintsContactsBySequence) {
  encoder_.encode = [](const v1::EncodeRequest&, v1::EncodeResponse& response) {
    for (const uint32_t offset : {0, 4, 5}) response.add_token_offsets(offset);
    *response.add_contacts() = Counting({2, 2});
    *response.add_contacts() = Counting({0, 0});
    return grpc::Status::OK;
  };
  EXPECT_THAT(Run({"encode", "1 2 3 4", "5", "--contacts"}).out,
              HasSubstr("contacts, sequence 0  FP32 [2, 2]\n"
                        "  row 0:   0.25000   1.25000\n  row 1:   2.25000   3.25000\n"
                        "contacts, sequence 1  FP32 [0, 0]\n"));
  EXPECT_TRUE(encoder_.request.outputs().contacts());
  const auto json = nlohmann::json::parse(Run({"encode", "1 2", "--contacts", "--json"}).out);
  EXPECT_EQ(json["contacts"][0]["data"], nlohmann::json({0.25, 1.25, 2.25, 3.25}));
  EXPECT_EQ(json["contacts"][1]["shape"], nlohmann::json({0, 0}));
}

TEST_F(EncoderctlTest, RefusesAnswersThatContradictThemselves) {
  encoder_.encode = [](const v1::EncodeRequest&, v1::EncodeResponse& response) {
    response.add_token_offsets(0);
    *response.mutable_logits() = Counting({2, 2});
    response.mutable_logits()->set_shape(0, int64_t{1} << 62);
    return grpc::Status::OK;
  };
  const Result result = Run({"encode", "1", "--logits"});
  EXPECT_EQ(result.code, kExitInternal);
  EXPECT_THAT(result.err, HasSubstr("logits: expected data of shape"));
}

TEST_F(EncoderctlTest, ExplainsRefusals) {
  encoder_.encode = [](const v1::EncodeRequest&, v1::EncodeResponse&) {
    google::rpc::BadRequest bad;
    auto& violation = *bad.add_field_violations();
    violation.set_field("sequences[0].input_ids[0]");
    violation.set_description("expected 0..9, got 10");
    google::rpc::Status status;
    status.add_details()->PackFrom(bad);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "bad input",
                        status.SerializeAsString());
  };
  const Result result = Run({"encode", "10", "--logits"});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_THAT(result.err, AllOf(HasSubstr("encoderctl encode: INVALID_ARGUMENT: 1 fault"),
                                HasSubstr("sequences[0].input_ids[0]: expected 0..9, got 10"),
                                HasSubstr("next: ")));
}

TEST_F(EncoderctlTest, GivesUpAtTheTimeout) {
  std::promise<void> release;
  encoder_.encode = [&](const v1::EncodeRequest&, v1::EncodeResponse&) {
    release.get_future().wait();
    return grpc::Status::OK;
  };
  const Result result = Run({"encode", "1", "--logits", "--timeout=50ms"});
  release.set_value();
  EXPECT_EQ(result.code, kExitTryAgain);
  EXPECT_THAT(result.err, HasSubstr("--timeout"));
}

TEST_F(EncoderctlTest, SaysThatNobodyListens) {
  server_->Shutdown();
  const Result result = Run({"info"});
  EXPECT_EQ(result.code, kExitUnavailable);
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("is encoderd running at 127.0.0.1:", port_)));
}

TEST_F(EncoderctlTest, DrawsTheMapsOfASequence) {
  encoder_.encode = [](const v1::EncodeRequest& request, v1::EncodeResponse& response) {
    response.add_token_offsets(0);
    response.add_token_offsets(3);
    for (const int32_t layer : request.outputs().attentions().layers()) {
      v1::AttentionMap& map = *response.add_attentions();
      map.set_layer(layer);
      map.add_heads(0);
      map.add_heads(1);
      *map.mutable_tensor() = Counting({2, 3, 3});
    }
    return grpc::Status::OK;
  };
  const std::string path = testing::TempDir() + "/maps.png";
  const Result result =
      Run({"attention", "3,1,2", "--one_hot=4", "--layers=0,1", "--output=" + path});
  EXPECT_EQ(result.code, kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("4 maps of 3 x 3"));
  EXPECT_THAT(encoder_.request.sequences(0).inputs_embeds().shape(), ElementsAre(3, 4));
  EXPECT_GT(std::filesystem::file_size(path), 1000u);

  const Result nowhere =
      Run({"attention", "3,1,2", "--layers=0", "--output=/no/such/folder/maps.png"});
  EXPECT_EQ(nowhere.code, kExitCannotWrite);
}

TEST_F(EncoderctlTest, RefusesMapsThatDoNotBelongToTheSequence) {
  encoder_.encode = [](const v1::EncodeRequest&, v1::EncodeResponse& response) {
    response.add_token_offsets(0);
    response.add_token_offsets(2);
    v1::AttentionMap& map = *response.add_attentions();
    map.add_heads(0);
    map.add_query_rows(7);
    *map.mutable_tensor() = Counting({1, 1, 2});
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"attention", "1,2,3"}).code, kExitInternal);  // 2 tokens in the answer
  EXPECT_EQ(Run({"attention", "1,2"}).code, kExitInternal);    // row 7 of 2
}

// ---- load -------------------------------------------------------------------------------------

TEST_F(EncoderctlTest, MeasuresALoad) {
  const Result text = Run({"load", "--rate=100", "--arrival=even", "--lengths=fixed:3", "--bulk",
                           "--warm_up=0s", "--duration=200ms"});
  EXPECT_EQ(text.code, kExitOk) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("tiny at 127.0.0.1:"), HasSubstr("codes: OK 20\n")));
  EXPECT_THAT(encoder_.request.sequences(0).input_ids(), testing::SizeIs(3));
  EXPECT_EQ(encoder_.request.outputs().pooled(0).kind(), v1::POOLING_UNSPECIFIED);
  EXPECT_EQ(encoder_.request.priority(), v1::PRIORITY_BULK);

  const Result json = Run({"load", "--rate=100", "--arrival=even", "--lengths=fixed:3", "--logits",
                           "--sequences=2", "--duration=200ms", "--warm_up=0s", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["codes"], nlohmann::json({{"OK", 20}}));
  EXPECT_EQ(encoder_.request.sequences_size(), 2);
  EXPECT_TRUE(encoder_.request.outputs().logits());
  EXPECT_THAT(encoder_.request.outputs().pooled(), IsEmpty());
}

TEST_F(EncoderctlTest, MeasuresTheOfflineRateForALoadRelativeToIt) {
  const Result json = Run({"load", "--relative_rate=0.25", "--arrival=even", "--lengths=fixed:3",
                           "--outstanding=4", "--warm_up=0s", "--duration=300ms", "--json"});
  EXPECT_EQ(json.code, kExitOk) << json.err;
  EXPECT_THAT(json.err, HasSubstr("offline rate, 4 calls in flight"));
  EXPECT_THAT(json.err, HasSubstr(" calls/s; 0.25 times that\n"));
  EXPECT_GT(nlohmann::json::parse(json.out)["rate"].get<double>(), 0);
}

TEST_F(EncoderctlTest, FailsWhereNoCallOfALoadWasAnswered) {
  encoder_.encode = [](const v1::EncodeRequest&, v1::EncodeResponse&) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
  };
  const Result result =
      Run({"load", "--rate=100", "--lengths=fixed:3", "--warm_up=0s", "--duration=100ms"});
  EXPECT_EQ(result.code, kExitTryAgain);
  EXPECT_THAT(result.out, HasSubstr("codes: RESOURCE_EXHAUSTED"));
  const Result none = Run({"load", "--rate=0.001", "--warm_up=0s", "--duration=1ms"});
  EXPECT_EQ(none.code, kExitUsage);
  EXPECT_THAT(none.err, HasSubstr("expected time for one call at least"));
}

TEST_F(EncoderctlTest, SweepsAndDraws) {
  const std::string path = testing::TempDir() + "/sweep.png";
  const std::vector<std::string> sweep = {
      "load",         "--sweep",         "--lengths=short", "--warm_up=0s", "--duration=40ms",
      "--max_runs=2", "--outstanding=1", "--figure=" + path};
  const Result text = Run(sweep);
  EXPECT_EQ(text.code, kExitOk) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("offline rate: "), HasSubstr("p99 in bound")));
  EXPECT_THAT(text.err, HasSubstr("wrote " + path));
  EXPECT_GT(std::filesystem::file_size(path), 1000u);
  std::vector<std::string> nowhere = sweep;
  nowhere.back() = "--figure=/no/such/folder/a.png";
  EXPECT_EQ(Run(nowhere).code, kExitCannotWrite);
  std::vector<std::string> as_json = sweep;
  as_json.push_back("--json");
  EXPECT_EQ(nlohmann::json::parse(Run(as_json).out)["runs"].size(), 2u);
}

TEST_F(EncoderctlTest, TriesAgainWhatWasRefused) {
  int calls = 0;
  encoder_.encode = [&](const v1::EncodeRequest&, v1::EncodeResponse& response) {
    if (++calls == 1) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
    response.add_token_offsets(0);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"encode", "1", "--logits"}).code, kExitOk);
  EXPECT_EQ(calls, 2);
}

TEST_F(EncoderctlTest, TellsHealthByItsExitCode) {
  EXPECT_EQ(Run({"health"}).code, kExitOk);
  EXPECT_THAT(health_.service, IsEmpty());
  EXPECT_EQ(Run({"health", "liveness"}).out, "SERVING\n");
  EXPECT_EQ(health_.service, "liveness");
  health_.status = HealthCheckResponse::NOT_SERVING;
  const Result draining = Run({"health"});
  EXPECT_EQ(draining.code, kExitNotServing);
  EXPECT_EQ(draining.out, "NOT_SERVING\n");
  EXPECT_EQ(Run({"health", "unknown"}).code, kExitUsage);
}

TEST_F(EncoderctlTest, WaitsForHealth) {
  health_.watched = {HealthCheckResponse::NOT_SERVING, HealthCheckResponse::SERVING};
  EXPECT_EQ(Run({"health", "--wait=20s"}).code, kExitOk);
  health_.watched = {HealthCheckResponse::NOT_SERVING};
  const Result late = Run({"health", "--wait=50ms"});
  EXPECT_EQ(late.code, kExitTryAgain);
  EXPECT_THAT(late.err, HasSubstr("within 50ms"));
  health_.ends_watches = true;
  EXPECT_EQ(Run({"health", "--wait=20s"}).code, kExitUnavailable);
}

}  // namespace
}  // namespace encoderd::client
