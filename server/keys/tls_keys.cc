#include "server/keys/tls_keys.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "server/keys/openssl_ptr.h"

namespace encoderd {
namespace {

BioPtr BioOf(const KeyText& file) {
  return BioPtr(BIO_new_mem_buf(file.text.data(), static_cast<int>(file.text.size())));
}

// Instead of a question on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

std::string OpenSslReason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason == nullptr ? "nothing that OpenSSL can read" : reason;
}

absl::StatusOr<std::vector<CertificatePtr>> ReadCertificates(const KeyText& file) {
  const BioPtr bio = BioOf(file);
  std::vector<CertificatePtr> certificates;
  ERR_clear_error();
  // As gRPC reads the first of them: TRUSTED CERTIFICATE is one of its words for a certificate.
  while (X509* const one = PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassword, nullptr)) {
    certificates.emplace_back(one);
  }
  // The end of the text is an error among others.
  const unsigned long error = ERR_peek_last_error();
  if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return KeyFault(file, "certificates in PEM",
                    absl::StrCat("a fault in certificate ", certificates.size() + 1, " (",
                                 OpenSslReason(), ")"));
  }
  if (certificates.empty()) return KeyFault(file, "a certificate in PEM", "none");
  return certificates;
}

// The distant past for what is no time, so that it lies outside of every validity.
absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

absl::Time EndOf(const CertificatePtr& certificate) {
  return TimeOf(X509_get0_notAfter(certificate.get()));
}

bool IsValid(const CertificatePtr& certificate, absl::Time now) {
  return TimeOf(X509_get0_notBefore(certificate.get())) <= now && now < EndOf(certificate);
}

absl::Status CheckValidity(const KeyText& file, const std::vector<CertificatePtr>& certificates,
                           absl::Time now) {
  for (const CertificatePtr& one : certificates) {
    if (IsValid(one, now)) continue;
    const auto text = [](absl::Time time) {
      return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
    };
    return KeyFault(file, "certificates that are valid now",
                    absl::StrCat("one from ", text(TimeOf(X509_get0_notBefore(one.get()))), " to ",
                                 text(EndOf(one))));
  }
  return absl::OkStatus();
}

std::string SerialOf(const CertificatePtr& certificate) {
  const NumberPtr number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate.get()), nullptr));
  const std::unique_ptr<char, decltype([](char* text) { OPENSSL_free(text); })> text(
      BN_bn2hex(number.get()));
  return text.get();
}

// The key, if it is that of the certificate and OpenSSL would serve with both.
absl::Status CheckKey(const KeyText& certificate_file, const CertificatePtr& certificate,
                      const KeyText& key_file) {
  ERR_clear_error();
  const KeyPtr key(PEM_read_bio_PrivateKey(BioOf(key_file).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return KeyFault(key_file, "a private key in PEM, not encrypted", OpenSslReason());
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return KeyFault(key_file, absl::StrCat("the key of the certificate in ", certificate_file.path),
                    "another one");
  }
  const ContextPtr context(SSL_CTX_new(TLS_server_method()));
  if (SSL_CTX_use_certificate(context.get(), certificate.get()) != 1) {
    return KeyFault(certificate_file, "a certificate that OpenSSL serves with", OpenSslReason());
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return KeyFault(key_file, "a key that OpenSSL serves with", OpenSslReason());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsKeys> MakeTlsKeys(std::span<const KeyText> files, absl::Time now) {
  const KeyText& certificate_file = files[0];
  const KeyText& key_file = files[1];
  ASSIGN_OR_RETURN(const std::vector<CertificatePtr> certificates,
                   ReadCertificates(certificate_file));
  RETURN_IF_ERROR(CheckKey(certificate_file, certificates.front(), key_file));
  RETURN_IF_ERROR(CheckValidity(certificate_file, certificates, now));
  if (files.size() > 2) RETURN_IF_ERROR(CheckAuthorities(files[2], now));
  return TlsKeys{.certificates = certificate_file.text,
                 .key = key_file.text,
                 .client_cas = files.size() > 2 ? files[2].text : "",
                 .serial = SerialOf(certificates.front()),
                 .not_after = EndOf(*std::ranges::min_element(certificates, {}, EndOf))};
}

absl::Status CheckAuthorities(const KeyText& file, absl::Time now) {
  ASSIGN_OR_RETURN(const std::vector<CertificatePtr> authorities, ReadCertificates(file));
  // Some may have ended, as in every bundle that is rolled over.
  const auto valid = [now](const CertificatePtr& one) { return IsValid(one, now); };
  if (std::ranges::any_of(authorities, valid)) return absl::OkStatus();
  return CheckValidity(file, authorities, now);
}

}  // namespace encoderd
