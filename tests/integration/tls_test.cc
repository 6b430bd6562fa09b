// Goal: whoever may not connect cannot; who may connect and not call is refused with a reason; keys
// change under calls without a failed one.
// Method: a whole server around the fake engine, clients of gRPC and of OpenSSL, certificates made
// on the spot, a clock moved by hand where files change.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/keys/key_watch.h"
#include "tests/engine/io/temp_folder.h"
#include "tests/integration/connect.h"
#include "tests/integration/test_server.h"
#include "tests/server/batching/fake_clock.h"
#include "tests/server/keys/test_authority.h"

namespace encoderd {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTokens[] = "# two that hold\nfirst-token-123456\nsecond-token-123456\n";

// An authority, the files of a server that it has made, and its clients.
class Fleet {
 public:
  Fleet() {
    WriteServer(server_);
    folder_.Write("ca.crt", authority_.certificate());
    folder_.Write("tokens", kTokens);
  }

  void WriteServer(const TestCertificate& pair) const {
    folder_.Write("tls.crt", pair.certificate);
    folder_.Write("tls.key", pair.key);
  }
  void Write(const std::string& name, const std::string& text) const { folder_.Write(name, text); }

  Options ServerTls() const {
    Options options = TestOptions();
    options.tls_cert_file = folder_.Path("tls.crt");
    options.tls_key_file = folder_.Path("tls.key");
    return options;
  }
  Options MutualTls() const {
    Options options = ServerTls();
    options.tls_client_ca_file = folder_.Path("ca.crt");
    return options;
  }
  Options WithTokens(Options options) const {
    options.token_file = folder_.Path("tokens");
    return options;
  }

  // Trusts the authority and shows this certificate, or none.
  std::shared_ptr<grpc::ChannelCredentials> Client(const TestCertificate& shown = {}) const {
    return grpc::SslCredentials({.pem_root_certs = authority_.certificate(),
                                 .pem_private_key = shown.key,
                                 .pem_cert_chain = shown.certificate});
  }

  const TestAuthority& authority() const { return authority_; }
  const TestCertificate& server() const { return server_; }

 private:
  const TempFolder folder_;
  const TestAuthority authority_;
  const TestCertificate server_ = authority_.IssueForServer();
};

std::string AddressOf(TestServer& server) {
  return absl::StrCat("127.0.0.1:", server.server().port());
}

std::shared_ptr<grpc::Channel> Connect(
    TestServer& server, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  return ConnectAlone(AddressOf(server), {}, credentials);
}

struct Called {
  grpc::Status status;
  std::string shown;  // the server's certificate
};

// One call of Encode with this `authorization`; "" = without.
Called Encode(const std::shared_ptr<grpc::Channel>& channel,
              const std::string& authorization = "") {
  grpc::ClientContext context;
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  v1::EncodeResponse response;
  Called called;
  called.status =
      v1::EncoderService::NewStub(channel)->Encode(&context, IdsRequest({{1, 2}}), &response);
  if (!called.status.ok() || context.auth_context() == nullptr) return called;
  for (const grpc::string_ref& pem :
       context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME)) {
    called.shown.assign(pem.data(), pem.size());
  }
  return called;
}

std::string Refusals(const std::string& reason) {
  return absl::StrCat("encoderd_refusals_total{reason=\"", reason, "\"}");
}

// ---- Handshakes ---------------------------------------------------------------------------------

TEST(TlsTest, ServesThoseWhoTrustItsAuthority) {
  const Fleet fleet;
  TestServer server(fleet.ServerTls());
  const Called called = Encode(Connect(server, fleet.Client()));
  EXPECT_TRUE(called.status.ok()) << called.status.error_message();
  EXPECT_EQ(called.shown, fleet.server().certificate);
  const TestAuthority stranger;
  const auto misled = grpc::SslCredentials({.pem_root_certs = stranger.certificate()});
  EXPECT_EQ(Encode(Connect(server, misled)).status.error_code(), StatusCode::UNAVAILABLE);
}

TEST(TlsTest, TakesNoPlaintext) {
  const Fleet fleet;
  TestServer server(fleet.ServerTls());
  EXPECT_EQ(Encode(server.channel()).status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Encode(Connect(server, fleet.Client())).status.ok());
}

TEST(TlsTest, APlaintextServerTakesNoTls) {
  const Fleet fleet;
  TestServer server;
  EXPECT_EQ(Encode(Connect(server, fleet.Client())).status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Encode(server.channel()).status.ok());
}

