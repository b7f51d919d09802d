// Checks the AWS Signature Version 4 of a received request, written apart from the client's signer so that both must agree with AWS.
#pragma once

#include <batchweave/base/hex.hpp>
#include <batchweave/testing/s3_request.hpp>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <chrono>
#include <stdexcept>

namespace batchweave::testing {

namespace detail {

inline std::string digest(const EVP_MD* kind, std::string_view data) {
  std::string r(EVP_MAX_MD_SIZE, '\0');
  unsigned n = 0;
  if (EVP_Digest(data.data(), data.size(), reinterpret_cast<unsigned char*>(r.data()), &n, kind, nullptr) != 1) {
    throw std::runtime_error("OpenSSL has no such digest");
  }
  r.resize(n);
  return r;
}
inline std::string hex(std::string_view raw) { return to_hex(as_bytes(raw)); }
inline std::string base64(std::string_view raw) {
  std::string r((raw.size() + 2) / 3 * 4 + 1, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(r.data()), reinterpret_cast<const unsigned char*>(raw.data()),
                                static_cast<int>(raw.size()));
  r.resize(static_cast<std::size_t>(n));
  return r;
}
inline std::string sha256_hex(std::string_view data) { return hex(digest(EVP_sha256(), data)); }
inline std::string hmac_sha256(std::string_view key, std::string_view data) {
  std::string r(EVP_MAX_MD_SIZE, '\0');
  unsigned n = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(data.data()), data.size(),
       reinterpret_cast<unsigned char*>(r.data()), &n);
  r.resize(n);
  return r;
}

inline std::string trimmed(std::string_view s) {
  std::string r;
  bool blank = true;  // leading blanks vanish, runs inside become one
  for (const char c : s) {
    if (c == ' ' || c == '\t') {
      if (!blank) r += ' ';
      blank = true;
    } else {
      r += c;
      blank = false;
    }
  }
  while (!r.empty() && r.back() == ' ') r.pop_back();
  return r;
}

/// "20130524T000000Z" to a time; nullopt when it is not one.
inline std::optional<std::chrono::sys_seconds> parse_amz_date(std::string_view s) {
  if (s.size() != 16 || s[8] != 'T' || s[15] != 'Z') return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t n) {
    int v = 0;
    for (std::size_t i = at; i < at + n; ++i) {
      if (s[i] < '0' || s[i] > '9') return -1;
      v = v * 10 + (s[i] - '0');
    }
    return v;
  };
  const int y = number(0, 4), mo = number(4, 2), d = number(6, 2), h = number(9, 2), mi = number(11, 2), sec = number(13, 2);
  if (y < 0 || mo < 1 || mo > 12 || d < 1 || d > 31 || h < 0 || mi < 0 || sec < 0) return std::nullopt;
  const std::chrono::sys_days day = std::chrono::year(y) / std::chrono::month(static_cast<unsigned>(mo)) /
                                    std::chrono::day(static_cast<unsigned>(d));
  return day + std::chrono::hours(h) + std::chrono::minutes(mi) + std::chrono::seconds(sec);
}

}  // namespace detail

/// Who may sign, and for which region.
class s3_identity {
 public:
  s3_identity() = default;
  s3_identity(std::string access_key, std::string secret_key) : access_(std::move(access_key)), secret_(std::move(secret_key)) {}
  /// When set, requests must bring it in a signed x-amz-security-token.
  s3_identity& session_token(std::string t) { token_ = std::move(t); return *this; }
  s3_identity& region(std::string r) { region_ = std::move(r); return *this; }
  const std::string& access_key() const noexcept { return access_; }
  const std::string& secret_key() const noexcept { return secret_; }
  const std::string& session_token() const noexcept { return token_; }
  const std::string& region() const noexcept { return region_; }

 private:
  std::string access_ = "testkey", secret_ = "testsecret", token_, region_ = "us-east-1";
};

