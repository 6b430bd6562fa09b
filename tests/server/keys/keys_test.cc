// Goal: changed files are taken over when they stand and are right; else what held before holds on,
// and it is said once.
// Method: real files, looks at times made by hand.
#include "server/keys/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "tests/engine/io/temp_folder.h"
#include "tests/server/keys/test_authority.h"

namespace encoderd {
namespace {

namespace fs = std::filesystem;
using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kOldToken[] = "old-token-12345678";
constexpr char kNewToken[] = "new-token-12345678";

class KeysTest : public ::testing::Test {
 protected:
  KeysTest() {
    Write(first_);
    folder_.Write("ca.crt", authority_.certificate());
    folder_.Write("tokens", kOldToken);
  }

  void Write(const TestCertificate& pair) const {
    folder_.Write("tls.crt", pair.certificate);
    folder_.Write("tls.key", pair.key);
  }

  KeyPaths Paths() const {
    return {.tls_cert_file = folder_.Path("tls.crt"),
            .tls_key_file = folder_.Path("tls.key"),
            .tls_client_ca_file = folder_.Path("ca.crt"),
            .token_file = folder_.Path("tokens")};
  }

  std::unique_ptr<Keys> Load() const { return Keys::Load(Paths(), now_).value(); }

  const absl::Time now_ = absl::Now();
  const TempFolder folder_;
  const TestAuthority authority_;
  const TestCertificate first_ = authority_.IssueForServer();
  const TestCertificate second_ = authority_.IssueForServer();
};

TEST_F(KeysTest, AreReadAtTheStart) {
  const auto keys = Load();
  EXPECT_TRUE(keys->asks_for_certificates());
  EXPECT_EQ(keys->tls()->serial, first_.serial);
  EXPECT_TRUE(keys->tokens()->Has(kOldToken));
  EXPECT_THAT(keys->Look(now_), IsEmpty());
}

TEST_F(KeysTest, NeedNotBeThere) {
  const auto keys = Keys::Load({}, now_).value();
  EXPECT_FALSE(keys->asks_for_certificates());
  EXPECT_EQ(keys->tls(), nullptr);
  EXPECT_EQ(keys->tokens(), nullptr);
  EXPECT_THAT(keys->Look(now_), IsEmpty());
}

TEST_F(KeysTest, TellEveryFaultAtTheStart) {
  fs::remove(folder_.Path("tls.key"));
  folder_.Write("tokens", "");
  EXPECT_THAT(Keys::Load(Paths(), now_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(absl::StrCat("--tls_key_file: ")),
                             HasSubstr(folder_.Path("tls.key")),
                             HasSubstr("; --token_file: expected at least one token"))));
}

TEST_F(KeysTest, AreNoMorePastAByteOfZero) {
  folder_.Write("tokens", std::string(kOldToken) + '\0' + kNewToken);
  EXPECT_THAT(Keys::Load(Paths(), now_), StatusIs(absl::StatusCode::kInvalidArgument,
                                                  HasSubstr("--token_file: expected text, got a")));
}

TEST_F(KeysTest, ChangeOnceTwoLooksHaveFoundTheSame) {
  const auto keys = Load();
  const auto held = keys->tls();
  Write(second_);
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_EQ(keys->tls()->serial, first_.serial);
  EXPECT_THAT(keys->Look(now_), ElementsAre(IsOk()));
  EXPECT_EQ(keys->tls()->serial, second_.serial);
  EXPECT_EQ(held->serial, first_.serial);  // who has taken them keeps them
  EXPECT_THAT(keys->Look(now_), IsEmpty());
}

// As `cp tls.crt tls.key …` does it.
TEST_F(KeysTest, APairThatIsHalfWrittenIsLeftAlone) {
  const auto keys = Load();
  folder_.Write("tls.crt", second_.certificate);
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  folder_.Write("tls.key", second_.key);
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_THAT(keys->Look(now_), ElementsAre(IsOk()));
  EXPECT_EQ(keys->tls()->serial, second_.serial);
}

TEST_F(KeysTest, APairThatDoesNotMatchIsToldOnceAndNotTaken) {
  const auto keys = Load();
  folder_.Write("tls.crt", second_.certificate);
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_THAT(keys->Look(now_), ElementsAre(StatusIs(absl::StatusCode::kInvalidArgument,
                                                     HasSubstr("expected the key of the "))));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_EQ(keys->tls()->serial, first_.serial);
  // Another fault is told as well.
  folder_.Write("tls.crt", "nothing");
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_THAT(keys->Look(now_), ElementsAre(StatusIs(absl::StatusCode::kInvalidArgument,
                                                     HasSubstr("a certificate in PEM"))));
  // Back to what holds: nothing to say. The same fault again: something.
  folder_.Write("tls.crt", first_.certificate);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(keys->Look(now_), IsEmpty());
  folder_.Write("tls.crt", "nothing");
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_EQ(keys->Look(now_).size(), 1);
  Write(second_);
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_THAT(keys->Look(now_), ElementsAre(IsOk()));
}

TEST_F(KeysTest, FilesThatAreGoneAreToldAndTheOldOnesHold) {
  const auto keys = Load();
  fs::remove(folder_.Path("tls.crt"));
  fs::remove(folder_.Path("tokens"));
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_THAT(keys->Look(now_),
              ElementsAre(StatusIs(::testing::_, HasSubstr(folder_.Path("tls.crt"))),
                          StatusIs(::testing::_, HasSubstr(folder_.Path("tokens")))));
  EXPECT_EQ(keys->tls()->serial, first_.serial);
  EXPECT_TRUE(keys->tokens()->Has(kOldToken));
}

TEST_F(KeysTest, ACertificateOfTheFutureIsTakenWhenItsTimeHasCome) {
  const auto keys = Load();
  const TestCertificate later =
      authority_.Issue({.common_name = "server", .not_before = now_ + absl::Minutes(10)});
  Write(later);
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_THAT(keys->Look(now_),
              ElementsAre(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("valid now"))));
  EXPECT_THAT(keys->Look(now_ + absl::Minutes(9)), IsEmpty());
  EXPECT_THAT(keys->Look(now_ + absl::Minutes(10)), ElementsAre(IsOk()));
  EXPECT_EQ(keys->tls()->serial, later.serial);
}

