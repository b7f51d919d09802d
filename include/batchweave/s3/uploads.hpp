// Multipart uploads that were begun and never finished: listing them, and aborting one.
#pragma once

#include <batchweave/s3/perform.hpp>
#include <batchweave/s3/xml.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::s3 {

/// One page of ListMultipartUploads: keys with upload ids.
class uploads_result {
 public:
  uploads_result() = default;
  std::vector<std::pair<std::string, std::string>> uploads;
  bool truncated = false;
  std::string key_marker, id_marker;
};

/// errc::bad_response unless it is a complete ListMultipartUploadsResult.
inline result<uploads_result> parse_uploads(std::string_view body) {
  constexpr std::string_view what = "ListMultipartUploadsResult";
  pugi::xml_document d;
  if (!detail::load(d, body)) return detail::not_that(what, body);
  const pugi::xml_node root = d.document_element();
  if (detail::local_name(root.name()) != what) return detail::not_that(what, body);
  uploads_result r;
  r.truncated = detail::text(root, "IsTruncated") == "true";
  const bool encoded = detail::lower(detail::text(root, "EncodingType")) == "url";
  const auto plain = [&](std::string key) -> std::optional<std::string> {
    if (!encoded) return key;
    return detail::percent_decode(key, true);
  };
  const auto marker = plain(detail::text(root, "NextKeyMarker"));
  if (!marker) return detail::not_that(what, body);
  r.key_marker = *marker;
  r.id_marker = detail::text(root, "NextUploadIdMarker");
  for (const pugi::xml_node& u : root.children()) {
    if (detail::local_name(u.name()) != "Upload") continue;
    const auto key = plain(detail::text(u, "Key"));
    std::string id = detail::text(u, "UploadId");
    if (!key || key->empty() || id.empty()) return detail::not_that(what, body);
    r.uploads.emplace_back(*key, std::move(id));
  }
  return r;
}

namespace detail {

/// All uploads of keys under `prefix`. Requests: one ListMultipartUploads for each 1000.
inline asio::awaitable<result<std::vector<std::pair<std::string, std::string>>>> uploads_under(std::shared_ptr<client_state> s,
                                                                                               std::string prefix) {
  std::vector<std::pair<std::string, std::string>> all;
  std::string key_marker, id_marker;
  for (;;) {
    request q("GET", std::string());
    q.query("uploads").query("prefix", prefix).query("encoding-type", "url");
    if (!key_marker.empty()) q.query("key-marker", key_marker).query("upload-id-marker", id_marker);
    operation op(*s, "LIST UPLOADS", std::move(q), false);
    const std::vector<int> accept;
    optional_failure bad = co_await perform(s, op, accept);
    if (bad) co_return bad->in("prefix \"" + prefix + "\"");
    result<uploads_result> page = parse_uploads(op.text);
    if (!page) co_return in_context(page.error(), op.describe(*s));
    for (auto& u : page->uploads) {
      if (u.first.starts_with(prefix)) all.push_back(std::move(u));  // some servers take no prefix
    }
    const bool moves = page->key_marker != key_marker || page->id_marker != id_marker;
    if (!page->truncated || page->key_marker.empty() || !moves) co_return all;
    key_marker = page->key_marker;
    id_marker = page->id_marker;
  }
}

inline asio::awaitable<std::optional<failure>> drop_upload(std::shared_ptr<client_state> s, std::string key, std::string id) {
  request q("DELETE", key);
  q.query("uploadId", id);
  operation op(*s, "ABORT UPLOAD", std::move(q), false);
  const std::vector<int> gone{404};
  co_return co_await perform(s, op, gone);
}

}  // namespace detail
}  // namespace batchweave::s3
