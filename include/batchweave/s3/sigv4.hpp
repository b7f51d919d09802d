// AWS Signature Version 4: hashes, URI encoding, canonical request and the Authorization header. Pure.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/base/clock.hpp>
#include <batchweave/base/hex.hpp>
#include <batchweave/s3/credentials.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::s3 {

/// Names and values, in the order of sending. Names of headers in lower case.
using name_values = std::vector<std::pair<std::string, std::string>>;

inline constexpr std::string_view unsigned_payload = "UNSIGNED-PAYLOAD";
/// SHA-256 of an empty body.
inline constexpr std::string_view hash_of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

namespace detail {
using digest256 = std::array<unsigned char, 32>;

inline std::string hex(std::span<const unsigned char> digest) { return to_hex(std::as_bytes(digest)); }
inline std::string base64(const unsigned char* p, std::size_t n) {
  std::string r(4 * ((n + 2) / 3), '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(r.data()), p, static_cast<int>(n));
  return r;
}
// Looked up once: OpenSSL 3 otherwise searches its providers under a lock for every hash, which costs more than a short hash.
inline const EVP_MD* sha256_algorithm() {
  static const EVP_MD* const found = [] {
    const EVP_MD* fetched = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    return fetched ? fetched : EVP_sha256();
  }();
  return found;
}
inline std::string_view text_of(const digest256& d) { return {reinterpret_cast<const char*>(d.data()), d.size()}; }

class hasher {
 public:
  explicit hasher(const EVP_MD* kind) : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_, kind, nullptr) != 1) {
      EVP_MD_CTX_free(context_);
      throw std::runtime_error("OpenSSL offers no such digest");
    }
  }
  hasher(const hasher&) = delete;
  hasher& operator=(const hasher&) = delete;
  ~hasher() { EVP_MD_CTX_free(context_); }
  void update(const_bytes b) { EVP_DigestUpdate(context_, b.data(), b.size()); }
  std::vector<unsigned char> finish() {
    std::vector<unsigned char> r(EVP_MAX_MD_SIZE);
    unsigned n = 0;
    EVP_DigestFinal_ex(context_, r.data(), &n);
    r.resize(n);
    return r;
  }

 private:
  EVP_MD_CTX* context_;
};

// RFC 2104 over SHA-256. OpenSSL's own HMAC sets up several contexts a call.
inline digest256 hmac(std::string_view key, std::string_view text) {
  constexpr std::size_t block = 64;
  std::array<unsigned char, block> inner{}, outer{};
  if (key.size() > block) {
    hasher h(sha256_algorithm());
    h.update(as_bytes(key));
    const auto short_key = h.finish();
    std::copy(short_key.begin(), short_key.end(), inner.begin());
  } else {
    std::copy(key.begin(), key.end(), inner.begin());
  }
  for (std::size_t i = 0; i < block; ++i) {
    outer[i] = inner[i] ^ 0x5c;
    inner[i] ^= 0x36;
  }
  const auto bytes = [](const auto& b) { return std::as_bytes(std::span(b)); };
  hasher first(sha256_algorithm());
  first.update(bytes(inner));
  first.update(as_bytes(text));
  const auto middle = first.finish();
  hasher second(sha256_algorithm());
  second.update(bytes(outer));
  second.update(bytes(middle));
  const auto last = second.finish();
  digest256 r{};
  std::copy(last.begin(), last.end(), r.begin());
  OPENSSL_cleanse(inner.data(), inner.size());
  OPENSSL_cleanse(outer.data(), outer.size());
  return r;
}
}  // namespace detail

/// Lower-case hexadecimal SHA-256 of pieces.
inline std::string sha256_hex(const const_buffers& pieces) {
  detail::hasher h(detail::sha256_algorithm());
  for (const auto& p : pieces) h.update(p);
  const auto d = h.finish();
  return detail::hex(d);
}
inline std::string sha256_hex(std::string_view text) {
  const_buffers one{as_bytes(text)};
  return sha256_hex(one);
}
/// Value of Content-MD5.
inline std::string md5_base64(std::string_view text) {
  detail::hasher h(EVP_md5());
  h.update(as_bytes(text));
  const auto d = h.finish();
  return detail::base64(d.data(), d.size());
}
/// Value of x-amz-checksum-crc32c: the big-endian bytes in base64.
inline std::string crc32c_base64(std::uint32_t crc) {
  const unsigned char b[4] = {static_cast<unsigned char>(crc >> 24), static_cast<unsigned char>(crc >> 16),
                              static_cast<unsigned char>(crc >> 8), static_cast<unsigned char>(crc)};
  return detail::base64(b, 4);
}

/// Encodes every byte but A-Z a-z 0-9 - . _ ~ as %XX, once; '/' stays raw when `keep_slash`.
inline std::string uri_encode(std::string_view s, bool keep_slash) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string r;
  r.reserve(s.size() + 16);
  for (const char ch : s) {
    const auto c = static_cast<unsigned char>(ch);
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
                       c == '~' || (keep_slash && c == '/');
    if (plain) {
      r.push_back(ch);
    } else {
      r.push_back('%');
      r.push_back(digits[c >> 4]);
      r.push_back(digits[c & 15]);
    }
  }
  return r;
}

