// Goal: the program as it is run: flags, exit codes, signals, and models that answer over a socket.
// Method: the real binary on tiny models, observed from outside.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "engine/accuracy.h"
#include "engine/ops/runtime.h"
#include "tests/engine/random_model.h"
#include "tests/integration/encoderd_process.h"

namespace encoderd {
namespace {

namespace fs = std::filesystem;
using grpc::health::v1::HealthCheckResponse;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kBert = ENCODERD_SOURCE_DIR "/tests/goldens/bert/model";

// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "encoderd_test_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

void Replace(const fs::path& file, const std::string& from, const std::string& to) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::string changed = text.str();
  changed.replace(changed.find(from), from.size(), to);
  std::ofstream(file) << changed;
}

v1::EncodeRequest PooledRequest(const std::vector<int32_t>& ids) {
  v1::EncodeRequest request;
  request.add_sequences()->mutable_input_ids()->Assign(ids.begin(), ids.end());
  request.mutable_outputs()->set_last_hidden_state(true);
  request.mutable_outputs()->add_pooled();
  return request;
}

// ---- Child processes ----------------------------------------------------------------------------

TEST(ProcessTest, AChildEndsWithAParentThatIsKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    close(ends[0]);
    Process child("/bin/sh", {"-c", "echo started; exec sleep 60"});
    child.AwaitLine("started");
    raise(SIGKILL);
  }
  close(ends[1]);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  // Nobody has the other end open any more.
  pollfd pipe_closed = {.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&pipe_closed, 1, 10'000), 1);
  close(ends[0]);
}

// ---- Commands that end by themselves ----------------------------------------------------------

TEST(CommandTest, HelpNamesEveryFlagAndExitCode) {
  Process process(ENCODERD_BINARY, {"--help"});
  EXPECT_EQ(process.Wait(), 0);
  for (const char* word : {"--model_dir",
                           "--listen",
                           "--metrics_listen",
                           "--health_listen",
                           "--plaintext",
                           "--tls_cert_file",
                           "--tls_key_file",
                           "--tls_client_ca_file",
                           "--token_file",
                           "--allowed_clients",
                           "--handshake_timeout",
                           "--workers",
                           "--max_sequence_tokens",
                           "--max_request_sequences",
                           "--max_request_tokens",
                           "--max_response_bytes",
                           "--max_queue_requests",
                           "--max_queue_tokens",
                           "--max_queue_time",
                           "--max_batch_tokens",
                           "--max_batch_wait",
                           "--default_deadline",
                           "--drain_delay",
                           "--drain_timeout",
                           "--max_connections",
                           "--max_connection_inflight",
                           "--max_connection_age",
                           "--max_inflight_bytes",
                           "--precision",
                           "--precision_error_max",
                           "--precision_file",
                           "--shadow_rate",
                           "--profile",
                           "--isa_max",
                           "--log_format",
                           "--termination_log",
                           "--access_log",
                           "--access_log_rate",
                           "--strict",
                           "--allow_nonfinite_weights",
                           "--check",
                           "--version",
                           "64 flags",
                           "65 model"}) {
    EXPECT_THAT(process.output(), HasSubstr(word));
  }
}

TEST(CommandTest, VersionHasTheBuild) {
  Process process(ENCODERD_BINARY, {"--version"});
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.output(), AllOf(HasSubstr("encoderd "), Not(HasSubstr("unknown"))));
}

TEST(CommandTest, CheckSaysWhatAModelIsAndTakes) {
  Process process(ENCODERD_BINARY, {"--check", "--workers=2", "--model_dir=" + kBert});
  EXPECT_EQ(process.Wait(), 0);
  for (const char* text :
       {"family:                    bert", "parameters:                12392",
        "tensors used:", "  pooler.dense.weight", "tensors not used:", "\"hidden_size\": 24",
        "weights in memory:", "scratch per worker:", "largest answer:            256.0 MiB",
        "suggested memory request:"}) {
    EXPECT_THAT(process.output(), HasSubstr(text));
  }
}