/// nullopt: signed as AWS wants it. Otherwise the answer that S3 gives. Does not look at the body (see the object part).
/// Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API reference; SG-12 and SG-13 for which headers count.
inline std::optional<s3_reply> refuse_signature(const s3_request& q, const s3_identity& who, std::chrono::sys_seconds now) {
  using detail::s3_error;
  const std::string authorization = q.header("authorization").value_or("");
  static constexpr std::string_view scheme = "AWS4-HMAC-SHA256 ";
  if (authorization.empty()) return s3_error(403, "AccessDenied", "no Authorization header");
  if (!authorization.starts_with(scheme)) return s3_error(400, "InvalidArgument", "Unsupported Authorization Type");
  std::string credential, signed_headers, signature;
  std::string_view rest = std::string_view(authorization).substr(scheme.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string item = detail::trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (item.starts_with("Credential=")) credential = item.substr(11);
    if (item.starts_with("SignedHeaders=")) signed_headers = item.substr(14);
    if (item.starts_with("Signature=")) signature = item.substr(10);
  }
  std::vector<std::string> scope;
  for (std::size_t at = 0; at <= credential.size();) {
    const std::size_t end = std::min(credential.find('/', at), credential.size());
    scope.push_back(credential.substr(at, end - at));
    at = end + 1;
  }
  if (scope.size() != 5 || scope[3] != "s3" || scope[4] != "aws4_request" || signed_headers.empty() || signature.empty()) {
    return s3_error(400, "AuthorizationHeaderMalformed", "The authorization header is malformed.");
  }
  if (scope[0] != who.access_key()) return s3_error(403, "InvalidAccessKeyId", "no such access key");
  if (scope[2] != who.region()) {
    s3_reply r = s3_error(400, "AuthorizationHeaderMalformed",
                          "The authorization header is malformed; the region '" + scope[2] + "' is wrong; expecting '" +
                              who.region() + "'",
                          "<Region>" + who.region() + "</Region>");
    r.header("x-amz-bucket-region", who.region());
    return r;
  }
  const std::string date = q.header("x-amz-date").value_or("");
  const std::optional<std::chrono::sys_seconds> when = detail::parse_amz_date(date);
  if (!when || date.substr(0, 8) != scope[1]) return s3_error(403, "AccessDenied", "x-amz-date is missing or not the scope's day");
  if (*when > now + std::chrono::minutes(15) || *when < now - std::chrono::minutes(15)) {
    return s3_error(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.");
  }
  if (!who.session_token().empty() && q.header("x-amz-security-token").value_or("") != who.session_token()) {
    return s3_error(403, "InvalidToken", "The provided token is malformed or otherwise invalid.");
  }

  std::vector<std::string> names;
  for (std::size_t at = 0; at <= signed_headers.size();) {
    const std::size_t end = std::min(signed_headers.find(';', at), signed_headers.size());
    names.push_back(signed_headers.substr(at, end - at));
    at = end + 1;
  }
  const auto is_signed = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (!is_signed("host")) return s3_error(403, "AccessDenied", "host is not signed");
  for (const auto& h : q.headers()) {
    if (h.first.starts_with("x-amz-") && !is_signed(h.first)) {
      return s3_error(403, "AccessDenied", "There were headers present in the request which were not signed: " + h.first);
    }
  }
  const std::string payload = q.header("x-amz-content-sha256").value_or("");
  if (payload.empty()) return s3_error(400, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256");

  s3_request::fields pairs;
  for (const auto& [name, value] : q.query()) {
    pairs.emplace_back(detail::percent_encode(name, false), detail::percent_encode(value, false));
  }
  std::sort(pairs.begin(), pairs.end());
  std::string canonical = q.method() + "\n" + detail::percent_encode(detail::percent_decode(q.path()), true) + "\n";
  for (std::size_t i = 0; i < pairs.size(); ++i) canonical += (i ? "&" : "") + pairs[i].first + "=" + pairs[i].second;
  canonical += "\n";
  for (const std::string& name : names) {
    canonical += name + ":";
    bool first = true;
    for (const auto& [n, value] : q.headers()) {
      if (n != name) continue;
      canonical += (first ? "" : ",") + detail::trimmed(value);
      first = false;
    }
    if (first) return s3_error(403, "SignatureDoesNotMatch", "the signed header " + name + " did not arrive");
    canonical += "\n";
  }
  canonical += "\n" + signed_headers + "\n" + payload;
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + date + "\n" + scope[1] + "/" + scope[2] + "/s3/aws4_request\n" + detail::sha256_hex(canonical);
  std::string key = detail::hmac_sha256("AWS4" + who.secret_key(), scope[1]);
  for (const std::string_view part : std::array<std::string_view, 3>{scope[2], "s3", "aws4_request"}) {
    key = detail::hmac_sha256(key, part);
  }
  if (detail::hex(detail::hmac_sha256(key, to_sign)) != signature) {
    return s3_error(403, "SignatureDoesNotMatch",
                    "The request signature we calculated does not match the signature you provided.",
                    "<CanonicalRequest>" + detail::xml_escape(canonical) + "</CanonicalRequest>");
  }
  return std::nullopt;
}

}  // namespace batchweave::testing