TEST(MutualTlsTest, NeedsACertificateOfTheAuthority) {
  const Fleet fleet;
  TestServer server(fleet.MutualTls());
  const TestCertificate good = fleet.authority().Issue({.common_name = "client"});
  EXPECT_TRUE(Encode(Connect(server, fleet.Client(good))).status.ok());

  EXPECT_EQ(Encode(Connect(server, fleet.Client())).status.error_code(), StatusCode::UNAVAILABLE);
  const TestAuthority stranger;  // of the same name
  EXPECT_EQ(Encode(Connect(server, fleet.Client(stranger.Issue({.common_name = "client"}))))
                .status.error_code(),
            StatusCode::UNAVAILABLE);
  const absl::Time now = absl::Now();
  const TestCertificate ended = fleet.authority().Issue({.common_name = "client",
                                                         .not_before = now - absl::Hours(2),
                                                         .not_after = now - absl::Hours(1)});
  EXPECT_EQ(Encode(Connect(server, fleet.Client(ended))).status.error_code(),
            StatusCode::UNAVAILABLE);
  // Nothing of all that reached a handler, and who was there is served on.
  EXPECT_EQ(server.Metric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}"), 1);
  EXPECT_EQ(server.Metric("encoderd_calls_total{code=\"UNAVAILABLE\",method=\"Encode\"}"), 0);
}

// A client without a library's good manners.
class RawClient {
 public:
  RawClient(int port, int max_version, bool offers_http2) {
    signal(SIGPIPE, SIG_IGN);  // of a server that closes
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);  // else OpenSSL itself has nothing below 1.2
    SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context, max_version);
    bio_ = BIO_new_ssl_connect(context);
    SSL_CTX_free(context);
    BIO_set_conn_hostname(bio_, absl::StrCat("127.0.0.1:", port).c_str());
    BIO_get_ssl(bio_, &ssl_);
    constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    if (offers_http2) SSL_set_alpn_protos(ssl_, kHttp2, sizeof(kHttp2));
  }
  ~RawClient() { BIO_free_all(bio_); }

  // The version of the handshake, "" when it fails.
  std::string Handshake() {
    return BIO_do_handshake(bio_) == 1 ? SSL_get_version(ssl_) : std::string();
  }

  // Whether the server answers HTTP/2's greeting with its own, a frame of settings.
  bool IsGreeted() {
    const std::string greeting =
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9);
    BIO_write(bio_, greeting.data(), static_cast<int>(greeting.size()));
    BIO_flush(bio_);
    char frame[9];
    return BIO_read(bio_, frame, sizeof(frame)) == sizeof(frame) && frame[3] == 4;
  }

 private:
  BIO* bio_ = nullptr;
  SSL* ssl_ = nullptr;
};

TEST(TlsTest, SpeaksTls12And13AndHttp2Alone) {
  const Fleet fleet;
  TestServer server(fleet.ServerTls());
  const int port = server.server().port();
  RawClient best(port, TLS1_3_VERSION, /*offers_http2=*/true);
  EXPECT_EQ(best.Handshake(), "TLSv1.3");
  EXPECT_TRUE(best.IsGreeted());
  RawClient least(port, TLS1_2_VERSION, /*offers_http2=*/true);
  EXPECT_EQ(least.Handshake(), "TLSv1.2");
  EXPECT_TRUE(least.IsGreeted());
  EXPECT_EQ(RawClient(port, TLS1_1_VERSION, /*offers_http2=*/true).Handshake(), "");
  RawClient other(port, TLS1_3_VERSION, /*offers_http2=*/false);
  EXPECT_FALSE(other.Handshake() != "" && other.IsGreeted());
}

class HandshakeTimeoutTest : public ::testing::TestWithParam<bool> {};

TEST_P(HandshakeTimeoutTest, EndsAConnectionThatSaysNothing) {
  const Fleet fleet;
  Options options = GetParam() ? fleet.ServerTls() : TestOptions();
  options.handshake_timeout = absl::Milliseconds(50);
  TestServer server(options);
  BIO* const silent = BIO_new_connect(AddressOf(server).c_str());
  ASSERT_EQ(BIO_do_connect(silent), 1);
  char bytes[256];
  while (BIO_read(silent, bytes, sizeof(bytes)) > 0) {  // HTTP/2 greets first, TLS does not
  }
  BIO_free(silent);
  server.AwaitMetric("encoderd_connections", 0);
}