TEST_F(KeysTest, TokensChangeByThemselves) {
  const auto keys = Load();
  folder_.Write("tls.crt", "nothing");
  folder_.Write("tokens", absl::StrCat(kOldToken, "\n", kNewToken));
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_THAT(keys->Look(now_),
              ElementsAre(StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_), IsOk()));
  EXPECT_TRUE(keys->tokens()->Has(kOldToken));
  EXPECT_TRUE(keys->tokens()->Has(kNewToken));
  folder_.Write("tokens", kNewToken);
  keys->Look(now_);
  EXPECT_THAT(keys->Look(now_), ElementsAre(IsOk()));
  EXPECT_FALSE(keys->tokens()->Has(kOldToken));
}

// How Kubernetes mounts a secret: the files are links through a folder that is a link, which is
// replaced.
TEST_F(KeysTest, AMountedSecretChangesAllAtOnce) {
  for (const auto& [name, pair] : {std::pair("..1", first_), {"..2", second_}}) {
    folder_.Write(absl::StrCat(name, "/tls.crt"), pair.certificate);
    folder_.Write(absl::StrCat(name, "/tls.key"), pair.key);
  }
  fs::create_directory_symlink("..1", folder_.Path("..data"));
  for (const char* name : {"tls.crt", "tls.key"}) {
    fs::remove(folder_.Path(name));
    fs::create_symlink(absl::StrCat("..data/", name), folder_.Path(name));
  }
  const auto keys = Load();
  fs::create_directory_symlink("..2", folder_.Path("..data_new"));
  fs::rename(folder_.Path("..data_new"), folder_.Path("..data"));
  EXPECT_THAT(keys->Look(now_), IsEmpty());
  EXPECT_THAT(keys->Look(now_), ElementsAre(IsOk()));
  EXPECT_EQ(keys->tls()->serial, second_.serial);
}

}  // namespace
}  // namespace encoderd
