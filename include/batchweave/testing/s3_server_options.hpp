// Settings of the scripted S3 server.
#pragma once

#include <batchweave/testing/s3_certificate.hpp>
#include <batchweave/testing/s3_signature.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace batchweave::testing {

/// Settings of an s3_server that hold for its whole life.
class s3_server_options {
 public:
  s3_server_options() {}
  /// Who may sign requests; default testkey / testsecret in us-east-1.
  s3_server_options& identity(s3_identity i) { identity_ = std::move(i); return *this; }
  /// Whether signatures are checked; default yes.
  s3_server_options& check_signatures(bool yes) { check_ = yes; return *this; }
  /// The bucket that exists from the start; default "test".
  s3_server_options& bucket(std::string b) { bucket_ = std::move(b); return *this; }
  /// Most keys in a page of a listing; default 1000.
  s3_server_options& page_limit(std::size_t n) { page_limit_ = n; return *this; }
  /// Lists in an arbitrary order and refuses start-after, as S3 Express does.
  s3_server_options& unordered(bool yes) { unordered_ = yes; return *this; }
  /// Smallest multipart part but the last, in bytes; default 5 MiB.
  s3_server_options& min_part(std::uint64_t n) { min_part_ = n; return *this; }

  /// Speaks TLS with this certificate; default plain HTTP.
  s3_server_options& tls(s3_certificate c) { certificate_ = std::move(c); return *this; }
  /// Shows this one instead to clients that ask for `name` (SNI). Repeat for several; tls() with the default one is needed too.
  s3_server_options& tls(std::string name, s3_certificate c) { named_[std::move(name)] = std::move(c); return *this; }

  const s3_certificate& certificate() const noexcept { return certificate_; }
  const std::map<std::string, s3_certificate>& named_certificates() const noexcept { return named_; }
  const s3_identity& identity() const noexcept { return identity_; }
  bool check_signatures() const noexcept { return check_; }
  const std::string& bucket() const noexcept { return bucket_; }
  std::size_t page_limit() const noexcept { return page_limit_; }
  bool unordered() const noexcept { return unordered_; }
  std::uint64_t min_part() const noexcept { return min_part_; }

 private:
  s3_identity identity_;
  s3_certificate certificate_;
  std::map<std::string, s3_certificate> named_;
  bool check_ = true, unordered_ = false;
  std::string bucket_ = "test";
  std::size_t page_limit_ = 1000;
  std::uint64_t min_part_ = 5u << 20;
};

}  // namespace batchweave::testing
