// Goal: the server starts with exactly what its flags say, or says everything that is wrong.
// Method: command lines through the parser into Options.
#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "absl/flags/reflection.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "server/flag_parser.h"

namespace encoderd {
namespace {

using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OptionsTest : public ::testing::Test {
 protected:
  Options Read(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "encoderd");
    const ParsedFlags parsed = ParseFlags(static_cast<int>(arguments.size()), arguments.data());
    faults_ = parsed.faults;
    return ReadOptions(faults_);
  }

  std::vector<std::string> faults_;
  absl::FlagSaver saver_;
};

TEST_F(OptionsTest, HasTheDocumentedDefaults) {
  const Options options = Read({"--model_dir=/m"});
  EXPECT_THAT(faults_, IsEmpty());
  EXPECT_EQ(Describe(options),
            "model_dir=/m strict=false allow_nonfinite_weights=false "
            "listen=127.0.0.1:50051 metrics_listen=127.0.0.1:9090 health_listen=\"\" "
            "plaintext=false tls=none tls_cert_file=\"\" tls_key_file=\"\" tls_client_ca_file=\"\" "
            "allowed_clients=0 token_file=\"\" handshake_timeout=20s max_connections=1024 "
            "max_connection_inflight=64 max_connection_age=0 "
            "max_connection_age_grace=1m min_ping_interval=5s max_sequence_tokens=0 "
            "max_request_sequences=1024 max_request_tokens=65536 max_response_bytes=268435456 "
            "max_inflight_bytes=1073741824 default_deadline=30s max_queue_requests=1024 "
            "max_queue_tokens=131072 "
            "max_queue_time=5s predict_deadlines=true workers=0 max_batch_tokens=0 "
            "max_batch_wait=0 isa_max=auto precision=fp32 "
            "precision_error_max=0.01 precision_file=\"\" shadow_rate=0 "
            "drain_delay=0 drain_timeout=20s log_format=text termination_log=\"\" access_log=\"\" "
            "access_log_rate=1/1");
}

TEST_F(OptionsTest, TakesEveryFlagIntoItsOwnMember) {
  const Options options = Read({"--model_dir=/m n",
                                "--strict",
                                "--allow_nonfinite_weights",
                                "--check",
                                "--listen=0.0.0.0:1",
                                "--plaintext",
                                "--token_file=/k",
                                "--handshake_timeout=18s",
                                "--metrics_listen=[::1]:2",
                                "--health_listen=[::]:3",
                                "--max_connections=16",
                                "--max_connection_inflight=3",
                                "--max_connection_age=5m",
                                "--max_connection_age_grace=16s",
                                "--min_ping_interval=17s",
                                "--max_sequence_tokens=4",
                                "--max_request_sequences=5",
                                "--max_request_tokens=6",
                                "--max_response_bytes=7000",
                                "--max_inflight_bytes=134224728",
                                "--default_deadline=8s",
                                "--max_queue_requests=9",
                                "--max_queue_tokens=10",
                                "--max_queue_time=11s",
                                "--predict_deadlines=false",
                                "--workers=12",
                                "--max_batch_tokens=13",
                                "--max_batch_wait=1ms",
                                "--precision=auto",
                                "--precision_error_max=0.125",
                                "--precision_file=/p",
                                "--shadow_rate=1/3",
                                "--isa_max=avx2",
                                "--drain_delay=14s",
                                "--drain_timeout=15s",
                                "--log_format=json",
                                "--termination_log=/t",
                                "--access_log=-",
                                "--access_log_rate=1/7"});
  EXPECT_THAT(faults_, IsEmpty());
  EXPECT_TRUE(options.check);
  EXPECT_EQ(options.log_format, LogFormat::kJson);
  EXPECT_EQ(Describe(options),
            "model_dir=\"/m n\" strict=true allow_nonfinite_weights=true "
            "listen=0.0.0.0:1 metrics_listen=[::1]:2 health_listen=[::]:3 "
            "plaintext=true tls=none tls_cert_file=\"\" tls_key_file=\"\" tls_client_ca_file=\"\" "
            "allowed_clients=0 token_file=/k handshake_timeout=18s max_connections=16 "
            "max_connection_inflight=3 max_connection_age=5m "
            "max_connection_age_grace=16s min_ping_interval=17s max_sequence_tokens=4 "
            "max_request_sequences=5 max_request_tokens=6 max_response_bytes=7000 "
            "max_inflight_bytes=134224728 default_deadline=8s max_queue_requests=9 "
            "max_queue_tokens=10 max_queue_time=11s predict_deadlines=false "
            "workers=12 max_batch_tokens=13 max_batch_wait=1ms isa_max=avx2 "
            "precision=auto precision_error_max=0.125 precision_file=/p shadow_rate=1/3 "
            "drain_delay=14s drain_timeout=15s log_format=json termination_log=/t "
            "access_log=- access_log_rate=1/7");
}

TEST_F(OptionsTest, ReportsAllFaultsAtOnce) {
  Read({"--listen=here", "--metrics_listen=:1", "--workers=-1", "--max_queue_time=inf",
        "--log_format=xml", "--isa_max=sse9", "--precision=fp16", "--wrokers=2", "--drain_timeout=5"});
  EXPECT_THAT(
      faults_,
      ElementsAre(
          "--wrokers: no such flag; did you mean --workers?",
          "--drain_timeout: expected a duration such as 200ms or 5s, got \"5\"",
          "--listen: expected HOST:PORT such as 127.0.0.1:50051, [::1]:50051 or localhost:0, got "
          "here",
          HasSubstr("--metrics_listen: expected HOST:PORT"),
          "--model_dir: expected the folder of a model, got none",
          "--isa_max: expected auto, avx2, avx512, avx512_vnni, avx512_bf16, avx512_fp16 or amx, "
          "got sse9",
          "--precision: expected fp32, bf16, int8 or auto, got fp16",
          "--log_format: expected text or json, got xml",
          "--max_queue_time: expected 1ms to 1h, got inf",
          "--workers: expected 0 to 1024, got -1"));
}

TEST_F(OptionsTest, RefusesEveryNumberOutsideItsRange) {
  Read({"--model_dir=/m", "--max_connections=65537", "--max_connection_inflight=0",
        "--max_connection_age=25h", "--max_connection_age_grace=0", "--min_ping_interval=0", "--max_sequence_tokens=-1",
        "--max_request_sequences=0", "--max_request_tokens=0", "--max_response_bytes=1023",
        "--max_inflight_bytes=1099511627777", "--default_deadline=0", "--max_queue_requests=0",
        "--max_queue_tokens=0", "--max_queue_time=0", "--workers=1025", "--max_batch_tokens=-1",
        "--max_batch_wait=11s", "--drain_delay=-1s", "--drain_timeout=61m",
        "--precision_error_max=nan", "--handshake_timeout=121s"});
  EXPECT_EQ(faults_.size(), 21) << ::testing::PrintToString(faults_);
  for (const std::string& fault : faults_) EXPECT_THAT(fault, HasSubstr(": expected "));
}

TEST_F(OptionsTest, RefusesAQueueThatALegalCallCannotEnter) {
  Read({"--model_dir=/m", "--max_queue_tokens=1000"});
  EXPECT_THAT(faults_, ElementsAre("--max_queue_tokens: expected at least --max_request_tokens "
                                   "(65536), got 1000"));
  Read({"--model_dir=/m", "--max_queue_tokens=65536"});
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(OptionsTest, RefusesMemoryThatALegalCallDoesNotFitIn) {
  Read({"--model_dir=/m", "--max_response_bytes=1024", "--max_inflight_bytes=134218751"});
  EXPECT_THAT(faults_, ElementsAre("--max_inflight_bytes: expected at least --max_response_bytes + "
                                   "128 MiB (134218752), got 134218751"));
  Read({"--model_dir=/m", "--max_inflight_bytes=134218752"});
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(OptionsTest, RefusesAPinForAPrecisionThatIsNotLeftOpen) {
  Read({"--model_dir=/m", "--precision=bf16", "--precision_file=/p"});
  EXPECT_THAT(faults_,
              ElementsAre("--precision_file: expected none without --precision=auto, got /p"));
}

TEST_F(OptionsTest, RefusesAShadowRateThatIsNoneOrComparesNothing) {
  for (const char* rate : {"", "1", "2/3", "1/0", "1/-3", "1/1000000001", "1/3x", "0.1", "1/"}) {
    const std::string flag = absl::StrCat("--shadow_rate=", rate);
    Read({"--model_dir=/m", "--precision=auto", flag.c_str()});
    EXPECT_THAT(faults_, ElementsAre(HasSubstr("--shadow_rate: expected 0 or 1/N"))) << rate;
  }
  Read({"--model_dir=/m", "--precision=fp32", "--shadow_rate=1/3"});
  EXPECT_THAT(faults_, ElementsAre("--shadow_rate: expected 0 with --precision=fp32, which it "
                                   "compares with, got 1/3"));
  Read({"--model_dir=/m", "--precision=int8", "--shadow_rate=1/3"});
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(OptionsTest, RefusesARateOfTheAccessLogThatIsNone) {
  Read({"--model_dir=/m", "--access_log_rate=0.5"});
  EXPECT_THAT(faults_, ElementsAre("--access_log_rate: expected 0 or 1/N with N from 1 to "
                                   "1000000000, got 0.5"));
  EXPECT_EQ(Read({"--model_dir=/m", "--access_log_rate=0"}).access_log_every, 0);
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(OptionsTest, TakesTheShapeOfAProfile) {
  const Options options = Read({"--model_dir=/m", "--profile=8x128"});
  EXPECT_THAT(faults_, IsEmpty());
  ASSERT_TRUE(options.profile.has_value());
  EXPECT_EQ(options.profile->sequences, 8);
  EXPECT_EQ(options.profile->tokens, 128);
  for (const char* shape : {"8", "8x", "x8", "8x0", "0x8", "-1x8", "8x8x8", "8 x8", "1025x1024",
                            "4294967297x4294967297"}) {
    const std::string flag = absl::StrCat("--profile=", shape);
    Read({"--model_dir=/m", flag.c_str()});
    EXPECT_THAT(faults_, ElementsAre(HasSubstr("--profile: expected SEQUENCESxTOKENS"))) << shape;
  }
}

TEST_F(OptionsTest, RefusesASequenceThatNoCallCanCarry) {
  Read({"--model_dir=/m", "--max_sequence_tokens=65537"});
  EXPECT_THAT(faults_, ElementsAre(HasSubstr("--max_sequence_tokens: expected at most")));
}

TEST_F(OptionsTest, ServesWithoutTlsOnlyOnLoopbackOrWhenToldTo) {
  Read({"--model_dir=/m", "--listen=0.0.0.0:50051"});
  EXPECT_THAT(faults_, ElementsAre(HasSubstr("--plaintext")));
  Read({"--model_dir=/m", "--listen=0.0.0.0:50051", "--plaintext"});
  EXPECT_THAT(faults_, IsEmpty());
}

// It tells nothing that needs to be kept from anybody.
TEST_F(OptionsTest, HealthAloneMayBePlaintextAnywhere) {
  const Options options = Read({"--model_dir=/m", "--health_listen=0.0.0.0:8086"});
  EXPECT_THAT(faults_, IsEmpty());
  ASSERT_TRUE(options.health_listen.has_value());
  EXPECT_EQ(options.health_listen->ToString(), "0.0.0.0:8086");
  Read({"--model_dir=/m", "--health_listen=8086"});
  EXPECT_THAT(faults_, ElementsAre(HasSubstr("--health_listen: expected HOST:PORT")));
}

TEST_F(OptionsTest, TakesTheFilesOfKeys) {
  const Options options =
      Read({"--model_dir=/m", "--listen=0.0.0.0:50051", "--tls_cert_file=/k/tls.crt",
            "--tls_key_file=/k/tls.key", "--tls_client_ca_file=/k/ca.crt",
            "--allowed_clients=spiffe://example.org/search,search.example",
            "--token_file=/k/tokens"});
  EXPECT_THAT(faults_, IsEmpty());
  EXPECT_THAT(options.allowed_clients,
              ElementsAre("spiffe://example.org/search", "search.example"));
  EXPECT_THAT(Describe(options),
              HasSubstr(" tls=mutual tls_cert_file=/k/tls.crt tls_key_file=/k/tls.key "
                        "tls_client_ca_file=/k/ca.crt allowed_clients=2 token_file=/k/tokens "));
  EXPECT_THAT(
      Describe(Read({"--model_dir=/m", "--tls_client_ca_file=", "--allowed_clients="})),
      HasSubstr(" tls=server "));
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(OptionsTest, RefusesKeysThatLackOthers) {
  Read({"--model_dir=/m", "--tls_cert_file=/k/tls.crt"});
  EXPECT_THAT(faults_,
              ElementsAre("--tls_key_file: expected the key of --tls_cert_file, got none"));
  Read({"--model_dir=/m", "--tls_cert_file=", "--tls_key_file=/k/tls.key",
        "--tls_client_ca_file=/k/ca.crt"});
  EXPECT_THAT(faults_,
              ElementsAre("--tls_key_file: expected none without --tls_cert_file, got /k/tls.key",
                          "--tls_client_ca_file: expected none without --tls_cert_file, got "
                          "/k/ca.crt"));
  Read({"--model_dir=/m", "--tls_cert_file=/k/tls.crt", "--tls_client_ca_file=",
        "--allowed_clients=a"});
  EXPECT_THAT(faults_, ElementsAre("--allowed_clients: expected none without "
                                   "--tls_client_ca_file, got a"));
  Read({"--model_dir=/m", "--tls_client_ca_file=/k/ca.crt", "--allowed_clients=a,,b"});
  EXPECT_THAT(faults_,
              ElementsAre("--allowed_clients: expected names separated by commas alone, got a,,b"));
  Read({"--model_dir=/m", "--tls_cert_file=/c", "--tls_key_file=/k", "--tls_client_ca_file=/a",
        "--allowed_clients=a, b"});
  EXPECT_THAT(faults_, ElementsAre("--allowed_clients: expected names separated by commas alone, "
                                   "got \"a, b\""));
  Read({"--model_dir=/m", "--allowed_clients=a", "--plaintext"});
  EXPECT_THAT(faults_, ElementsAre("--plaintext: expected false with --tls_cert_file, got true"));
}

// Whoever listens on the way has them.
TEST_F(OptionsTest, RefusesTokensInPlaintextBeyondLoopbackUnlessToldTo) {
  Read({"--model_dir=/m", "--token_file=/k/tokens"});
  EXPECT_THAT(faults_, IsEmpty());
  Read({"--model_dir=/m", "--listen=0.0.0.0:50051", "--token_file=/k/tokens"});
  EXPECT_THAT(faults_, ElementsAre(HasSubstr("--plaintext")));
  Read({"--model_dir=/m", "--plaintext"});
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(OptionsTest, RefusesTheSameAddressTwice) {
  Read({"--model_dir=/m", "--listen=127.0.0.1:1", "--metrics_listen=127.0.0.1:1"});
  EXPECT_THAT(faults_, ElementsAre(HasSubstr("another address than --listen")));
  for (const char* taken : {"--health_listen=127.0.0.1:1", "--health_listen=127.0.0.1:2"}) {
    Read({"--model_dir=/m", "--listen=127.0.0.1:1", "--metrics_listen=127.0.0.1:2", taken});
    EXPECT_THAT(faults_, ElementsAre(HasSubstr("--health_listen: expected another address")));
  }
  Read({"--model_dir=/m", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
        "--health_listen=127.0.0.1:0"});
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(OptionsTest, NoticesVersion) {
  EXPECT_FALSE(VersionAsked());
  Read({"--version"});
  EXPECT_TRUE(VersionAsked());
}

TEST(ListenAddressTest, ReadsAndWritesAddresses) {
  for (const char* text :
       {"127.0.0.1:50051", "0.0.0.0:0", "[::]:65535", "[::1]:1", "localhost:0", "a-b.c:9"}) {
    const auto address = ListenAddress::Parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address->ToString(), text);
  }
}

TEST(ListenAddressTest, RefusesWhatIsNone) {
  for (const char* text :
       {"", ":", "host", "host:", ":1", "host:x", "host:1x", "host:-1", "host:65536", "::1:50051",
        "[::1]", "[host]:1", "256.0.0.1:1", "1.2.3:1", "a b:1", "unix:/tmp/s"}) {
    EXPECT_THAT(ListenAddress::Parse(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

TEST(ListenAddressTest, KnowsLoopback) {
  for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(ListenAddress::Parse(text)->IsLoopback()) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.example.com:1"}) {
    EXPECT_FALSE(ListenAddress::Parse(text)->IsLoopback()) << text;
  }
}

// The paragraphs of the help by the flag that each is of.
std::map<std::string, std::string> HelpByFlag() {
  std::map<std::string, std::string> paragraphs;
  std::istringstream lines(HelpText());
  std::string flag;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  --")) flag = line.substr(4, line.find(' ', 4) - 4);
    if (line.empty()) flag.clear();
    paragraphs[flag] += line + "\n";
  }
  return paragraphs;
}

TEST(HelpTextTest, ExplainsEveryFlagOfTheStartUpLine) {
  const auto help = HelpByFlag();
  std::istringstream settings(Describe({}));
  for (std::string setting; settings >> setting;) {
    const std::string flag = setting.substr(0, setting.find('='));
    if (flag == "tls") continue;  // what several of them come to
    ASSERT_TRUE(help.contains(flag)) << flag;
    EXPECT_THAT(help.at(flag), HasSubstr("(default: "));
  }
}

TEST(HelpTextTest, GivesTheRangeOfEveryNumberAndDuration) {
  int limits = 0;
  for (const auto& [flag, text] : HelpByFlag()) {
    const bool limit = flag.starts_with("max_") || flag.starts_with("drain_") ||
                       flag == "workers" || flag == "default_deadline";
    if (!limit) continue;
    EXPECT_THAT(text, HasSubstr("Range:")) << flag;
    ++limits;
  }
  EXPECT_EQ(limits, 18);
}

}  // namespace
}  // namespace encoderd
