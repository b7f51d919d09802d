// One S3 request as a value: what is signed is exactly what is sent. Pure.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/s3/endpoint.hpp>
#include <batchweave/s3/sigv4.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace batchweave::s3 {

class request {
 public:
  request() = default;
  /// `key` empty: the bucket itself.
  request(std::string method, std::string key) : method_(std::move(method)), key_(std::move(key)) {}
  request& query(std::string name, std::string value = std::string()) { query_.emplace_back(std::move(name), std::move(value)); return *this; }
  /// `name` in lower case. Replaces an earlier header of that name. An empty value is not sent and not signed.
  request& header(const std::string& name, std::string value) {
    remove_header(name);
    if (!value.empty()) headers_.emplace_back(name, std::move(value));
    return *this;
  }
  request& remove_header(const std::string& name) {
    std::erase_if(headers_, [&name](const auto& h) { return h.first == name; });
    return *this;
  }
  /// Value of x-amz-content-sha256: a hash, or UNSIGNED-PAYLOAD.
  request& payload_hash(std::string h) { payload_hash_ = std::move(h); return *this; }

  const std::string& method() const noexcept { return method_; }
  const std::string& key() const noexcept { return key_; }
  const name_values& query() const noexcept { return query_; }
  const name_values& headers() const noexcept { return headers_; }
  const std::string& payload_hash() const noexcept { return payload_hash_; }

  /// The signed head as bytes for the wire, with the blank line. `authority`: value of Host; `path`: encoded. `base`: "http://host:port" in front
  /// of the path when a proxy reads the request; `proxy_authorization`: what that proxy wants.
  std::string sign(signer& with, const credentials& who, const std::string& region, const std::string& date, const std::string& authority,
                   const std::string& path, std::uint64_t body_size, const std::string& base = std::string(),
                   const std::string& proxy_authorization = std::string()) const {
    name_values all = headers_;
    all.emplace_back("host", authority);
    all.emplace_back("x-amz-date", date);
    all.emplace_back("x-amz-content-sha256", payload_hash_);
    if (!who.session_token().empty()) all.emplace_back("x-amz-security-token", who.session_token().reveal());
    const std::string signature = with.authorization(who, region, date, method_, path, query_, all, payload_hash_);
    std::string text = method_ + " " + base + path;
    if (!query_.empty()) text += "?" + canonical_query(query_);
    text += " HTTP/1.1\r\n";
    for (const auto& [n, v] : all) text += n + ": " + v + "\r\n";
    if (!proxy_authorization.empty()) text += "proxy-authorization: " + proxy_authorization + "\r\n";
    text += "accept-encoding: identity\r\nuser-agent: batchweave\r\n";
    if (method_ == "PUT" || method_ == "POST") text += "content-length: " + std::to_string(body_size) + "\r\n";
    text += "authorization: " + signature + "\r\n\r\n";
    return text;
  }

 private:
  std::string method_ = "GET", key_;
  name_values query_, headers_;
  std::string payload_hash_{hash_of_nothing};
};

}  // namespace batchweave::s3
