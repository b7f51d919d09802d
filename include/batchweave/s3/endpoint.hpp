// Where a bucket is: endpoint URLs, s3:// URLs, and path or virtual-host addressing. Pure.
#pragma once

#include <batchweave/base/error.hpp>

#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave::s3 {

/// How the bucket is named in a request: in the path, or as a label in front of the host.
enum class addressing {
  automatic,  ///< virtual host on AWS (path for a bucket with dots over TLS), path anywhere else
  path,
  virtual_host
};

namespace detail {
inline std::string lower(std::string_view s) {
  std::string r(s);
  for (char& c : r) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return r;
}
inline int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
/// Decodes %XX; nullopt for a broken escape. `plus`: '+' means a space.
inline std::optional<std::string> percent_decode(std::string_view s, bool plus = false) {
  std::string r;
  r.reserve(s.size());
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '%') {
      if (i + 2 >= s.size()) return std::nullopt;
      const int hi = hex_digit(s[i + 1]), lo = hex_digit(s[i + 2]);
      if (hi < 0 || lo < 0) return std::nullopt;
      r.push_back(static_cast<char>(hi * 16 + lo));
      i += 2;
    } else {
      r.push_back(plus && s[i] == '+' ? ' ' : s[i]);
    }
  }
  return r;
}
inline failure bad(std::string what) {
  return failure(errc::invalid_argument, std::move(what)).with_fate(fate::did_not_happen);
}
}  // namespace detail

/// Scheme, host and port of a server. A value.
class endpoint {
 public:
  endpoint() = default;
  endpoint(bool tls, std::string host, std::uint16_t port) : tls_(tls), host_(std::move(host)), port_(port) {}

