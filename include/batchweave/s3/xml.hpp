// The XML of S3: errors, listings, deletions and multipart uploads, read strictly and written escaped. Pure.
#pragma once

#include <batchweave/base/error.hpp>
#include <batchweave/s3/endpoint.hpp>
#include <batchweave/s3/response.hpp>

#include <pugixml.hpp>

#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::s3 {

/// <Error>: code, message and, for some codes, the region or endpoint to use.
class error_body {
 public:
  error_body() = default;
  std::string code, message, region, endpoint, request_id;
};

namespace detail {
inline std::string_view local_name(const char* name) {
  const std::string_view s(name);
  const std::size_t colon = s.rfind(':');
  return colon == std::string_view::npos ? s : s.substr(colon + 1);
}
inline pugi::xml_node child(const pugi::xml_node& n, std::string_view name) {
  for (const pugi::xml_node& c : n.children()) {
    if (local_name(c.name()) == name) return c;
  }
  return pugi::xml_node();
}
inline std::string text(const pugi::xml_node& n, std::string_view name) { return child(n, name).text().get(); }

/// Parses `body`; nullopt unless it is well formed. White space in values counts.
inline bool load(pugi::xml_document& d, std::string_view body) {
  const auto status = d.load_buffer(body.data(), body.size(), pugi::parse_default | pugi::parse_ws_pcdata_single);
  return status && d.document_element();
}
inline failure not_that(std::string_view wanted, std::string_view body) {
  std::string what = "the body of the answer is not a " + std::string(wanted) + " but ";
  if (body.empty()) what += "empty";
  else {
    what += "\"";
    for (const char c : body.substr(0, 80)) what.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
    what += body.size() > 80 ? "...\"" : "\"";
  }
  return failure(errc::bad_response, std::move(what));
}
inline error_body error_of(const pugi::xml_node& e) {
  error_body r;
  r.code = text(e, "Code");
  r.message = text(e, "Message");
  r.region = text(e, "Region");
  r.endpoint = text(e, "Endpoint");
  r.request_id = text(e, "RequestId");
  return r;
}
inline std::optional<std::uint64_t> number(std::string_view s) {
  std::uint64_t v = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (ec != std::errc() || end != s.data() + s.size() || s.empty()) return std::nullopt;
  return v;
}
}  // namespace detail

/// nullopt: not an <Error> document (HTML of a proxy, an empty body).
inline std::optional<error_body> parse_error(std::string_view body) {
  pugi::xml_document d;
  if (!detail::load(d, body)) return std::nullopt;
  const pugi::xml_node root = d.document_element();
  if (detail::local_name(root.name()) != "Error") return std::nullopt;
  return detail::error_of(root);
}

/// Escapes text for an XML element.
inline std::string xml_escape(std::string_view s) {
  std::string r;
  r.reserve(s.size() + 16);
  for (const char c : s) {
    switch (c) {
      case '&': r += "&amp;"; break;
      case '<': r += "&lt;"; break;
      case '>': r += "&gt;"; break;
      case '"': r += "&quot;"; break;
      case '\'': r += "&apos;"; break;
      case '\r': r += "&#13;"; break;
      case '\n': r += "&#10;"; break;
      default: r.push_back(c);
    }
  }
  return r;
}

/// One page of ListObjectsV2.
class list_result {
 public:
  list_result() = default;
  std::vector<listed_object> objects;
  bool truncated = false;
  std::string continuation;
};