/// Sorted by encoded name, then value; always "name=". This text is also what goes over the wire.
inline std::string canonical_query(const name_values& query) {
  name_values encoded;
  for (const auto& [n, v] : query) encoded.emplace_back(uri_encode(n, false), uri_encode(v, false));
  std::sort(encoded.begin(), encoded.end());
  std::string r;
  for (const auto& [n, v] : encoded) {
    if (!r.empty()) r += '&';
    r += n + "=" + v;
  }
  return r;
}

/// Which headers are signed. Others may be changed by proxies on the way, such as Accept-Encoding, User-Agent or Connection.
inline bool is_signed_header(std::string_view lower_name) {
  return lower_name == "host" || lower_name == "range" || lower_name == "date" || lower_name == "content-md5" || lower_name == "content-type" || lower_name == "if-match" ||
         lower_name == "if-none-match" || lower_name.starts_with("x-amz-");
}

namespace detail {
inline std::string collapse(std::string_view s) {
  std::string r;
  for (const char c : s) {
    if ((c == ' ' || c == '\t') && (r.empty() || r.back() == ' ')) continue;
    r.push_back(c == '\t' ? ' ' : c);
  }
  while (!r.empty() && r.back() == ' ') r.pop_back();
  return r;
}
}  // namespace detail

class canonical_request {
 public:
  /// `path`: already encoded, starts with '/'. `headers`: lower-case names; repeated names become one line joined by commas.
  canonical_request(std::string_view method, std::string_view path, const name_values& query, const name_values& headers,
                    std::string_view payload_hash) {
    std::map<std::string, std::string> lines;
    for (const auto& [n, v] : headers) {
      if (!is_signed_header(n)) continue;
      const auto [at, fresh] = lines.emplace(n, detail::collapse(v));
      if (!fresh) at->second += "," + detail::collapse(v);
    }
    text_.append(method).append("\n").append(path).append("\n").append(canonical_query(query)).append("\n");
    for (const auto& [n, v] : lines) {
      text_.append(n).append(":").append(v).append("\n");
      if (!signed_headers_.empty()) signed_headers_ += ';';
      signed_headers_ += n;
    }
    text_.append("\n").append(signed_headers_).append("\n").append(payload_hash);
  }
  const std::string& text() const noexcept { return text_; }
  const std::string& signed_headers() const noexcept { return signed_headers_; }

 private:
  std::string text_, signed_headers_;
};

/// "20130524T000000Z"
inline std::string amz_date(wall_time t) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(t);
  const auto day = std::chrono::floor<std::chrono::days>(seconds);
  const std::chrono::year_month_day d(day);
  const std::chrono::hh_mm_ss hms(seconds - day);
  std::string r;
  const auto put = [&r](long v, int width) {
    std::string s = std::to_string(v);
    r.append(static_cast<std::size_t>(std::max(0, width - static_cast<int>(s.size()))), '0').append(s);
  };
  put(static_cast<int>(d.year()), 4);
  put(static_cast<long>(static_cast<unsigned>(d.month())), 2);
  put(static_cast<long>(static_cast<unsigned>(d.day())), 2);
  r += 'T';
  put(hms.hours().count(), 2);
  put(hms.minutes().count(), 2);
  put(hms.seconds().count(), 2);
  r += 'Z';
  return r;
}

/// Derives signing keys and keeps the last one, which is good for a day. Thread safe.
class signer {
 public:
  /// Value of the Authorization header. `headers` must hold host and x-amz-date already and, for S3, x-amz-content-sha256.
  /// Source: Amazon S3 API reference, "Authenticating Requests: Using the Authorization Header".
  std::string authorization(const credentials& who, const std::string& region, const std::string& date, std::string_view method,
                            std::string_view path, const name_values& query, const name_values& headers, std::string_view payload_hash,
                            const std::string& service = "s3") {
    const std::string day = date.substr(0, 8);
    const std::string scope = day + "/" + region + "/" + service + "/aws4_request";
    const canonical_request canonical(method, path, query, headers, payload_hash);
    const std::string to_sign = "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + sha256_hex(canonical.text());
    const detail::digest256 signature = detail::hmac(detail::text_of(key(who, day, region, service)), to_sign);
    return "AWS4-HMAC-SHA256 Credential=" + who.access_key() + "/" + scope + ",SignedHeaders=" + canonical.signed_headers() +
           ",Signature=" + detail::hex(signature);
  }

 private:
  detail::digest256 key(const credentials& who, const std::string& day, const std::string& region, const std::string& service) {
    const std::lock_guard lock(mutex_);
    if (day != day_ || region != region_ || service != service_ || !(who.secret_key() == secret_)) {
      auto k = detail::hmac("AWS4" + who.secret_key().reveal(), day);
      k = detail::hmac(detail::text_of(k), region);
      k = detail::hmac(detail::text_of(k), service);
      key_ = detail::hmac(detail::text_of(k), "aws4_request");
      day_ = day;
      region_ = region;
      service_ = service;
      secret_ = who.secret_key();
    }
    return key_;
  }
  std::mutex mutex_;
  std::string day_, region_, service_;
  secret secret_;
  detail::digest256 key_{};
};

}  // namespace batchweave::s3