INSTANTIATE_TEST_SUITE_P(PlaintextAndTls, HandshakeTimeoutTest, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Tls" : "Plaintext"; });

// ---- Who may call -------------------------------------------------------------------------------

struct ClientCase {
  const char* name;
  TestSubject subject;
  bool allowed;
};

void PrintTo(const ClientCase& one, std::ostream* out) { *out << one.name; }

class AllowedClientsTest : public ::testing::TestWithParam<ClientCase> {};

TEST_P(AllowedClientsTest, AreKnownByTheirCertificate) {
  const Fleet fleet;
  Options options = fleet.MutualTls();
  options.allowed_clients = {"search.example", "spiffe://example.org/ns/a/sa/search", "search"};
  TestServer server(options);
  const auto channel = Connect(server, fleet.Client(fleet.authority().Issue(GetParam().subject)));
  const grpc::Status status = Encode(channel).status;
  if (GetParam().allowed) {
    EXPECT_TRUE(status.ok()) << status.error_message();
  } else {
    EXPECT_THAT(status, Refused(StatusCode::PERMISSION_DENIED, "CLIENT_NOT_ALLOWED",
                                "a name that this server allows"));
  }
  EXPECT_EQ(server.Metric(Refusals("CLIENT_NOT_ALLOWED")), GetParam().allowed ? 0 : 1);
}

INSTANTIATE_TEST_SUITE_P(
    Names, AllowedClientsTest,
    ::testing::Values(
        ClientCase{"Dns", {.names = {"DNS:search.example"}}, true},
        ClientCase{"SecondDns", {.names = {"DNS:a.example", "DNS:search.example"}}, true},
        ClientCase{"Uri", {.names = {"URI:spiffe://example.org/ns/a/sa/search"}}, true},
        ClientCase{"CommonName", {.common_name = "search"}, true},
        ClientCase{"CommonNameBesideAnAddress",
                   {.common_name = "search", .names = {"IP:127.0.0.1"}},
                   true},
        ClientCase{"OtherDns", {.names = {"DNS:search.example.org"}}, false},
        ClientCase{"WildcardDns", {.names = {"DNS:*.example"}}, false},
        ClientCase{"OtherUri", {.names = {"URI:spiffe://example.org/ns/a/sa/search/b"}}, false},
        ClientCase{"OtherCommonName", {.common_name = "searching"}, false},
        // Where an authority vouches for better names, the common one is but a label.
        ClientCase{"CommonNameBesideDns",
                   {.common_name = "search", .names = {"DNS:other.example"}},
                   false},
        ClientCase{"CommonNameLikeAUri",
                   {.common_name = "spiffe://example.org/ns/a/sa/search"},
                   false},
        ClientCase{"AllowedTextAsMail", {.names = {"email:search@example.org"}}, false},
        ClientCase{"NoName", {}, false}),
    [](const auto& one) { return one.param.name; });

// Statuses of one call of each of our methods, and of one that does not exist.
std::vector<grpc::Status> CallAll(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::EncoderService::NewStub(channel);
  std::vector<grpc::Status> statuses = {Encode(channel).status};
  {
    grpc::ClientContext context;
    v1::EncodeChunk chunk;
    const auto reader = stub->EncodeChunked(&context, IdsRequest({{1}}));
    while (reader->Read(&chunk)) {
    }
    statuses.push_back(reader->Finish());
  }
  {
    grpc::ClientContext context;
    v1::GetModelResponse model;
    statuses.push_back(stub->GetModel(&context, {}, &model));
  }
  grpc::ClientContext context;
  grpc::ByteBuffer request = [] {
    const grpc::Slice nothing;
    return grpc::ByteBuffer(&nothing, 1);
  }();
  grpc::ByteBuffer response;
  grpc::GenericStub generic(channel);
  std::promise<grpc::Status> unknown;
  generic.UnaryCall(&context, "/encoderd.v1.EncoderService/Nothing", grpc::StubOptions(), &request,
                    &response, [&unknown](grpc::Status status) { unknown.set_value(status); });
  statuses.push_back(unknown.get_future().get());
  return statuses;
}

grpc::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  return grpc::health::v1::Health::NewStub(channel)->Check(&context, {}, &response);
}

TEST(AccessTest, HoldsForEveryMethodButHealth) {
  const Fleet fleet;
  Options options = fleet.MutualTls();
  options.allowed_clients = {"search"};
  TestServer server(options);
  const auto channel =
      Connect(server, fleet.Client(fleet.authority().Issue({.common_name = "other"})));
  for (const grpc::Status& status : CallAll(channel)) {
    EXPECT_THAT(status, Refused(StatusCode::PERMISSION_DENIED, "CLIENT_NOT_ALLOWED", "\"other\""));
  }
  EXPECT_EQ(server.Metric(Refusals("CLIENT_NOT_ALLOWED")), 4);
  EXPECT_TRUE(CheckHealth(channel).ok());

  TestServer with_tokens(fleet.WithTokens(TestOptions()));
  for (const grpc::Status& status : CallAll(with_tokens.channel())) {
    EXPECT_THAT(status, Refused(StatusCode::UNAUTHENTICATED, "TOKEN_MISSING", "authorization"));
  }
  EXPECT_EQ(with_tokens.Metric(Refusals("TOKEN_MISSING")), 4);
  EXPECT_TRUE(CheckHealth(with_tokens.channel()).ok());
}

