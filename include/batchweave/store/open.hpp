// The store that a URL names.
#pragma once

#include <batchweave/store/any_store.hpp>
#include <batchweave/store/file.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/store/s3.hpp>

#include <boost/asio/any_io_executor.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace batchweave {

namespace detail {

inline failure bad_url(std::string_view what) {
  return failure(errc::invalid_argument, "store URL: " + std::string(what) +
                                             " (s3://bucket/prefix, file:///absolute/folder, file:folder, a plain path, or memory:)")
      .with_fate(fate::did_not_happen);
}

/// Undoes %XX; nullopt when it is cut short or not hexadecimal, or when it hides a NUL.
inline std::optional<std::string> percent_decoded(std::string_view s) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '%') {
      out += s[i];
      continue;
    }
    if (i + 2 >= s.size()) return std::nullopt;
    const int high = digit(s[i + 1]), low = digit(s[i + 2]);
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

/// The part after "file:". Options: ?create=on|off (make the folder), ?durable=on|off (fsync).
inline result<any_store> open_file_url(std::string_view rest) {
  file_store_options options;
  const std::size_t mark = rest.find('?');
  std::string_view query = mark == std::string_view::npos ? std::string_view() : rest.substr(mark + 1);
  rest = rest.substr(0, mark);
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view one = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    if (one == "create=on" || one == "create=off") options.create_folder(one == "create=on");
    else if (one == "durable=on" || one == "durable=off") options.durable(one == "durable=on");
    else return bad_url("unknown option '" + std::string(one) + "' of a folder; it takes create=on|off and durable=on|off");
  }
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    const std::size_t slash = rest.find('/');
    const std::string_view host = rest.substr(0, slash);
    if (slash == std::string_view::npos || !(host.empty() || host == "localhost")) {
      return bad_url("'file://" + std::string(rest) + "' names another host; write file:///absolute/folder");
    }
    rest.remove_prefix(slash);
  }
  const std::optional<std::string> path = percent_decoded(rest);
  if (!path || path->empty()) return bad_url("'file:" + std::string(rest) + "' is no folder");
  result<file_store> opened = file_store::open(*path, options);
  if (!opened) return opened.error();
  return any_store(std::move(*opened));
}

}  // namespace detail

/// Opens a store by URL: `s3://bucket/prefix?endpoint=...` (see s3_config::from_url; no request is made yet), `file:///abs`, `file:rel`
/// or a plain path (the folder must exist, or say ?create=on), `memory:` (a new, empty store that lives as long as its handles).
/// `executor` carries the sockets of s3. Blocking for folders. Errors: errc::invalid_argument, those of file_store and s3_config.
inline result<any_store> open_store(asio::any_io_executor executor, std::string_view url) {
  if (url.empty()) return detail::bad_url("it is empty");
  if (url.find('\0') != std::string_view::npos) return detail::bad_url("it holds a NUL");
  if (url.starts_with("s3://")) {
    result<s3_config> config = s3_config::from_url(url);
    if (!config) return config.error();
    return any_store(s3_store(std::move(executor), std::move(*config)));
  }
  if (url.starts_with("file:")) return detail::open_file_url(url.substr(5));
  if (url.starts_with("memory:")) {
    if (url != "memory:") return detail::bad_url("a store in memory has no name, because nothing outside of its handles can find it: write 'memory:'");
    return any_store(memory_store());
  }
  const std::size_t scheme = url.find("://");
  if (scheme != std::string_view::npos && url.substr(0, scheme).find('/') == std::string_view::npos) {
    return detail::bad_url("unknown scheme '" + std::string(url.substr(0, scheme)) + "'");
  }
  const file_store_options options;
  result<file_store> opened = file_store::open(std::string(url), options);
  if (!opened) return opened.error();
  return any_store(std::move(*opened));
}

}  // namespace batchweave