/// errc::bad_response unless it is a complete ListBucketResult. Keys are decoded when the server says that it encoded them.
inline result<list_result> parse_list(std::string_view body) {
  pugi::xml_document d;
  if (!detail::load(d, body)) return detail::not_that("ListBucketResult", body);
  const pugi::xml_node root = d.document_element();
  if (detail::local_name(root.name()) != "ListBucketResult") return detail::not_that("ListBucketResult", body);
  list_result r;
  const std::string truncated = detail::text(root, "IsTruncated");
  if (truncated != "true" && truncated != "false") return detail::not_that("ListBucketResult with IsTruncated", body);
  r.truncated = truncated == "true";
  r.continuation = detail::text(root, "NextContinuationToken");
  const bool encoded = detail::lower(detail::text(root, "EncodingType")) == "url";
  for (const pugi::xml_node& c : root.children()) {
    if (detail::local_name(c.name()) != "Contents") continue;
    std::string key = detail::text(c, "Key");
    if (encoded) {
      auto plain = detail::percent_decode(key, true);
      if (!plain) return detail::not_that("ListBucketResult with keys in URL encoding", body);
      key = std::move(*plain);
    }
    const auto size = detail::number(detail::text(c, "Size"));
    if (key.empty() || !size) return detail::not_that("ListBucketResult whose entries have a Key and a Size", body);
    r.objects.emplace_back(std::move(key), *size, detail::text(c, "ETag"));
  }
  return r;
}

/// Body of DeleteObjects for at most 1000 keys.
inline std::string delete_body(const std::vector<std::string>& keys) {
  std::string r = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const std::string& k : keys) r += "<Object><Key>" + xml_escape(k) + "</Key></Object>";
  return r + "</Delete>";
}

/// Keys that were removed and keys that were not, with the server's reason.
class delete_result {
 public:
  delete_result() = default;
  std::vector<std::string> removed;
  std::vector<std::pair<std::string, error_body>> failed;
};
inline result<delete_result> parse_delete(std::string_view body) {
  pugi::xml_document d;
  if (!detail::load(d, body)) return detail::not_that("DeleteResult", body);
  const pugi::xml_node root = d.document_element();
  if (detail::local_name(root.name()) != "DeleteResult") return detail::not_that("DeleteResult", body);
  delete_result r;
  for (const pugi::xml_node& c : root.children()) {
    const std::string_view name = detail::local_name(c.name());
    if (name == "Deleted") r.removed.push_back(detail::text(c, "Key"));
    if (name == "Error") r.failed.emplace_back(detail::text(c, "Key"), detail::error_of(c));
  }
  return r;
}

/// The upload id.
inline result<std::string> parse_initiate(std::string_view body) {
  pugi::xml_document d;
  if (!detail::load(d, body)) return detail::not_that("InitiateMultipartUploadResult", body);
  const pugi::xml_node root = d.document_element();
  std::string id = detail::text(root, "UploadId");
  if (detail::local_name(root.name()) != "InitiateMultipartUploadResult" || id.empty()) {
    return detail::not_that("InitiateMultipartUploadResult with an UploadId", body);
  }
  return id;
}

/// `etags` of parts 1, 2, ... in order, as the server gave them.
inline std::string complete_body(const std::vector<std::string>& etags) {
  std::string r = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (std::size_t i = 0; i < etags.size(); ++i) {
    r += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + xml_escape(etags[i]) + "</ETag></Part>";
  }
  return r + "</CompleteMultipartUpload>";
}

/// The etag of the whole; or the error inside a 200; errc::bad_response for anything else (an empty body: the fate is unknown).
class complete_result {
 public:
  complete_result() = default;
  std::string etag;
  std::optional<error_body> error;
};
inline result<complete_result> parse_complete(std::string_view body) {
  const std::size_t start = body.find('<');
  if (start != std::string_view::npos) body.remove_prefix(start);  // S3 sends blanks to keep the connection alive
  pugi::xml_document d;
  if (!detail::load(d, body)) return detail::not_that("CompleteMultipartUploadResult", body);
  const pugi::xml_node root = d.document_element();
  complete_result r;
  if (detail::local_name(root.name()) == "Error") {
    r.error = detail::error_of(root);
    return r;
  }
  if (detail::local_name(root.name()) != "CompleteMultipartUploadResult") return detail::not_that("CompleteMultipartUploadResult", body);
  r.etag = detail::text(root, "ETag");
  return r;
}

}  // namespace batchweave::s3