TEST(AccessTest, TheAccessLogNamesWhoCalledAndWhoMayNot) {
  const Fleet fleet;
  const TempFolder folder;
  Options options = fleet.MutualTls();
  options.allowed_clients = {"search"};
  options.access_log = folder.Path("calls");
  TestServer server(options);
  for (const char* name : {"search", "other"}) {
    Encode(Connect(server, fleet.Client(fleet.authority().Issue({.common_name = name}))));
  }
  server.server().Drain();
  std::ifstream file(options.access_log);
  std::string may, may_not;
  std::getline(file, may);
  std::getline(file, may_not);
  EXPECT_THAT(may, AllOf(HasSubstr(R"("code":"OK")"), HasSubstr(R"("client":"search")")));
  EXPECT_THAT(may_not, AllOf(HasSubstr(R"("code":"PERMISSION_DENIED")"),
                             HasSubstr(R"("reason":"CLIENT_NOT_ALLOWED")"),
                             HasSubstr(R"("client":"other")")));
}

TEST(AccessTest, ComesBeforeTheRequestAndBeforeLoading) {
  const Fleet fleet;
  TestServer server(fleet.WithTokens(TestOptions()), TestServer::NotLoaded());
  EXPECT_THAT(server.Encode(v1::EncodeRequest()),
              Refused(StatusCode::UNAUTHENTICATED, "TOKEN_MISSING", ""));
  EXPECT_THAT(Encode(server.channel(), "Bearer first-token-123456").status,
              Refused(StatusCode::UNAVAILABLE, "LOADING", ""));
}

TEST(TokenTest, AnyOfTheFileLetsACallIn) {
  const Fleet fleet;
  TestServer server(fleet.WithTokens(fleet.ServerTls()));
  const auto channel = Connect(server, fleet.Client());
  for (const char* good :
       {"Bearer first-token-123456", "Bearer second-token-123456", "bearer second-token-123456"}) {
    EXPECT_TRUE(Encode(channel, good).status.ok()) << good;
  }
  for (const char* wrong : {"Bearer first-token-12345", "Bearer first-token-1234567",
                            "Bearer # two that hold", "Bearer  first-token-123456", "Bearer "}) {
    EXPECT_THAT(Encode(channel, wrong).status,
                Refused(StatusCode::UNAUTHENTICATED, "TOKEN_WRONG", "another one"));
  }
  for (const char* none : {"", "Basic Zmlyc3Q6dG9rZW4=", "first-token-123456", "Bearer"}) {
    EXPECT_THAT(Encode(channel, none).status,
                Refused(StatusCode::UNAUTHENTICATED, "TOKEN_MISSING", "got none"));
  }
  EXPECT_EQ(server.Metric(Refusals("TOKEN_WRONG")), 5);
  EXPECT_EQ(server.Metric(Refusals("TOKEN_MISSING")), 4);
}

TEST(TokenTest, IsNeededBesideAnAllowedName) {
  const Fleet fleet;
  Options options = fleet.WithTokens(fleet.MutualTls());
  options.allowed_clients = {"search"};
  TestServer server(options);
  const auto channel =
      Connect(server, fleet.Client(fleet.authority().Issue({.common_name = "search"})));
  EXPECT_THAT(Encode(channel).status, Refused(StatusCode::UNAUTHENTICATED, "TOKEN_MISSING", ""));
  EXPECT_TRUE(Encode(channel, "Bearer first-token-123456").status.ok());
}

// ---- Changes ------------------------------------------------------------------------------------

constexpr char kReloaded[] = "encoderd_tls_reloads_total{result=\"ok\"}";
constexpr char kNotReloaded[] = "encoderd_tls_reloads_total{result=\"failed\"}";

class ReloadTest : public ::testing::Test {
 protected:
  ReloadTest() { clock_.Advance(absl::Now() - clock_.Now()); }

  // Lets time pass until the series has the value.
  void Await(const TestServer& server, const char* series, double value) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (server.Metric(series) != value) {
      ASSERT_LT(absl::Now(), end) << series << " is " << server.Metric(series);
      clock_.Advance(KeyWatch::kPeriod);
      std::this_thread::yield();
    }
  }

  FakeClock clock_;
  const Fleet fleet_;
};

