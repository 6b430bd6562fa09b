// Goal: the program says at its start what is wrong with its keys, in its log who fails a handshake,
// and takes over keys that change while it runs.
// Method: the real binary on a tiny model, certificates made on the spot.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/io/temp_folder.h"
#include "tests/integration/encoderd_process.h"
#include "tests/server/keys/test_authority.h"

namespace encoderd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kBert = ENCODERD_SOURCE_DIR "/tests/goldens/bert/model";
constexpr char kToken[] = "a-token-of-this-test";

class TlsProcessTest : public ::testing::Test {
 protected:
  TlsProcessTest() {
    Write(authority_.IssueForServer());
    folder_.Write("ca.crt", authority_.certificate());
    folder_.Write("tokens", kToken);
  }

  void Write(const TestCertificate& pair) const {
    folder_.Write("tls.crt", pair.certificate);
    folder_.Write("tls.key", pair.key);
  }

  std::vector<std::string> Flags() const {
    return {"--model_dir=" + kBert,
            "--tls_cert_file=" + folder_.Path("tls.crt"),
            "--tls_key_file=" + folder_.Path("tls.key"),
            "--tls_client_ca_file=" + folder_.Path("ca.crt"),
            "--allowed_clients=search",
            "--token_file=" + folder_.Path("tokens")};
  }

  // Runs it to its end, which the flags and files are to bring about.
  std::string FaultAtStart(const std::vector<std::string>& flags) const {
    Encoderd encoderd(flags);
    EXPECT_EQ(encoderd.process().Wait(), 64);
    EXPECT_THAT(encoderd.process().output(), Not(HasSubstr("Listening.")));
    return encoderd.process().output();
  }

  // A channel that shows the certificate of a client of this name, or none.
  std::shared_ptr<grpc::Channel> Connect(const Encoderd& encoderd, const std::string& name) const {
    grpc::SslCredentialsOptions options = {.pem_root_certs = authority_.certificate()};
    if (!name.empty()) {
      const TestCertificate client = authority_.Issue({.common_name = name});
      options.pem_cert_chain = client.certificate;
      options.pem_private_key = client.key;
    }
    return ConnectAlone(encoderd.address(), {}, grpc::SslCredentials(options));
  }

  static grpc::Status GetModel(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& token) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    v1::GetModelResponse model;
    return v1::EncoderService::NewStub(channel)->GetModel(&context, {}, &model);
  }

  const TempFolder folder_;
  const TestAuthority authority_;
};

TEST_F(TlsProcessTest, FaultsOfKeysEndItWithWhatWhereAndSixtyFour) {
  const TestCertificate good = authority_.IssueForServer();
  folder_.Write("tls.crt", good.certificate);
  EXPECT_THAT(FaultAtStart(Flags()),
              HasSubstr(absl::StrCat("--tls_key_file: expected the key of the certificate in ",
                                     folder_.Path("tls.crt"), ", got another one in ",
                                     folder_.Path("tls.key"))));
  folder_.Write("tls.crt", "");
  folder_.Write("tokens", "# none\n");
  EXPECT_THAT(FaultAtStart(Flags()),
              AllOf(HasSubstr("--tls_cert_file: expected a certificate in PEM, got none in "),
                    HasSubstr("--token_file: expected at least one token, got none in ")));
  Write(authority_.Issue({.common_name = "server", .not_after = absl::Now() - absl::Minutes(1)}));
  EXPECT_THAT(
      FaultAtStart(Flags()),
      HasSubstr("--tls_cert_file: expected certificates that are valid now, got one from "));
  EXPECT_THAT(FaultAtStart({"--model_dir=" + kBert, "--tls_cert_file=/no/such/tls.crt",
                            "--tls_key_file=/no/such/tls.key"}),
              HasSubstr("--tls_cert_file: cannot open /no/such/tls.crt"));
  EXPECT_THAT(FaultAtStart({"--model_dir=" + kBert, "--tls_cert_file=/k/tls.crt", "--plaintext"}),
              AllOf(HasSubstr("--tls_key_file: expected the key of --tls_cert_file, got none"),
                    HasSubstr("--plaintext: expected false with --tls_cert_file, got true")));
}

TEST_F(TlsProcessTest, ServesThoseWhoMayCallAndNamesTheRestInItsLog) {
  Encoderd encoderd(Flags());
  encoderd.AwaitServing();
  EXPECT_THAT(
      encoderd.process().output(),
      AllOf(HasSubstr(" tls=mutual "), HasSubstr(" allowed_clients=1 "),
            HasSubstr("Read the keys. serial="), HasSubstr(" tokens=1"), Not(HasSubstr(kToken))));
  EXPECT_TRUE(GetModel(Connect(encoderd, "search"), kToken).ok());
  EXPECT_EQ(GetModel(Connect(encoderd, "search"), "x").error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(GetModel(Connect(encoderd, "other"), kToken).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(GetModel(Connect(encoderd, ""), kToken).error_code(), grpc::StatusCode::UNAVAILABLE);
  encoderd.process().AwaitLine("gRPC: Handshake failed with fatal error SSL_ERROR_SSL");
  encoderd.process().Signal(SIGTERM);
  EXPECT_EQ(encoderd.process().Wait(), 0);
}

TEST_F(TlsProcessTest, TakesOverKeysThatChange) {
  Encoderd encoderd(Flags());
  encoderd.AwaitServing();
  const TestCertificate next = authority_.IssueForServer();
  Write(next);
  encoderd.process().AwaitLine(absl::StrCat("Took over changed keys. serial=", next.serial));
  folder_.Write("tls.key", "");
  encoderd.process().AwaitLine("ERROR key_watch.cc");
  EXPECT_TRUE(GetModel(Connect(encoderd, "search"), kToken).ok());
}

}  // namespace
}  // namespace encoderd