TEST(CommandTest, EveryFaultOfTheFlagsIsToldAtOnce) {
  const TemporaryFolder folder;
  const std::string log = (folder / "termination").string();
  Process process(ENCODERD_BINARY, {"--workers=-1", "--no_such=1", "--listen=nowhere", "argument",
                                    "--termination_log=" + log});
  EXPECT_EQ(process.Wait(), 64);
  std::stringstream termination;
  termination << std::ifstream(log).rdbuf();
  for (const std::string& text : {process.output(), termination.str()}) {
    for (const char* fault :
         {"--workers", "--no_such", "--listen", "\"argument\"", "--model_dir"}) {
      EXPECT_THAT(text, HasSubstr(fault));
    }
  }
}

// What the process says when it gives up.
std::vector<std::string> ErrorsOf(Process& process) {
  std::vector<std::string> errors;
  for (const absl::string_view line : absl::StrSplit(process.output(), '\n')) {
    if (line.find(" ERROR ") != absl::string_view::npos) errors.emplace_back(line);
  }
  return errors;
}

TEST(CommandTest, APrecisionThatTheCpuDoesNotRunIsAFaultOfTheFlags) {
  for (const auto& [precision, isa, least] : {std::tuple{"bf16", "avx512_vnni", "avx512_bf16"},
                                              {"bf16", "avx2", "avx512_bf16"},
                                              {"int8", "avx512", "avx512_vnni"},
                                              {"int8", "avx2", "avx512_vnni"}}) {
    Process process(ENCODERD_BINARY,
                    {"--model_dir=" + kBert, absl::StrCat("--precision=", precision),
                     absl::StrCat("--isa_max=", isa)});
    EXPECT_EQ(process.Wait(), 64);
    EXPECT_THAT(ErrorsOf(process),
                ::testing::ElementsAre(AllOf(
                    HasSubstr(absl::StrCat("--precision: ", precision, ": this CPU, or the cap")),
                    HasSubstr(absl::StrCat("expected at least ", least)))));
  }
}

TEST(CommandTest, AChosenPrecisionIsPinnedByItsFileForItsWeightsAlone) {
  const TemporaryFolder folder;
  const std::string pin = (folder / "precision.json").string();
  const std::vector<std::string> check = {"--check", "--model_dir=" + kBert, "--precision=auto",
                                          "--precision_file=" + pin};
  Process chooses(ENCODERD_BINARY, check);
  EXPECT_EQ(chooses.Wait(), 0);
  EXPECT_THAT(chooses.output(), AllOf(HasSubstr("Measured a precision. precision=fp32 error=0 "),
                                      HasSubstr("chosen by --precision=auto"),
                                      HasSubstr("Wrote the chosen precision.")));
  Process follows(ENCODERD_BINARY, check);
  EXPECT_EQ(follows.Wait(), 0);
  EXPECT_THAT(follows.output(), AllOf(HasSubstr("The precision is pinned by a file."),
                                      Not(HasSubstr("Measured a precision."))));
  Replace(pin, "\"weights_sha256\": \"", "\"weights_sha256\": \"0");
  Process refuses(ENCODERD_BINARY, check);
  EXPECT_EQ(refuses.Wait(), 65);
  EXPECT_THAT(ErrorsOf(refuses), ::testing::ElementsAre(AllOf(
                                     HasSubstr(pin), HasSubstr("the file is of another model"))));
}

TEST(CommandTest, AProfileShowsWhereTheTimeOfABatchGoes) {
  Process process(ENCODERD_BINARY, {"--model_dir=" + kBert, "--profile=20x30"});
  EXPECT_EQ(process.Wait(), 0);
  for (const char* text : {"20 sequences of 30 tokens in fp32", "limit: ", "\nembedding ",
                           "\nq, k, v ", "\nattention ", "\nattention output ", "\nnorms ",
                           "\nFFN in ", "\nFFN out ", "\noutputs ", "\nwhole batch "}) {
    EXPECT_THAT(process.output(), HasSubstr(text));
  }
  Process too_long(ENCODERD_BINARY, {"--model_dir=" + kBert, "--profile=1x100000"});
  EXPECT_EQ(too_long.Wait(), 64);
  EXPECT_THAT(ErrorsOf(too_long),
              ::testing::ElementsAre(HasSubstr("--profile: expected sequences of at most")));
}