TEST_F(ReloadTest, ACertificateChangesUnderCallsWithoutAFailedOne) {
  TestServer server(fleet_.MutualTls(), clock_);
  const auto client = fleet_.Client(fleet_.authority().Issue({.common_name = "client"}));
  std::atomic<bool> stop = false;
  std::atomic<int> failed = 0;
  std::atomic<int> answered = 0;
  const auto call = [&](const std::shared_ptr<grpc::Channel>& channel) {
    ++(Encode(channel).status.ok() ? answered : failed);
  };
  std::thread steady([&, channel = Connect(server, client)] {
    while (!stop) call(channel);
  });
  std::thread coming([&] {
    while (!stop) call(Connect(server, client));
  });

  for (int round = 1; round <= 3; ++round) {
    const TestCertificate next = fleet_.authority().IssueForServer();
    fleet_.WriteServer(next);
    Await(server, kReloaded, round);
    const Called called = Encode(Connect(server, client));
    EXPECT_TRUE(called.status.ok()) << called.status.error_message();
    EXPECT_EQ(called.shown, next.certificate);
    const int before = answered;
    while (answered < before + 10 && failed == 0) std::this_thread::yield();
  }
  stop = true;
  steady.join();
  coming.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(server.Metric(kNotReloaded), 0);
}

TEST_F(ReloadTest, APairThatDoesNotMatchIsNotTaken) {
  TestServer server(fleet_.ServerTls(), clock_);
  fleet_.Write("tls.crt", fleet_.authority().IssueForServer().certificate);
  Await(server, kNotReloaded, 1);
  EXPECT_EQ(Encode(Connect(server, fleet_.Client())).shown, fleet_.server().certificate);
  EXPECT_EQ(server.Metric(kReloaded), 0);
}

TEST_F(ReloadTest, AnAuthorityChangesForNewConnections) {
  TestServer server(fleet_.MutualTls(), clock_);
  const TestAuthority next;
  const auto old_client = fleet_.Client(fleet_.authority().Issue({.common_name = "client"}));
  const auto new_client = fleet_.Client(next.Issue({.common_name = "client"}));
  const auto open = Connect(server, old_client);
  EXPECT_TRUE(Encode(open).status.ok());
  EXPECT_FALSE(Encode(Connect(server, new_client)).status.ok());

  fleet_.Write("ca.crt", next.certificate() + fleet_.authority().certificate());
  Await(server, kReloaded, 1);
  EXPECT_TRUE(Encode(Connect(server, old_client)).status.ok());
  EXPECT_TRUE(Encode(Connect(server, new_client)).status.ok());

  fleet_.Write("ca.crt", next.certificate());
  Await(server, kReloaded, 2);
  EXPECT_FALSE(Encode(Connect(server, old_client)).status.ok());
  EXPECT_TRUE(Encode(Connect(server, new_client)).status.ok());
  EXPECT_TRUE(Encode(open).status.ok());  // until it is closed
}

TEST_F(ReloadTest, TokensChangeForCallsOnOpenConnections) {
  TestServer server(fleet_.WithTokens(TestOptions()), clock_);
  const auto channel = server.channel();
  EXPECT_TRUE(Encode(channel, "Bearer first-token-123456").status.ok());
  fleet_.Write("tokens", "second-token-123456\nthird-token-123456\n");
  Await(server, kReloaded, 1);
  EXPECT_THAT(Encode(channel, "Bearer first-token-123456").status,
              Refused(StatusCode::UNAUTHENTICATED, "TOKEN_WRONG", ""));
  EXPECT_TRUE(Encode(channel, "Bearer second-token-123456").status.ok());
  EXPECT_TRUE(Encode(channel, "Bearer third-token-123456").status.ok());
  fleet_.Write("tokens", "# none\n");
  Await(server, kNotReloaded, 1);
  EXPECT_TRUE(Encode(channel, "Bearer third-token-123456").status.ok());
}

TEST(TlsTest, FaultyKeysAreToldAtTheStart) {
  const Fleet fleet;
  fleet.Write("tls.key", "none");
  fleet.Write("tokens", "");
  auto metrics = Metrics::Start("", Version(), "test");
  const auto server = Server::Listen(fleet.WithTokens(fleet.ServerTls()), **metrics);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()),
              ::testing::AllOf(::testing::HasSubstr("--tls_key_file: expected a private key"),
                               ::testing::HasSubstr("--token_file: expected at least one token")));
}

}  // namespace
}  // namespace encoderd
