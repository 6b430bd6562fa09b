#include "tests/server/keys/test_authority.h"

#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "absl/log/check.h"
#include "absl/strings/str_join.h"
#include "server/keys/openssl_ptr.h"

namespace encoderd {
namespace {

std::string Written(const BioPtr& bio) {
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(bytes));
}

std::string Pem(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  CHECK_EQ(PEM_write_bio_X509(bio.get(), certificate), 1);
  return Written(bio);
}

std::string Pem(EVP_PKEY* key, const EVP_CIPHER* cipher = nullptr) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  char password[] = "password";
  CHECK_EQ(PEM_write_bio_PrivateKey(bio.get(), key, cipher, nullptr, 0, nullptr,
                                    cipher == nullptr ? nullptr : password),
           1);
  return Written(bio);
}

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  CHECK(extension != nullptr) << value;
  CHECK_EQ(X509_add_ext(certificate, extension, -1), 1);
  X509_EXTENSION_free(extension);
}

// Signed by `issuer` and its key; null: by itself.
CertificatePtr MakeCertificate(const TestSubject& subject, EVP_PKEY* key, X509* issuer,
                               EVP_PKEY* issuer_key) {
  CertificatePtr certificate(X509_new());
  X509* const x509 = certificate.get();
  X509_set_version(x509, X509_VERSION_3);
  const NumberPtr number(BN_new());
  BN_rand(number.get(), 120, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY);
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(x509));
  ASN1_TIME_set(X509_getm_notBefore(x509), absl::ToTimeT(subject.not_before));
  ASN1_TIME_set(X509_getm_notAfter(x509), absl::ToTimeT(subject.not_after));
  if (!subject.common_name.empty()) {
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(subject.common_name.c_str()),
                               -1, -1, 0);
  }
  X509* const signer = issuer == nullptr ? x509 : issuer;
  X509_set_issuer_name(x509, X509_get_subject_name(signer));
  X509_set_pubkey(x509, key);
  if (issuer == nullptr) AddExtension(x509, signer, NID_basic_constraints, "critical,CA:TRUE");
  // Else OpenSSL takes the first authority of the name for the issuer, whatever its key.
  AddExtension(x509, signer, NID_subject_key_identifier, "hash");
  AddExtension(x509, signer, NID_authority_key_identifier, "keyid");
  if (!subject.names.empty()) {
    AddExtension(x509, signer, NID_subject_alt_name, absl::StrJoin(subject.names, ","));
  }
  CHECK_GT(X509_sign(x509, issuer_key, EVP_sha256()), 0);
  return certificate;
}

}  // namespace

struct TestAuthority::State {
  KeyPtr key{EVP_EC_gen("P-256")};
  CertificatePtr certificate;
  std::string pem;
};

TestAuthority::TestAuthority(const TestSubject& subject)
    : state_([&subject] {
        auto state = std::make_unique<State>();
        state->certificate = MakeCertificate(subject, state->key.get(), nullptr, state->key.get());
        state->pem = Pem(state->certificate.get());
        return state;
      }()) {}

TestAuthority::~TestAuthority() = default;

const std::string& TestAuthority::certificate() const { return state_->pem; }

TestCertificate TestAuthority::Issue(const TestSubject& subject) const {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const CertificatePtr certificate =
      MakeCertificate(subject, key.get(), state_->certificate.get(), state_->key.get());
  const NumberPtr number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate.get()), nullptr));
  char* const serial = BN_bn2hex(number.get());
  TestCertificate issued = {
      .certificate = Pem(certificate.get()), .key = Pem(key.get()), .serial = serial};
  OPENSSL_free(serial);
  return issued;
}

std::string EncryptedKey(const std::string& key) {
  const BioPtr bio(BIO_new_mem_buf(key.data(), static_cast<int>(key.size())));
  const KeyPtr parsed(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  return Pem(parsed.get(), EVP_aes_256_cbc());
}

}  // namespace encoderd