  /// Reads "http://host", "https://host:port", "http://[::1]:9000"; a trailing "/" is fine, any other path is not.
  static result<endpoint> parse(std::string_view url) {
    const std::string shown(url);
    const std::size_t colon = url.find("://");
    if (colon == std::string_view::npos) return detail::bad("endpoint \"" + shown + "\": write it as http://host:port or https://host");
    const std::string scheme = detail::lower(url.substr(0, colon));
    if (scheme != "http" && scheme != "https") return detail::bad("endpoint \"" + shown + "\": the scheme must be http or https");
    const bool tls = scheme == "https";
    std::string_view rest = url.substr(colon + 3);
    while (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
    if (rest.find('@') != std::string_view::npos) return detail::bad("the endpoint must not contain a user name or password");
    if (rest.find_first_of("/?# ") != std::string_view::npos) return detail::bad("endpoint \"" + shown + "\": no path or query is allowed");
    std::string_view host = rest, port;
    if (!rest.empty() && rest.front() == '[') {
      const std::size_t close = rest.find(']');
      if (close == std::string_view::npos) return detail::bad("endpoint \"" + shown + "\": \"]\" is missing");
      host = rest.substr(1, close - 1);
      port = rest.substr(close + 1);
      if (!port.empty() && port.front() != ':') return detail::bad("endpoint \"" + shown + "\": cannot read what follows \"]\"");
      if (!port.empty()) port.remove_prefix(1);
    } else if (const std::size_t at = rest.rfind(':'); at != std::string_view::npos) {
      if (rest.find(':') != at) return detail::bad("endpoint \"" + shown + "\": write an IPv6 address in brackets");
      host = rest.substr(0, at);
      port = rest.substr(at + 1);
      if (port.empty()) return detail::bad("endpoint \"" + shown + "\": the port is empty");
    }
    if (host.empty()) return detail::bad("endpoint \"" + shown + "\": the host is empty");
    // A line end in it, for one, would add a header of the URL's choice to every request.
    const bool brackets = rest.front() == '[';
    for (const char c : host) {
      const bool fits = brackets ? c == ':' || c == '.' || c == '%' : c == '-' || c == '.' || c == '_';
      if (!fits && !std::isalnum(static_cast<unsigned char>(c))) return detail::bad("the endpoint's host has a character that no host name has");
    }
    if (brackets && host.find(':') == std::string_view::npos) return detail::bad("endpoint \"" + shown + "\": only an IPv6 address goes in brackets");
    std::uint32_t number = tls ? 443 : 80;
    if (!port.empty()) {
      number = 0;
      for (const char c : port) {
        if (c < '0' || c > '9' || number > 65535) return detail::bad("endpoint \"" + shown + "\": the port must be 1 to 65535");
        number = number * 10 + static_cast<std::uint32_t>(c - '0');
      }
      if (number == 0 || number > 65535) return detail::bad("endpoint \"" + shown + "\": the port must be 1 to 65535");
    }
    return endpoint(tls, detail::lower(host), static_cast<std::uint16_t>(number));
  }

  bool tls() const noexcept { return tls_; }
  /// Without brackets.
  const std::string& host() const noexcept { return host_; }
  std::uint16_t port() const noexcept { return port_; }
  bool is_ipv6() const noexcept { return host_.find(':') != std::string::npos; }
  bool is_address() const noexcept {
    return is_ipv6() || host_.find_first_not_of("0123456789.") == std::string::npos;
  }
  /// Value of the Host header: brackets round IPv6, no port when it is the scheme's own.
  std::string authority() const {
    std::string r = is_ipv6() ? "[" + host_ + "]" : host_;
    if (port_ != (tls_ ? 443 : 80)) r += ":" + std::to_string(port_);
    return r;
  }
  std::string url() const { return (tls_ ? "https://" : "http://") + authority(); }
  endpoint with_label(const std::string& label) const { return endpoint(tls_, label + "." + host_, port_); }
  friend bool operator==(const endpoint&, const endpoint&) = default;

 private:
  bool tls_ = false;
  std::string host_ = "localhost";
  std::uint16_t port_ = 80;
};

/// What an s3:// URL says: s3://bucket/prefix?endpoint=...&region=...&style=path|virtual. Unknown parameters are errors.
class s3_url {
 public:
  s3_url() = default;
  static result<s3_url> parse(std::string_view url) {
    const std::string shown(url);
    if (!detail::lower(url.substr(0, 5)).starts_with("s3://")) return detail::bad("\"" + shown + "\": an S3 URL starts with s3://");
    std::string_view rest = url.substr(5), query;
    if (const std::size_t q = rest.find('?'); q != std::string_view::npos) {
      query = rest.substr(q + 1);
      rest = rest.substr(0, q);
    }
    s3_url r;
    const std::size_t slash = rest.find('/');
    r.bucket_ = std::string(rest.substr(0, slash));
    if (r.bucket_.empty()) return detail::bad("\"" + shown + "\": the bucket is missing");
    for (const char c : r.bucket_) {  // it may become a part of the Host header
      if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return detail::bad("the bucket of an s3:// URL has a space or control character");
    }
    if (r.bucket_.find('@') != std::string::npos) return detail::bad("an s3:// URL must not contain credentials");
    if (slash != std::string_view::npos) {
      auto prefix = detail::percent_decode(rest.substr(slash + 1));
      if (!prefix) return detail::bad("\"" + shown + "\": broken %XX in the prefix");
      while (!prefix->empty() && prefix->back() == '/') prefix->pop_back();
      r.prefix_ = std::move(*prefix);
    }
    while (!query.empty()) {
      const std::size_t amp = query.find('&');
      const std::string_view pair = query.substr(0, amp);
      query = amp == std::string_view::npos ? std::string_view() : query.substr(amp + 1);
      if (pair.empty()) continue;
      const std::size_t equals = pair.find('=');
      const std::string_view name = pair.substr(0, equals);
      auto value = detail::percent_decode(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1));
      if (!value) return detail::bad("\"" + shown + "\": broken %XX in the query");
      if (name == "endpoint") r.endpoint_ = std::move(*value);
      else if (name == "region") r.region_ = std::move(*value);
      else if (name == "style" && *value == "path") r.style_ = addressing::path;
      else if (name == "style" && *value == "virtual") r.style_ = addressing::virtual_host;
      else return detail::bad("\"" + std::string(name) + "\" in an s3:// URL: only endpoint, region and style=path|virtual are known");
    }
    return r;
  }
  const std::string& bucket() const noexcept { return bucket_; }
  const std::string& prefix() const noexcept { return prefix_; }
  const std::string& endpoint() const noexcept { return endpoint_; }
  const std::string& region() const noexcept { return region_; }
  addressing style() const noexcept { return style_; }

 private:
  std::string bucket_, prefix_, endpoint_, region_;
  addressing style_ = addressing::automatic;
};

/// Whether the bucket goes in front of the host. Never for an IP address, nor for a dotted bucket over TLS, whose name no wildcard
/// certificate covers. Source: Amazon S3 user guide, "Virtual hosting of buckets".
inline bool use_virtual_host(const endpoint& at, std::string_view bucket, addressing style, bool aws) {
  if (at.is_address()) return false;
  if (at.tls() && bucket.find('.') != std::string_view::npos) return false;
  if (style == addressing::automatic) return aws;
  return style == addressing::virtual_host;
}

/// Whether a redirect to `to` may be followed with a signed request: the same host or a host below it or beside it under the same
/// service domain, and never from TLS to plain HTTP.
inline bool may_follow(const endpoint& from, const endpoint& to) {
  if (from.tls() && !to.tls()) return false;
  if (from.host() == to.host()) return true;
  if (from.is_address() || to.is_address()) return false;
  std::string suffix = from.host();
  if (suffix.ends_with(".amazonaws.com")) suffix = "amazonaws.com";
  return to.host().ends_with("." + suffix);
}

}  // namespace batchweave::s3
