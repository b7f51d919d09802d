// A self-signed certificate made on the spot, so that tests of TLS need no files and never expire.
#pragma once

#include <batchweave/base/config.hpp>
#include <batchweave/base/hex.hpp>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace batchweave::testing {

/// A certificate and its key, in PEM. The certificate is its own authority: trust it by giving `certificate()` as the CA file.
class s3_certificate {
 public:
  s3_certificate() = default;
  s3_certificate(std::string certificate, std::string key) : certificate_(std::move(certificate)), key_(std::move(key)) {}
  const std::string& certificate() const noexcept { return certificate_; }
  const std::string& key() const noexcept { return key_; }
  bool empty() const noexcept { return certificate_.empty(); }

  /// For these names, as OpenSSL writes them: "DNS:localhost,IP:127.0.0.1". Valid from a day ago for `days` (negative: expired).
  static s3_certificate make(const std::string& names = "DNS:localhost,IP:127.0.0.1", int days = 30) {
    const auto checked = [](auto* p) {
      if (!p) throw std::runtime_error("OpenSSL could not make a certificate");
      return p;
    };
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(checked(EVP_EC_gen("P-256")), &EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> x(checked(X509_new()), &X509_free);
    X509_set_version(x.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(x.get()), -86400L * (days < 0 ? 2 - days : 1));
    X509_gmtime_adj(X509_getm_notAfter(x.get()), 86400L * days);
    X509_set_pubkey(x.get(), key.get());
    X509_NAME* name = X509_get_subject_name(x.get());
    // A client that trusts several of them finds the right one by its name.
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned digest_size = 0;
    if (X509_pubkey_digest(x.get(), EVP_sha256(), digest.data(), &digest_size) == 0) throw std::runtime_error("OpenSSL could not hash a key");
    const std::string common_name = "batchweave test " + to_hex(std::as_bytes(std::span(digest)).first(8));
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
    X509_set_issuer_name(x.get(), name);
    const auto extend = [&](int nid, const char* value) {
      const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> e(checked(X509V3_EXT_conf_nid(nullptr, nullptr, nid, value)),
                                                                              &X509_EXTENSION_free);
      X509_add_ext(x.get(), e.get(), -1);
    };
    extend(NID_basic_constraints, "critical,CA:TRUE");
    extend(NID_subject_alt_name, names.c_str());
    if (X509_sign(x.get(), key.get(), EVP_sha256()) == 0) throw std::runtime_error("OpenSSL could not sign a certificate");
    const std::unique_ptr<BIO, decltype(&BIO_free)> out(checked(BIO_new(BIO_s_mem())), &BIO_free);
    PEM_write_bio_X509(out.get(), x.get());
    std::string certificate = taken(out.get());
    PEM_write_bio_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return s3_certificate(std::move(certificate), taken(out.get()));
  }

 private:
  static std::string taken(BIO* b) {
    char* data = nullptr;
    const long n = BIO_get_mem_data(b, &data);
    std::string r(data, static_cast<std::size_t>(n));
    BIO_reset(b);
    return r;
  }

  std::string certificate_, key_;
};

}  // namespace batchweave::testing
