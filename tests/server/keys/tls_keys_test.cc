// Goal: what is served in handshakes can be served; everything else is refused with its place.
// Method: certificates of a test authority, right and wrong in one thing each.
#include "server/keys/tls_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "tests/server/keys/test_authority.h"

namespace encoderd {
namespace {

using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsKeysTest : public ::testing::Test {
 protected:
  static absl::StatusOr<TlsKeys> Make(const std::string& certificate, const std::string& key,
                                      const std::string& client_cas = "") {
    std::vector<KeyText> files = {{"tls_cert_file", "/k/tls.crt", certificate},
                                  {"tls_key_file", "/k/tls.key", key}};
    if (!client_cas.empty()) files.push_back({"tls_client_ca_file", "/k/ca.crt", client_cas});
    return MakeTlsKeys(files, absl::Now());
  }

  static auto Faulty(const std::string& start, const std::string& end) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(::testing::StartsWith(start), ::testing::EndsWith(end)));
  }

  const TestAuthority authority_;
  const TestCertificate server_ = authority_.IssueForServer();
};

TEST_F(TlsKeysTest, TakesAPairWithItsChainAndAuthorities) {
  const absl::Time end = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()) + 600);
  const TestAuthority ends_first({.common_name = "between", .not_after = end});
  const std::string chain = server_.certificate + ends_first.certificate();
  const auto keys = Make(chain, server_.key, authority_.certificate());
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->certificates, chain);
  EXPECT_EQ(keys->key, server_.key);
  EXPECT_EQ(keys->client_cas, authority_.certificate());
  EXPECT_EQ(keys->serial, server_.serial);
  EXPECT_EQ(keys->not_after, end);  // that of the chain which ends first
  EXPECT_EQ(Make(server_.certificate, server_.key)->client_cas, "");
}

TEST_F(TlsKeysTest, TakesTextAroundTheCertificates) {
  EXPECT_TRUE(Make(absl::StrCat("subject=…\n", server_.certificate, "\nend\n"), server_.key).ok());
  // A file with everything in it, given twice.
  const std::string both = server_.key + server_.certificate;
  EXPECT_TRUE(Make(both, both).ok());
}

TEST_F(TlsKeysTest, RefusesWhatIsNoCertificate) {
  for (const char* text : {"", "hello"}) {
    EXPECT_THAT(
        Make(text, server_.key),
        Faulty("--tls_cert_file: expected a certificate in PEM, got none", "in /k/tls.crt"));
  }
  std::string broken = server_.certificate;
  broken[60] = '!';
  EXPECT_THAT(
      Make(broken, server_.key),
      Faulty("--tls_cert_file: expected certificates in PEM, got a fault in certificate 1 (",
             ") in /k/tls.crt"));
  // gRPC would serve with the part that can be read.
  EXPECT_THAT(
      Make(server_.certificate + broken, server_.key),
      Faulty("--tls_cert_file: expected certificates in PEM, got a fault in certificate 2 (",
             ") in /k/tls.crt"));
}

TEST_F(TlsKeysTest, RefusesWhatIsNoKey) {
  for (const std::string& text : {std::string(), server_.certificate, EncryptedKey(server_.key),
                                  server_.key.substr(0, server_.key.size() / 2)}) {
    EXPECT_THAT(Make(server_.certificate, text),
                Faulty("--tls_key_file: expected a private key in PEM, not encrypted, got ",
                       " in /k/tls.key"));
  }
}

TEST_F(TlsKeysTest, RefusesTheKeyOfAnotherCertificate) {
  EXPECT_THAT(Make(server_.certificate, authority_.IssueForServer().key),
              Faulty("--tls_key_file: expected the key of the certificate in /k/tls.crt, got "
                     "another one in /k/tls.key",
                     ""));
}

TEST_F(TlsKeysTest, RefusesCertificatesThatAreNotValidNow) {
  const absl::Time now = absl::Now();
  for (const auto& [from, to] : {std::pair(now - absl::Hours(2), now - absl::Hours(1)),
                                 {now + absl::Hours(1), now + absl::Hours(2)}}) {
    const TestCertificate server =
        authority_.Issue({.common_name = "server", .not_before = from, .not_after = to});
    const std::string got = absl::StrCat(
        "--tls_cert_file: expected certificates that are valid now, got one from ",
        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", from, absl::UTCTimeZone()), " to ",
        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", to, absl::UTCTimeZone()), " in /k/tls.crt");
    EXPECT_THAT(Make(server.certificate, server.key), Faulty(got, ""));
    const TestAuthority between({.common_name = "between", .not_before = from, .not_after = to});
    EXPECT_THAT(Make(server_.certificate + between.certificate(), server_.key), Faulty(got, ""));
  }
}

TEST_F(TlsKeysTest, NeedsOneAuthorityThatIsValid) {
  const absl::Time now = absl::Now();
  const TestAuthority ended({.common_name = "authority",
                             .not_before = now - absl::Hours(2),
                             .not_after = now - absl::Hours(1)});
  EXPECT_THAT(
      Make(server_.certificate, server_.key, ended.certificate()),
      Faulty("--tls_client_ca_file: expected certificates that are valid now", "in /k/ca.crt"));
  EXPECT_TRUE(
      Make(server_.certificate, server_.key, ended.certificate() + authority_.certificate()).ok());
  EXPECT_THAT(
      Make(server_.certificate, server_.key, "nothing"),
      Faulty("--tls_client_ca_file: expected a certificate in PEM, got none", "in /k/ca.crt"));
}

}  // namespace
}  // namespace encoderd
