// One HTTP request to the test S3 server: parsed, classified, kept for assertions.
#pragma once

#include <batchweave/base/config.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::testing {

namespace detail {

inline std::string lower(std::string_view s) {
  std::string r(s);
  for (char& c : r) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return r;
}

inline int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// %XX only: a '+' stays a '+', as S3 does in paths and as its signature does in queries.
inline std::string percent_decode(std::string_view s) {
  std::string r;
  r.reserve(s.size());
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '%' && i + 2 < s.size() && hex_digit(s[i + 1]) >= 0 && hex_digit(s[i + 2]) >= 0) {
      r += static_cast<char>(hex_digit(s[i + 1]) * 16 + hex_digit(s[i + 2]));
      i += 2;
    } else {
      r += s[i];
    }
  }
  return r;
}

inline std::string percent_encode(std::string_view s, bool keep_slash) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string r;
  r.reserve(s.size());
  for (const char ch : s) {
    const auto c = static_cast<unsigned char>(ch);
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                       c == '_' || c == '~' || (keep_slash && c == '/');
    if (plain) {
      r += ch;
    } else {
      r += '%';
      r += digits[c >> 4];
      r += digits[c & 15];
    }
  }
  return r;
}

}  // namespace detail

/// What one request was. `operation()` is one of: PUT GET HEAD DELETE (of one object), LIST, DELETE_OBJECTS, INITIATE, PART,
/// COMPLETE, ABORT, LIST_UPLOADS, CREATE_BUCKET, HEAD_BUCKET, OTHER. Header names are lower case.
class s3_request {
 public:
  using fields = std::vector<std::pair<std::string, std::string>>;

  s3_request() = default;
  s3_request(std::string method, std::string target, fields headers)
      : method_(std::move(method)), target_(std::move(target)), headers_(std::move(headers)) {
    for (auto& h : headers_) h.first = detail::lower(h.first);
    const std::size_t mark = target_.find('?');
    path_ = target_.substr(0, mark);
    std::string_view rest = mark == std::string::npos ? std::string_view() : std::string_view(target_).substr(mark + 1);
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('&'), rest.size());
      const std::string_view item = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (item.empty()) continue;
      const std::size_t eq = std::min(item.find('='), item.size());
      query_.emplace_back(detail::percent_decode(item.substr(0, eq)),
                          detail::percent_decode(item.substr(std::min(eq + 1, item.size()))));
    }
    const std::size_t slash = path_.find('/', 1);
    bucket_ = detail::percent_decode(std::string_view(path_).substr(std::min<std::size_t>(1, path_.size()),
                                                                   slash == std::string::npos ? slash : slash - 1));
    if (slash != std::string::npos) key_ = detail::percent_decode(std::string_view(path_).substr(slash + 1));
    operation_ = classify();
  }

  const std::string& method() const noexcept { return method_; }
  /// Path and query exactly as received.
  const std::string& target() const noexcept { return target_; }
  const std::string& path() const noexcept { return path_; }
  const fields& headers() const noexcept { return headers_; }
  const fields& query() const noexcept { return query_; }
  const std::string& bucket() const noexcept { return bucket_; }
  /// The object's key; for LIST and LIST_UPLOADS the prefix.
  std::string key() const { return operation_ == "LIST" || operation_ == "LIST_UPLOADS" ? query_value("prefix").value_or("") : key_; }
  const std::string& operation() const noexcept { return operation_; }
  /// Body bytes received; 0 when the server did not read it.
  std::uint64_t body_size() const noexcept { return body_size_; }
  /// Which TCP connection it came on, counted from 1.
  std::uint64_t connection() const noexcept { return connection_; }
  /// The status that was sent, 0 while none was.
  int status() const noexcept { return status_; }

  std::optional<std::string> header(std::string_view lower_name) const {
    for (const auto& [name, value] : headers_) {
      if (name == lower_name) return value;
    }
    return std::nullopt;
  }
  std::optional<std::string> query_value(std::string_view name) const {
    for (const auto& [n, value] : query_) {
      if (n == name) return value;
    }
    return std::nullopt;
  }

  void body_size(std::uint64_t n) noexcept { body_size_ = n; }
  void connection(std::uint64_t n) noexcept { connection_ = n; }
  void status(int s) noexcept { status_ = s; }
  void drop_header(std::string_view lower_name) {
    std::erase_if(headers_, [&](const auto& h) { return h.first == lower_name; });
  }

 private:
  std::string classify() const {
    const bool object = !key_.empty();
    const bool upload = query_value("uploadId").has_value();
    if (method_ == "PUT") {
      if (!object) return "CREATE_BUCKET";
      return upload ? "PART" : "PUT";
    }
    if (method_ == "GET") {
      if (object) return "GET";
      return query_value("uploads") ? "LIST_UPLOADS" : "LIST";
    }
    if (method_ == "HEAD") return object ? "HEAD" : "HEAD_BUCKET";
    if (method_ == "DELETE") return object ? (upload ? "ABORT" : "DELETE") : "OTHER";
    if (method_ == "POST") {
      if (!object) return query_value("delete") ? "DELETE_OBJECTS" : "OTHER";
      if (query_value("uploads")) return "INITIATE";
      return upload ? "COMPLETE" : "OTHER";
    }
    return "OTHER";
  }

  std::string method_, target_, path_, bucket_, key_, operation_ = "OTHER";
  fields headers_, query_;
  std::uint64_t body_size_ = 0, connection_ = 0;
  int status_ = 0;
};

/// A complete answer, before the script damages it. Header names as they are sent.
class s3_reply {
 public:
  explicit s3_reply(int status = 200) : status_(status) {}
  int status() const noexcept { return status_; }
  const std::string& body() const noexcept { return body_; }
  std::string& body() noexcept { return body_; }
  const s3_request::fields& headers() const noexcept { return headers_; }
  s3_reply& status(int s) { status_ = s; return *this; }
  s3_reply& body(std::string b) { body_ = std::move(b); return *this; }
  s3_reply& header(std::string name, std::string value) {
    const std::string key = detail::lower(name);
    std::erase_if(headers_, [&](const auto& h) { return detail::lower(h.first) == key; });
    headers_.emplace_back(std::move(name), std::move(value));
    return *this;
  }
  /// Content-Length to announce when it is not the size of the body (HEAD).
  s3_reply& announced(std::uint64_t n) { announced_ = n; return *this; }
  std::uint64_t announced() const noexcept { return announced_.value_or(body_.size()); }

 private:
  int status_;
  std::string body_;
  s3_request::fields headers_;
  std::optional<std::uint64_t> announced_;
};

namespace detail {

inline std::string xml_escape(std::string_view s) {
  std::string r;
  for (const char c : s) {
    switch (c) {
      case '&': r += "&amp;"; break;
      case '<': r += "&lt;"; break;
      case '>': r += "&gt;"; break;
      case '"': r += "&quot;"; break;
      case '\r': r += "&#13;"; break;
      default: r += c;
    }
  }
  return r;
}

inline std::string s3_error_xml(std::string_view code, std::string_view message, std::string_view extra = std::string_view()) {
  std::string r = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>";
  r += xml_escape(code);
  r += "</Code><Message>";
  r += xml_escape(message);
  r += "</Message>";
  r += extra;
  r += "<RequestId>TESTREQUEST</RequestId></Error>";
  return r;
}

inline s3_reply s3_error(int status, std::string_view code, std::string_view message,
                         std::string_view extra = std::string_view()) {
  s3_reply r(status);
  r.header("Content-Type", "application/xml").body(s3_error_xml(code, message, extra));
  return r;
}

}  // namespace detail

}  // namespace batchweave::testing