TEST(CommandTest, AnAccessLogThatCannotBeOpenedIsAFaultOfTheFlag) {
  Process process(ENCODERD_BINARY,
                  {"--model_dir=" + kBert, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                   "--access_log=/no/such/folder/log"});
  EXPECT_EQ(process.Wait(), 64);
  EXPECT_THAT(ErrorsOf(process), ::testing::ElementsAre(HasSubstr("--access_log: cannot open")));
}

// Less than the kernels are made for is told before anything is loaded or listened on.
TEST(CommandTest, ACpuBelowTheLeastInstructionSetIsToldInOneLine) {
  ASSERT_EQ(setenv("ONEDNN_MAX_CPU_ISA", "SSE41", /*overwrite=*/1), 0);
  Process process(ENCODERD_BINARY, {"--model_dir=/no/such/folder"});
  unsetenv("ONEDNN_MAX_CPU_ISA");
  EXPECT_EQ(process.Wait(), 64);
  EXPECT_THAT(ErrorsOf(process), ::testing::ElementsAre(HasSubstr("expected at least avx2")));
  EXPECT_THAT(process.output(), Not(HasSubstr("Listening.")));
}

TEST(CommandTest, APortThatIsTakenHasItsOwnExitCode) {
  Encoderd first({"--model_dir=" + kBert});
  const std::string line = first.process().AwaitLine("Listening.");
  Process grpc_taken(ENCODERD_BINARY,
                     {"--model_dir=" + kBert, "--metrics_listen=127.0.0.1:0",
                      absl::StrCat("--listen=127.0.0.1:", NumberIn(line, "port"))});
  EXPECT_EQ(grpc_taken.Wait(), 69);
  EXPECT_THAT(grpc_taken.output(), HasSubstr("--listen"));
  Process metrics_taken(ENCODERD_BINARY, {"--model_dir=" + kBert, "--listen=127.0.0.1:0",
                                          absl::StrCat("--metrics_listen=127.0.0.1:",
                                                       NumberIn(line, "metrics_port"))});
  EXPECT_EQ(metrics_taken.Wait(), 69);
  EXPECT_THAT(metrics_taken.output(), HasSubstr("metrics"));
  Process health_taken(
      ENCODERD_BINARY,
      {"--model_dir=" + kBert, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
       absl::StrCat("--health_listen=127.0.0.1:", NumberIn(line, "port"))});
  EXPECT_EQ(health_taken.Wait(), 69);
  EXPECT_THAT(ErrorsOf(health_taken), ::testing::ElementsAre(HasSubstr("--health_listen")));
}

// ---- Models that cannot be served -------------------------------------------------------------

struct BrokenModel {
  const char* name;
  void (*break_it)(const fs::path& folder);
  const char* text;
};

void PrintTo(const BrokenModel& model, std::ostream* out) { *out << model.name; }

class BrokenModelTest : public ::testing::TestWithParam<BrokenModel> {};

