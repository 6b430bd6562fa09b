// Goal: what became of changed keys is counted and exported.
// Method: a clock moved by hand; the watch's thread is waited for by what it counts.
#include "server/keys/key_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "tests/engine/io/temp_folder.h"
#include "tests/server/batching/fake_clock.h"
#include "tests/server/keys/test_authority.h"
#include "tests/server/metrics_text.h"

namespace encoderd {
namespace {

constexpr char kOk[] = "encoderd_tls_reloads_total{result=\"ok\"}";
constexpr char kFailed[] = "encoderd_tls_reloads_total{result=\"failed\"}";
constexpr char kNotAfter[] = "encoderd_tls_certificate_not_after_seconds";

class KeyWatchTest : public ::testing::Test {
 protected:
  KeyWatchTest() { clock_.Advance(absl::Now() - clock_.Now()); }

  TestCertificate Write(absl::Duration lasts) const {
    TestCertificate pair = authority_.Issue({.common_name = "server", .not_after = start_ + lasts});
    folder_.Write("tls.crt", pair.certificate);
    folder_.Write("tls.key", pair.key);
    return pair;
  }
  std::map<std::string, double> Values() const { return ReadMetrics(metrics_->Text()); }
  // Lets time pass until the series has the value.
  void Await(const std::string& series, double value) {
    while (Values()[series] != value) {
      clock_.Advance(KeyWatch::kPeriod);
      std::this_thread::yield();
    }
  }

  FakeClock clock_;
  const absl::Time start_ = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  const TempFolder folder_;
  const TestAuthority authority_;
  const std::unique_ptr<Metrics> metrics_ = Metrics::Start("", "test", "test").value();
};

TEST_F(KeyWatchTest, CountsChangesAndExportsTheEndOfTheCertificate) {
  EXPECT_FALSE(Values().contains(kNotAfter));
  Write(absl::Hours(500));
  const auto keys = Keys::Load({.tls_cert_file = folder_.Path("tls.crt"),
                                .tls_key_file = folder_.Path("tls.key")},
                               clock_.Now())
                        .value();
  const KeyWatch watch(*keys, clock_, *metrics_);
  const auto end_after = [this](absl::Duration lasts) {
    return static_cast<double>(absl::ToUnixSeconds(start_ + lasts));
  };
  EXPECT_EQ(Values()[kNotAfter], end_after(absl::Hours(500)));
  EXPECT_EQ(Values()[kOk], 0);

  const TestCertificate second = Write(absl::Hours(900));
  Await(kOk, 1);
  EXPECT_EQ(Values()[kNotAfter], end_after(absl::Hours(900)));
  EXPECT_EQ(keys->tls()->serial, second.serial);

  folder_.Write("tls.key", "no key");
  Await(kFailed, 1);
  EXPECT_EQ(Values()[kOk], 1);
  EXPECT_EQ(Values()[kNotAfter], end_after(absl::Hours(900)));
}

TEST_F(KeyWatchTest, HasNothingToDoWithoutKeys) {
  const auto keys = Keys::Load({}, clock_.Now()).value();
  const KeyWatch watch(*keys, clock_, *metrics_);
  EXPECT_FALSE(Values().contains(kNotAfter));
  EXPECT_EQ(Values()[kFailed], 0);
}

}  // namespace
}  // namespace encoderd
