// What S3 operations return, and reading the numbers out of response headers. Pure.
#pragma once

#include <batchweave/base/error.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave::s3 {

/// An object as a listing or a HEAD shows it.
class listed_object {
 public:
  listed_object() = default;
  listed_object(std::string k, std::uint64_t s, std::string e) : key(std::move(k)), size(s), etag(std::move(e)) {}
  std::string key;
  std::uint64_t size = 0;
  std::string etag;
};

/// What a GET found. `found` false: the key does not exist.
class read_result {
 public:
  read_result() = default;
  bool found = false;
  std::uint64_t bytes = 0;
  std::uint64_t object_size = 0;
  std::string etag;
};

/// What a PUT did. `applied` false: the condition did not hold.
class put_result {
 public:
  put_result() = default;
  bool applied = false;
  std::string etag;
};

/// Content-Range: "bytes 0-9/100" or, with 416, "bytes */100".
class content_range {
 public:
  content_range() = default;
  static std::optional<content_range> parse(std::string_view s) {
    if (!s.starts_with("bytes ")) return std::nullopt;
    s.remove_prefix(6);
    const std::size_t slash = s.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    content_range r;
    const auto size = number(s.substr(slash + 1));
    if (!size) return std::nullopt;
    r.size = *size;
    s = s.substr(0, slash);
    if (s == "*") return r;
    const std::size_t dash = s.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto first = number(s.substr(0, dash)), last = number(s.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= r.size) return std::nullopt;
    r.satisfied = true;
    r.first = *first;
    r.last = *last;
    return r;
  }
  static std::optional<std::uint64_t> number(std::string_view s) {
    std::uint64_t v = 0;
    const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (s.empty() || ec != std::errc() || end != s.data() + s.size()) return std::nullopt;
    return v;
  }
  bool satisfied = false;
  std::uint64_t first = 0, last = 0, size = 0;
};

}  // namespace batchweave::s3
