// test_authority.h — certificates made on the spot, for tests of TLS.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace encoderd {

struct TestSubject {
  std::string common_name;         // "" = none
  std::vector<std::string> names;  // "DNS:a.example", "URI:spiffe://…", "IP:127.0.0.1"
  absl::Time not_before = absl::Now() - absl::Hours(1);
  absl::Time not_after = absl::Now() + absl::Hours(1);
};

struct TestCertificate {
  std::string certificate;  // PEM
  std::string key;          // PEM
  std::string serial;       // hexadecimal, as `openssl x509 -serial` prints it
};

// An authority with a key of its own. Any two are strangers, whatever their names.
class TestAuthority {
 public:
  explicit TestAuthority(const TestSubject& subject = {.common_name = "test authority"});
  ~TestAuthority();

  const std::string& certificate() const;  // PEM
  TestCertificate Issue(const TestSubject& subject) const;
  // One that a client of 127.0.0.1 accepts.
  TestCertificate IssueForServer() const {
    return Issue({.common_name = "server", .names = {"IP:127.0.0.1", "DNS:encoderd.example"}});
  }

 private:
  struct State;
  const std::unique_ptr<const State> state_;
};

// The key under a password.
std::string EncryptedKey(const std::string& key);

}  // namespace encoderd