// Expects zeros behind token 0.
void WriteSelfCheck(const fs::path& folder) {
  const std::string header =
      R"({"__metadata__":{"format":"encoderd_selfcheck_1","tolerance":"0.0001"},)"
      R"("0/input_ids":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},)"
      R"("0/last_hidden_state":{"dtype":"F32","shape":[1,24],"data_offsets":[4,100]}})";
  const uint64_t bytes = header.size();
  std::ofstream file(folder / "selfcheck.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  file << header << std::string(100, '\0');
}

TEST_P(BrokenModelTest, IsNeverReadyAndToldInOneLine) {
  const TemporaryFolder folder;
  fs::copy(kBert, folder.path(), fs::copy_options::recursive);
  GetParam().break_it(folder.path());
  Encoderd encoderd({"--model_dir=" + folder.path()});
  encoderd.AwaitListening();
  while (encoderd.process().running()) {
    ASSERT_NE(encoderd.Health(), HealthCheckResponse::SERVING);
  }
  EXPECT_EQ(encoderd.process().Wait(), 65);
  EXPECT_THAT(ErrorsOf(encoderd.process()), ::testing::ElementsAre(HasSubstr(GetParam().text)));
  EXPECT_THAT(encoderd.process().output(), Not(HasSubstr("Serving.")));
}

INSTANTIATE_TEST_SUITE_P(
    Folder, BrokenModelTest,
    ::testing::Values(
        BrokenModel{"NoWeights", [](const fs::path& f) { fs::remove(f / "model.safetensors"); },
                    "model.safetensors"},
        BrokenModel{"NoConfig", [](const fs::path& f) { fs::remove(f / "config.json"); },
                    "config.json"},
        BrokenModel{"CutOff",
                    [](const fs::path& f) {
                      fs::resize_file(f / "model.safetensors",
                                      fs::file_size(f / "model.safetensors") - 1);
                    },
                    "model.safetensors"},
        BrokenModel{"NotFinite",
                    [](const fs::path& f) {
                      // The last tensors become NaN.
                      std::fstream file(f / "model.safetensors", std::ios::in | std::ios::out);
                      const std::string ones(fs::file_size(f / "model.safetensors") / 2, '\xff');
                      file.seekp(-static_cast<std::streamoff>(ones.size()), std::ios::end) << ones;
                    },
                    "finite"},
        BrokenModel{"NotReadable",
                    [](const fs::path& f) {
                      fs::remove(f / "model.safetensors");
                      fs::create_directory(f / "model.safetensors");
                    },
                    "model.safetensors"},
        BrokenModel{
            "ShardMissing",
            [](const fs::path& f) {
              std::ofstream(f / "model.safetensors.index.json")
                  << R"({"weight_map": {"a": "model.safetensors", "b": "two.safetensors"}})";
            },
            "missing: two.safetensors"},
        BrokenModel{"OtherNumbersThanItsSelfCheck", WriteSelfCheck,
                    "selfcheck.safetensors: 0/last_hidden_state: element"},
        BrokenModel{"SelfCheckThatIsNone",
                    [](const fs::path& f) { std::ofstream(f / "selfcheck.safetensors") << "{}"; },
                    "selfcheck.safetensors: expected at least 8 bytes"},
        BrokenModel{"NotJson", [](const fs::path& f) { std::ofstream(f / "config.json") << "{"; },
                    "config.json"},
        BrokenModel{"UnknownFamily",
                    [](const fs::path& f) {
                      Replace(f / "config.json", "\"model_type\": \"bert\"",
                              "\"model_type\": \"no_family\"");
                    },
                    "no_family"}),
    [](const auto& param) { return param.param.name; });

TEST(BrokenModelTest, EveryFaultOfAFolderIsToldAtOnce) {
  const TemporaryFolder folder;
  fs::copy(kBert, folder.path(), fs::copy_options::recursive);
  std::ofstream(folder / "modules.json") << R"([{"type": "mine.Transformer", "path": ""}])";
  std::ofstream(folder / "model.safetensors.index.json")
      << R"({"weight_map": {"pooler.dense.bias": "model.safetensors", "b": "two.safetensors"}})";
  Replace(folder / "config.json", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"maxout\"");
  Replace(folder / "model.safetensors", "encoder.layer.0.output.dense.bias",
          "encoder.layer.0.output.dense.bais");
  Replace(folder / "model.safetensors", "\"shape\":[50,24]", "\"shape\":[24,50]");
  const std::string log = (folder / "termination").string();
  Process process(ENCODERD_BINARY,
                  {"--check", "--model_dir=" + folder.path(), "--termination_log=" + log});
  EXPECT_EQ(process.Wait(), 65);
  std::stringstream termination;
  termination << std::ifstream(log).rdbuf();
  for (const std::string& text : {process.output(), termination.str()}) {
    for (const char* fault :
         {"module \"mine.Transformer\" is not supported", "hidden_act is \"maxout\"",
          "missing: two.safetensors", "[50, 24] or more rows, got [24, 50]",
          "\"encoder.layer.0.output.dense.bias\" is missing; the file has "
          "\"encoder.layer.0.output.dense.bais\""}) {
      EXPECT_THAT(text, HasSubstr(fault));
    }
  }
}

TEST(BrokenModelTest, AFolderThatIsNotThere) {
  Process process(ENCODERD_BINARY, {"--model_dir=/no/such/folder", "--listen=127.0.0.1:0",
                                    "--metrics_listen=127.0.0.1:0"});
  EXPECT_EQ(process.Wait(), 65);
  EXPECT_THAT(process.output(), HasSubstr("/no/such/folder"));
}

// ---- Serving ----------------------------------------------------------------------------------

TEST(ServingTest, TheAccessLogIsWholeWhenTheProcessEnds) {
  Encoderd encoderd({"--model_dir=" + kBert, "--access_log=-"});
  encoderd.AwaitServing();
  for (int i = 0; i < 3; ++i) {
    v1::EncodeResponse answer;
    grpc::ClientContext context;
    ASSERT_TRUE(encoderd.encoder().Encode(&context, PooledRequest({5, 6}), &answer).ok());
  }
  encoderd.process().Signal(SIGTERM);
  EXPECT_EQ(encoderd.process().Wait(), 0);
  int lines = 0;
  for (const auto line : absl::StrSplit(encoderd.process().output(), '\n')) {
    lines += absl::StartsWith(line, "{\"time\":") && absl::EndsWith(line, "}") ? 1 : 0;
  }
  EXPECT_EQ(lines, 3) << encoderd.process().output();
}

// Nobody reads stdout any more, nor the log file.
TEST(ServingTest, AnAccessLogThatNobodyReadsHarmsNothing) {
  const TemporaryFolder folder;
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Encoderd encoderd({"--model_dir=" + kBert, "--access_log=" + pipe});
  encoderd.AwaitServing();
  close(reader);
  for (int i = 0; i < 3; ++i) {
    v1::EncodeResponse answer;
    grpc::ClientContext context;
    ASSERT_TRUE(encoderd.encoder().Encode(&context, PooledRequest({5, 6}), &answer).ok());
  }
  encoderd.process().AwaitLine("Cannot write a log file");
  encoderd.process().Signal(SIGTERM);
  EXPECT_EQ(encoderd.process().Wait(), 0);
}

TEST(ServingTest, HealthHasAPortOfItsOwnWhereItIsAskedFor) {
  Encoderd without({"--model_dir=" + kBert});
  without.AwaitListening();
  EXPECT_EQ(without.health_port(), 0);
  Encoderd encoderd({"--model_dir=" + kBert, "--health_listen=127.0.0.1:0"});
  encoderd.AwaitServing();
  ASSERT_GT(encoderd.health_port(), 0);
  const auto probe = ConnectAlone(absl::StrCat("127.0.0.1:", encoderd.health_port()));
  grpc::ClientContext context;
  HealthCheckResponse response;
  EXPECT_TRUE(grpc::health::v1::Health::NewStub(probe)->Check(&context, {}, &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  grpc::ClientContext encode_context;
  v1::EncodeResponse answer;
  EXPECT_EQ(v1::EncoderService::NewStub(probe)
                ->Encode(&encode_context, PooledRequest({5}), &answer)
                .error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  encoderd.process().Signal(SIGTERM);
  EXPECT_EQ(encoderd.process().Wait(), 0);
}

TEST(ServingTest, ARealModelGivesTheSameBitsAloneAndBesideOthers) {
  Encoderd encoderd({"--model_dir=" + kBert, "--workers=2"});
  encoderd.AwaitServing();
  EXPECT_EQ(encoderd.Health(), HealthCheckResponse::SERVING);
  v1::EncodeResponse alone;
  grpc::ClientContext context;
  ASSERT_TRUE(encoderd.encoder().Encode(&context, PooledRequest({5, 6, 7}), &alone).ok());
  ASSERT_EQ(alone.last_hidden_state().data().size(), 3 * 24 * sizeof(float));
  float first;
  std::memcpy(&first, alone.last_hidden_state().data().data(), sizeof(first));
  EXPECT_TRUE(std::isfinite(first));
  EXPECT_NE(first, 0);

  v1::EncodeRequest many = PooledRequest({5, 6, 7});
  for (int length = 1; length < 60; ++length) {
    auto& sequence = *many.add_sequences();
    for (int i = 0; i < length; ++i) sequence.add_input_ids(i % 50);
  }
  v1::EncodeResponse beside;
  grpc::ClientContext beside_context;
  ASSERT_TRUE(encoderd.encoder().Encode(&beside_context, many, &beside).ok());
  EXPECT_EQ(beside.last_hidden_state().data().substr(0, alone.last_hidden_state().data().size()),
            alone.last_hidden_state().data());
  EXPECT_EQ(beside.pooled(0).data().substr(0, alone.pooled(0).data().size()),
            alone.pooled(0).data());
  EXPECT_EQ(beside.numerics_id(), alone.numerics_id());
}

TEST(ServingTest, WhatAPrecisionWasChosenByIsTold) {
  Encoderd encoderd({"--model_dir=" + kBert, "--precision=auto"});
  encoderd.AwaitServing();
  grpc::ClientContext context;
  v1::GetModelResponse model;
  ASSERT_TRUE(encoderd.encoder().GetModel(&context, {}, &model).ok());
  ASSERT_GE(model.precision_trials_size(), 1);
  EXPECT_EQ(model.precision_trials(0).precision(), "fp32");
  EXPECT_EQ(model.precision_trials(0).error(), 0);
  EXPECT_GT(model.precision_trials(0).tokens_per_second(), 0);
}

TEST(ServingTest, WeightsThatAreNotFiniteAreServedWhereTheyAreAllowed) {
  const TemporaryFolder folder;
  fs::copy(kBert, folder.path(), fs::copy_options::recursive);
  {
    // The last tensor, which is the pooler's, becomes NaN.
    std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out);
    file.seekp(-4, std::ios::end) << std::string(4, '\xff');
  }
  Encoderd encoderd({"--model_dir=" + folder.path(), "--allow_nonfinite_weights"});
  encoderd.AwaitServing();
  EXPECT_THAT(
      encoderd.process().output(),
      AllOf(HasSubstr("The model has weights that are not finite"), HasSubstr("pooler.dense.")));
  v1::EncodeRequest request = PooledRequest({5, 6, 7});
  v1::EncodeResponse response;
  grpc::ClientContext reached_not;
  EXPECT_TRUE(encoderd.encoder().Encode(&reached_not, request, &response).ok());
  request.mutable_outputs()->mutable_pooled(0)->set_kind(v1::POOLING_POOLER);
  grpc::ClientContext reached;
  EXPECT_EQ(encoderd.encoder().Encode(&reached, request, &response).error_code(),
            grpc::StatusCode::INTERNAL);
}

// 8-bit products that saturate give other numbers on other machines.
TEST(ServingTest, RoundedPrecisionsGiveTheNumbersOfFp32OnEveryInstructionSetAndSayOnWhich) {
  for (const Precision precision : {Precision::kBf16, Precision::kInt8}) {
    if (!ops::RequirePrecision(precision).ok()) GTEST_SKIP() << PrecisionName(precision);
  }
  const TempFolder folder;
  WriteRandomBert(
      {.layers = 3, .hidden = 96, .heads = 4, .ffn = 384, .vocab = 1000, .positions = 128}, folder);
  const auto rows_of = [&](const std::string& precision, const std::string& isa) {
    Encoderd encoderd(
        {"--model_dir=" + folder.path(), "--precision=" + precision, "--isa_max=" + isa});
    encoderd.AwaitServing();
    v1::GetModelResponse model;
    grpc::ClientContext asks;
    EXPECT_TRUE(encoderd.encoder().GetModel(&asks, {}, &model).ok());
    EXPECT_EQ(model.precision(), precision);
    EXPECT_EQ(model.isa(), isa == "auto" ? ops::IsaName() : isa);
    EXPECT_THAT(encoderd.process().output(),
                HasSubstr(absl::StrCat(" isa=", model.isa(), " precision=", precision)));
    v1::EncodeResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(encoderd.encoder().Encode(&context, PooledRequest({5, 6, 7}), &response).ok());
    std::vector<float> rows(response.last_hidden_state().data().size() / sizeof(float));
    std::memcpy(rows.data(), response.last_hidden_state().data().data(),
                rows.size() * sizeof(float));
    return rows;
  };
  const std::vector<float> exact = rows_of("fp32", "auto");
  ASSERT_EQ(exact.size(), 3 * 96);
  const auto expect_alike = [&](const std::string& precision, const std::string& isa,
                                double error) {
    SCOPED_TRACE(precision);
    const std::vector<float> best = rows_of(precision, "auto"), least = rows_of(precision, isa);
    EXPECT_LE(LargestError(exact, best, 96), error);
    EXPECT_LE(LargestError(exact, least, 96), error);
    EXPECT_LE(LargestError(best, least, 96), 0.001);
  };
  expect_alike("bf16", "avx512_bf16", 0.001);
  expect_alike("int8", "avx512_vnni", 0.01);
}

// Nobody calls, so nothing polls and nothing spins: workers, gRPC, watchdog and metrics sleep.
TEST(ServingTest, ATableNarrowerThanTheBlocksTellsHowWideReadyVectorsAre) {
  Encoderd encoderd(
      {std::string("--model_dir=" ENCODERD_SOURCE_DIR "/tests/goldens/electra/model")});
  encoderd.AwaitServing();
  v1::GetModelResponse model;
  grpc::ClientContext context;
  ASSERT_TRUE(encoderd.encoder().GetModel(&context, {}, &model).ok());
  EXPECT_EQ(model.hidden_size(), 16u);
  EXPECT_EQ(model.input_dim(), 0u);
  ASSERT_EQ(model.inputs_embeds_width(), 10u);
  for (const uint32_t width : {model.inputs_embeds_width(), model.hidden_size()}) {
    v1::EncodeRequest request;
    v1::Tensor& vectors = *request.add_sequences()->mutable_inputs_embeds();
    vectors.set_dtype(v1::DATA_TYPE_FP32);
    vectors.add_shape(3);
    vectors.add_shape(width);
    vectors.set_data(std::string(3 * width * sizeof(float), '\0'));
    request.mutable_outputs()->set_last_hidden_state(true);
    v1::EncodeResponse response;
    grpc::ClientContext call;
    EXPECT_EQ(encoderd.encoder().Encode(&call, request, &response).ok(), width == 10) << width;
  }
}

TEST(ServingTest, AnIdleServerTakesNoCpu) {
  Encoderd encoderd({"--model_dir=" ENCODERD_SOURCE_DIR "/deploy/models/reverse"});
  encoderd.AwaitServing();
  v1::EncodeRequest request;
  v1::Tensor& vectors = *request.add_sequences()->mutable_inputs_embeds();
  vectors.add_shape(1);
  vectors.add_shape(10);
  vectors.set_data(std::string(10 * sizeof(float), '\0'));
  request.mutable_outputs()->set_last_hidden_state(true);
  v1::EncodeResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(encoderd.encoder().Encode(&context, request, &response).ok());
  absl::SleepFor(absl::Milliseconds(200));  // what ends with the call has ended

  const absl::Time start = absl::Now();
  const absl::Duration before = encoderd.process().CpuTime();
  absl::SleepFor(absl::Seconds(3));
  EXPECT_LT(encoderd.process().CpuTime() - before, (absl::Now() - start) / 100);
}

TEST(SignalTest, AnIdleServerEndsAtTheFirst) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Encoderd encoderd({"--model_dir=" + kBert});
    encoderd.AwaitServing();
    encoderd.process().Signal(signal);
    EXPECT_EQ(encoderd.process().Wait(absl::Seconds(2)), 0) << encoderd.process().output();
    EXPECT_THAT(encoderd.process().output(), HasSubstr("every accepted call was answered"));
  }
}

TEST(SignalTest, AServerThatDrainsEndsAtTheSecond) {
  Encoderd encoderd({"--model_dir=" + kBert, "--drain_delay=60s"});
  encoderd.AwaitServing();
  encoderd.process().Signal(SIGTERM);
  encoderd.process().AwaitLine("Draining.");
  while (encoderd.Health() != HealthCheckResponse::NOT_SERVING) {
  }
  encoderd.process().Signal(SIGTERM);
  EXPECT_EQ(encoderd.process().Wait(absl::Seconds(2)), 128 + SIGTERM);
}

// A model whose weights are all zeros: large to load, small on disk.
void MakeLargeModel(const TemporaryFolder& folder) {
  constexpr int64_t kVocab = int64_t{1} << 20;
  constexpr int64_t kHidden = 64;
  std::ofstream(folder / "config.json")
      << "{\"model_type\": \"token_encoder\", \"input_size\": " << kVocab
      << ", \"hidden_size\": " << kHidden << ", \"num_heads\": 4, \"num_layers\": 1}";
  int64_t end = 0;
  std::string header;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t bytes = 4;
    for (const int64_t axis : shape) bytes *= axis;
    const std::string axes =
        shape.size() == 1 ? absl::StrCat(shape[0]) : absl::StrCat(shape[0], ",", shape[1]);
    absl::StrAppend(&header, header.empty() ? "{" : ",", "\"", name,
                    "\":{\"dtype\":\"F32\",\"shape\":[", axes, "],\"data_offsets\":[", end, ",",
                    end + bytes, "]}");
    end += bytes;
  };
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  add("embedding.weight", {kVocab, kHidden});
  const std::string block = "transformer_blocks.0.";
  for (const char* name : {"query", "key", "value", "fc"}) {
    linear(absl::StrCat(block, "self_attn.", name), kHidden, kHidden);
  }
  linear(block + "feed_forward.0", 4 * kHidden, kHidden);
  linear(block + "feed_forward.2", kHidden, 4 * kHidden);
  for (const char* norm : {"norm1", "norm2"}) {
    add(absl::StrCat(block, norm, ".weight"), {kHidden});
    add(absl::StrCat(block, norm, ".bias"), {kHidden});
  }
  linear("fc", kVocab, kHidden);
  header += "}";
  const auto header_bytes = static_cast<uint64_t>(header.size());
  const fs::path file = folder / "model.safetensors";
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes))
      .write(header.data(), static_cast<std::streamsize>(header.size()));
  fs::resize_file(file, 8 + header.size() + static_cast<uint64_t>(end));
}

TEST(SignalTest, AServerThatLoadsEndsAtOnce) {
  const TemporaryFolder folder;
  MakeLargeModel(folder);
  Encoderd encoderd({"--model_dir=" + folder.path()});
  encoderd.AwaitListening();
  EXPECT_NE(encoderd.Health(), HealthCheckResponse::SERVING);
  encoderd.process().Signal(SIGTERM);
  EXPECT_EQ(encoderd.process().Wait(absl::Seconds(2)), 0) << encoderd.process().output();
  EXPECT_THAT(encoderd.process().output(), HasSubstr("while the model is being loaded"));
}

// Weights, kernels, calibration, warm-up: a signal may come in the midst of any of them.
TEST(SignalTest, AServerThatStartsEndsAtOnceAtAnyMoment) {
  Encoderd whole({"--model_dir=" + kBert});
  whole.AwaitListening();
  const absl::Time listening = absl::Now();
  whole.process().AwaitLine("Serving.");
  const absl::Duration start = absl::Now() - listening;
  constexpr int kMoments = 12;
  for (int moment = 0; moment < kMoments; ++moment) {
    Encoderd encoderd({"--model_dir=" + kBert});
    encoderd.AwaitListening();
    absl::SleepFor(start * moment / kMoments);
    encoderd.process().Signal(moment % 2 == 0 ? SIGTERM : SIGINT);
    EXPECT_EQ(encoderd.process().Wait(absl::Seconds(2)), 0) << encoderd.process().output();
  }
}

}  // namespace
}  // namespace encoderd
