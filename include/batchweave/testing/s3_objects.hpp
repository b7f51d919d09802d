// What S3 does with a whole request: objects in memory, conditions, ranges, listings, multipart uploads. No I/O.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/base/checksum.hpp>
#include <batchweave/testing/s3_request.hpp>
#include <batchweave/testing/s3_signature.hpp>

#include <pugixml.hpp>

#include <charconv>
#include <cstdio>
#include <map>
#include <set>

namespace batchweave::testing {

/// One stored object.
class s3_object {
 public:
  s3_object() = default;
  s3_object(std::string bytes, std::string etag, s3_request::fields headers)
      : bytes_(std::move(bytes)), etag_(std::move(etag)), headers_(std::move(headers)) {}
  const std::string& bytes() const noexcept { return bytes_; }
  std::string& bytes() noexcept { return bytes_; }
  /// With its quotes.
  const std::string& etag() const noexcept { return etag_; }
  /// Content-Type, Content-Encoding and x-amz-meta-*, given back by GET and HEAD.
  const s3_request::fields& headers() const noexcept { return headers_; }

 private:
  std::string bytes_, etag_;
  s3_request::fields headers_;
};

namespace detail {

inline std::string md5_etag(std::string_view body) { return "\"" + hex(digest(EVP_md5(), body)) + "\""; }

inline std::string crc32c_base64(std::string_view body) {
  crc32c c;
  c.update(as_bytes(body));
  const std::uint32_t v = c.value();
  std::string raw;
  for (int shift = 24; shift >= 0; shift -= 8) raw += static_cast<char>((v >> shift) & 0xff);
  return base64(raw);
}

inline std::string bare_etag(std::string_view s) {
  if (s.size() >= 2 && s.front() == '"' && s.back() == '"') s = s.substr(1, s.size() - 2);
  return std::string(s);
}

template <class N>
std::optional<N> number(std::string_view s) {
  N n{};
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (ec != std::errc() || end != s.data() + s.size() || s.empty()) return std::nullopt;
  return n;
}

/// The result of a Range header against an object: the part, everything (header unusable), or nothing (416).
class cut {
 public:
  enum class kind { whole, part, unsatisfiable };
  cut(kind k, std::uint64_t from, std::uint64_t to) : what(k), first(from), end(to) {}
  kind what;
  std::uint64_t first, end;
};
inline cut cut_range(const std::optional<std::string>& header, std::uint64_t size) {
  using kind = cut::kind;
  const cut whole(kind::whole, 0, size);
  if (!header || !header->starts_with("bytes=")) return whole;
  const std::string_view spec = std::string_view(*header).substr(6);
  const std::size_t dash = spec.find('-');
  if (dash == std::string_view::npos) return whole;
  if (dash == 0) {
    const auto n = number<std::uint64_t>(spec.substr(1));
    if (!n) return whole;
    if (size == 0) return *n ? whole : cut(kind::unsatisfiable, 0, 0);
    if (*n == 0) return cut(kind::unsatisfiable, 0, 0);
    return cut(kind::part, size - std::min(*n, size), size);
  }
  const auto first = number<std::uint64_t>(spec.substr(0, dash));
  const auto last = spec.size() == dash + 1 ? std::optional<std::uint64_t>(~std::uint64_t{0}) : number<std::uint64_t>(spec.substr(dash + 1));
  if (!first || !last || *last < *first) return whole;
  if (*first >= size) return cut(kind::unsatisfiable, 0, 0);
  return cut(kind::part, *first, std::min(*last, size - 1) + 1);
}

}  // namespace detail

/// Buckets in memory. Not thread safe: the server holds its lock around every call.
class s3_objects {
 public:
  using object_map = std::map<std::string, s3_object>;  // std::string compares bytes as unsigned: S3's order

  void create_bucket(const std::string& name) { buckets_.try_emplace(name); }
  object_map* bucket(const std::string& name) {
    const auto at = buckets_.find(name);
    return at == buckets_.end() ? nullptr : &at->second;
  }
  std::size_t uploads() const noexcept { return uploads_.size(); }

  /// Largest number of keys in one page of a listing.
  std::size_t page_limit = 1000;
  /// As S3 Express: no order, start-after refused.
  bool unordered = false;
  /// Smallest part but the last; S3's is 5 MiB.
  std::uint64_t min_part = 5u << 20;

  /// Why the body of this request is not what its headers promise; nullopt when it is.
  static std::optional<s3_reply> refuse_body(const s3_request& q, const std::string& body) {
    using detail::s3_error;
    const std::string hash = q.header("x-amz-content-sha256").value_or("UNSIGNED-PAYLOAD");
    if (hash.starts_with("STREAMING-")) {
      return s3_error(501, "NotImplemented", "this server takes no aws-chunked uploads: send a plain body with Content-Length");
    }
    if (hash != "UNSIGNED-PAYLOAD" && hash != detail::sha256_hex(body)) {
      return s3_error(400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.");
    }
    if (const auto md5 = q.header("content-md5"); md5 && *md5 != detail::base64(detail::digest(EVP_md5(), body))) {
      return s3_error(400, "BadDigest", "The Content-MD5 you specified did not match what we received.");
    }
    if (const auto crc = q.header("x-amz-checksum-crc32c"); crc && *crc != detail::crc32c_base64(body)) {
      return s3_error(400, "BadDigest", "The CRC32C you specified did not match what we received.");
    }
    return std::nullopt;
  }

  /// Whether the body of a write is protected by a hash or a checksum, so that a cut-off body cannot be taken for a whole one.
  static bool is_protected(const s3_request& q) {
    return has_checksum(q) || q.header("x-amz-content-sha256").value_or("UNSIGNED-PAYLOAD") != "UNSIGNED-PAYLOAD";
  }

  /// The condition of a PUT or COMPLETE alone; nullopt when it holds. Part of execute(); separate for non-atomic stores.
  std::optional<s3_reply> refuse_condition(const s3_request& q) {
    using detail::s3_error;
    object_map* all = bucket(q.bucket());
    if (!all) return no_bucket(q);
    const auto at = all->find(q.key());
    if (const auto none = q.header("if-none-match")) {
      if (*none != "*") return s3_error(501, "NotImplemented", "A header you provided implies functionality that is not implemented");
      if (at != all->end()) return failed("If-None-Match");
    }
    if (const auto match = q.header("if-match")) {
      if (at == all->end()) return s3_error(404, "NoSuchKey", "The specified key does not exist.");
      if (*match != "*" && detail::bare_etag(*match) != detail::bare_etag(at->second.etag())) return failed("If-Match");
    }
    return std::nullopt;
  }

  /// Does the request. `unconditional`: the condition was checked before.
  s3_reply execute(const s3_request& q, const std::string& body, bool unconditional = false) {
    using detail::s3_error;
    const std::string& op = q.operation();
    if (op == "CREATE_BUCKET") {
      const bool there = bucket(q.bucket()) != nullptr;
      create_bucket(q.bucket());
      return there ? s3_error(409, "BucketAlreadyOwnedByYou", "Your previous request to create the named bucket succeeded.")
                   : s3_reply(200);
    }
    if (op == "OTHER") return s3_error(501, "NotImplemented", "this server does not do " + q.method() + " " + q.target());
    object_map* all = bucket(q.bucket());
    if (!all) return no_bucket(q);
    if (op == "HEAD_BUCKET") return s3_reply(200);
    if (q.header("x-amz-copy-source")) return s3_error(501, "NotImplemented", "this server does not copy objects");
    if (op == "PUT" || op == "COMPLETE") {
      if (!unconditional) {
        if (auto refused = refuse_condition(q)) return *refused;
      }
    }
    if (op == "PUT") return put(*all, q, body);
    if (op == "GET" || op == "HEAD") return read(*all, q);
    if (op == "DELETE") {
      all->erase(q.key());
      return s3_reply(204);
    }
    if (op == "LIST") return list(*all, q);
    if (op == "DELETE_OBJECTS") return delete_objects(*all, q, body);
    if (op == "INITIATE") return initiate(q);
    if (op == "LIST_UPLOADS") return list_uploads(q);
    const auto upload = uploads_.find(q.query_value("uploadId").value_or(""));
    if (upload == uploads_.end() || upload->second.bucket != q.bucket() || upload->second.key != q.key()) {
      return s3_error(404, "NoSuchUpload", "The specified upload does not exist.");
    }
    if (op == "PART") return part(upload->second, q, body);
    if (op == "ABORT") {
      uploads_.erase(upload);
      return s3_reply(204);
    }
    return complete(*all, upload, q, body);
  }

 private:
  struct pending_upload {
    std::string bucket, key;
    s3_request::fields headers;
    std::map<int, s3_object> parts;
  };
  using upload_map = std::map<std::string, pending_upload>;

  static bool has_checksum(const s3_request& q) {
    return std::any_of(q.headers().begin(), q.headers().end(), [](const auto& h) {
      return h.first == "content-md5" || (h.first.starts_with("x-amz-checksum-") && h.first != "x-amz-checksum-algorithm");
    });
  }
  static s3_reply no_bucket(const s3_request& q) {
    return detail::s3_error(404, "NoSuchBucket", "The specified bucket does not exist",
                            "<BucketName>" + detail::xml_escape(q.bucket()) + "</BucketName>");
  }
  static s3_reply failed(const char* condition) {
    return detail::s3_error(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold",
                            std::string("<Condition>") + condition + "</Condition>");
  }
  static s3_request::fields kept_headers(const s3_request& q) {
    s3_request::fields kept;
    for (const auto& h : q.headers()) {
      if (h.first == "content-type" || h.first == "content-encoding" || h.first.starts_with("x-amz-meta-")) kept.push_back(h);
    }
    return kept;
  }

  static s3_reply put(object_map& all, const s3_request& q, const std::string& body) {
    s3_object made(body, detail::md5_etag(body), kept_headers(q));
    s3_reply r(200);
    r.header("ETag", made.etag());
    if (const auto crc = q.header("x-amz-checksum-crc32c")) r.header("x-amz-checksum-crc32c", *crc);
    all[q.key()] = std::move(made);
    return r;
  }

  static s3_reply read(object_map& all, const s3_request& q) {
    using detail::s3_error;
    const auto at = all.find(q.key());
    if (at == all.end()) return s3_error(404, "NoSuchKey", "The specified key does not exist.");
    const s3_object& o = at->second;
    if (const auto match = q.header("if-match"); match && *match != "*" && detail::bare_etag(*match) != detail::bare_etag(o.etag())) {
      return failed("If-Match");
    }
    if (const auto none = q.header("if-none-match"); none && (*none == "*" || detail::bare_etag(*none) == detail::bare_etag(o.etag()))) {
      s3_reply r(304);
      return r.header("ETag", o.etag());
    }
    const std::uint64_t size = o.bytes().size();
    const detail::cut part = detail::cut_range(q.header("range"), size);
    if (part.what == detail::cut::kind::unsatisfiable) {
      s3_reply r = s3_error(416, "InvalidRange", "The requested range is not satisfiable",
                            "<ActualObjectSize>" + std::to_string(size) + "</ActualObjectSize>");
      return r.header("Content-Range", "bytes */" + std::to_string(size));
    }
    s3_reply r(part.what == detail::cut::kind::part ? 206 : 200);
    r.header("ETag", o.etag()).header("Accept-Ranges", "bytes");
    for (const auto& [name, value] : o.headers()) r.header(name, value);
    if (part.what == detail::cut::kind::part) {
      r.header("Content-Range",
               "bytes " + std::to_string(part.first) + "-" + std::to_string(part.end - 1) + "/" + std::to_string(size));
    }
    r.body(o.bytes().substr(part.first, part.end - part.first));
    return r;
  }

  /// Where a key comes in a listing: by its bytes, or in an arbitrary but fixed place.
  std::string rank(const std::string& key) const {
    return unordered ? detail::digest(EVP_sha256(), key) : key;
  }

  s3_reply list(object_map& all, const s3_request& q) {
    using detail::s3_error;
    if (q.query_value("list-type").value_or("") != "2") return s3_error(501, "NotImplemented", "only ListObjectsV2");
    if (q.query_value("delimiter").value_or("") != "") return s3_error(501, "NotImplemented", "no delimiter");
    const auto start_after = q.query_value("start-after");
    if (unordered && start_after && !start_after->empty()) return s3_error(501, "NotImplemented", "no start-after here");
    const std::string wanted = q.query_value("max-keys").value_or("1000");
    const auto asked = detail::number<std::size_t>(wanted);
    if (!asked) return s3_error(400, "InvalidArgument", "max-keys is not a number");
    const std::size_t most = std::min(*asked, page_limit);
    const bool url = q.query_value("encoding-type").value_or("") == "url";
    const std::string prefix = q.query_value("prefix").value_or("");
    std::string after = rank(start_after.value_or(""));
    if (!start_after || start_after->empty()) after.clear();
    if (const auto token = q.query_value("continuation-token")) {
      if (token->size() % 2) return s3_error(400, "InvalidArgument", "The continuation token provided is incorrect");
      after.clear();
      for (std::size_t i = 0; i + 1 < token->size(); i += 2) {
        after += static_cast<char>(detail::hex_digit((*token)[i]) * 16 + detail::hex_digit((*token)[i + 1]));
      }
    }
    std::vector<std::pair<std::string, object_map::const_iterator>> found;  // rank, object
    bool more = false;
    const auto take = [&](object_map::const_iterator o) {
      if (found.size() == most) return static_cast<void>(more = true);
      found.emplace_back(rank(o->first), o);
    };
    if (unordered) {
      std::map<std::string, object_map::const_iterator> order;
      for (auto o = all.cbegin(); o != all.cend(); ++o) {
        if (o->first.starts_with(prefix)) order.emplace(rank(o->first), o);
      }
      for (auto o = after.empty() ? order.begin() : order.upper_bound(after); o != order.end() && !more; ++o) take(o->second);
    } else {
      auto o = after.empty() || after < prefix ? all.lower_bound(prefix) : all.upper_bound(after);
      for (; o != all.end() && o->first.starts_with(prefix) && !more; ++o) take(o);
    }
    if (most == 0) more = false;
    const auto text = [&](const std::string& s) { return url ? detail::percent_encode(s, true) : detail::xml_escape(s); };
    std::string x = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    x += "<Name>" + detail::xml_escape(q.bucket()) + "</Name><Prefix>" + text(prefix) + "</Prefix><MaxKeys>" + wanted +
         "</MaxKeys><KeyCount>" + std::to_string(found.size()) + "</KeyCount><IsTruncated>" + (more ? "true" : "false") +
         "</IsTruncated>";
    if (url) x += "<EncodingType>url</EncodingType>";
    if (more) x += "<NextContinuationToken>" + detail::hex(found.back().first) + "</NextContinuationToken>";
    for (const auto& f : found) {
      x += "<Contents><Key>" + text(f.second->first) + "</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>" +
           detail::xml_escape(f.second->second.etag()) + "</ETag><Size>" + std::to_string(f.second->second.bytes().size()) +
           "</Size><StorageClass>STANDARD</StorageClass></Contents>";
    }
    x += "</ListBucketResult>";
    s3_reply r(200);
    return r.header("Content-Type", "application/xml").body(std::move(x));
  }

  static s3_reply malformed(const std::string& why) {
    return detail::s3_error(400, "MalformedXML", "The XML you provided was not well-formed: " + why);
  }

  static s3_reply delete_objects(object_map& all, const s3_request& q, const std::string& body) {
    if (!has_checksum(q)) {
      return detail::s3_error(400, "InvalidRequest", "Missing required header for this request: Content-MD5 OR x-amz-checksum-*");
    }
    pugi::xml_document doc;
    // Without the flag pugixml would drop keys that are blanks only.
    if (!doc.load_buffer(body.data(), body.size(), pugi::parse_default | pugi::parse_ws_pcdata_single)) return malformed("Delete");
    const pugi::xml_node root = doc.child("Delete");
    if (!root) return malformed("no Delete element");
    const bool quiet = std::string_view(root.child_value("Quiet")) == "true";
    std::vector<std::string> keys;
    for (const pugi::xml_node o : root.children("Object")) keys.emplace_back(o.child_value("Key"));
    if (keys.empty() || keys.size() > 1000) return malformed(std::to_string(keys.size()) + " keys");
    std::string x = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    for (const std::string& k : keys) {
      all.erase(k);
      if (!quiet) x += "<Deleted><Key>" + detail::xml_escape(k) + "</Key></Deleted>";
    }
    x += "</DeleteResult>";
    s3_reply r(200);
    return r.header("Content-Type", "application/xml").body(std::move(x));
  }

  s3_reply initiate(const s3_request& q) {
    char id[32];
    std::snprintf(id, sizeof id, "upload-%06llu", static_cast<unsigned long long>(++last_upload_));
    pending_upload& u = uploads_[id];
    u.bucket = q.bucket();
    u.key = q.key();
    u.headers = kept_headers(q);
    s3_reply r(200);
    return r.header("Content-Type", "application/xml")
        .body("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<InitiateMultipartUploadResult><Bucket>" + detail::xml_escape(u.bucket) +
              "</Bucket><Key>" + detail::xml_escape(u.key) + "</Key><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>");
  }

  static s3_reply part(pending_upload& u, const s3_request& q, const std::string& body) {
    const auto n = detail::number<int>(q.query_value("partNumber").value_or(""));
    if (!n || *n < 1 || *n > 10000) return detail::s3_error(400, "InvalidArgument", "Part number must be an integer between 1 and 10000");
    s3_object made(body, detail::md5_etag(body), s3_request::fields());
    s3_reply r(200);
    r.header("ETag", made.etag());
    u.parts[*n] = std::move(made);
    return r;
  }

  s3_reply complete(object_map& all, upload_map::iterator upload, const s3_request& q, const std::string& body) {
    using detail::s3_error;
    pugi::xml_document doc;
    if (!doc.load_buffer(body.data(), body.size())) return malformed("CompleteMultipartUpload");
    const pugi::xml_node root = doc.child("CompleteMultipartUpload");
    std::string whole, digests;
    int last = 0, count = 0;
    for (const pugi::xml_node p : root.children("Part")) {
      const auto n = detail::number<int>(p.child_value("PartNumber"));
      if (!n) return malformed("PartNumber");
      if (*n <= last) return s3_error(400, "InvalidPartOrder", "The list of parts was not in ascending order.");
      last = *n;
      const auto at = upload->second.parts.find(*n);
      if (at == upload->second.parts.end() || detail::bare_etag(at->second.etag()) != detail::bare_etag(p.child_value("ETag"))) {
        return s3_error(400, "InvalidPart", "One or more of the specified parts could not be found.");
      }
      if (p.next_sibling("Part") && at->second.bytes().size() < min_part) {
        return s3_error(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size");
      }
      whole += at->second.bytes();
      digests += detail::digest(EVP_md5(), at->second.bytes());
      ++count;
    }
    if (count == 0) return malformed("no parts");
    s3_object made(std::move(whole), "\"" + detail::hex(detail::digest(EVP_md5(), digests)) + "-" + std::to_string(count) + "\"",
                   upload->second.headers);
    const std::string etag = made.etag();
    all[q.key()] = std::move(made);
    uploads_.erase(upload);
    s3_reply r(200);
    return r.header("Content-Type", "application/xml")
        .body("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
              "<Bucket>" + detail::xml_escape(q.bucket()) + "</Bucket><Key>" + detail::xml_escape(q.key()) + "</Key><ETag>" +
              detail::xml_escape(etag) + "</ETag></CompleteMultipartUploadResult>");
  }

  s3_reply list_uploads(const s3_request& q) const {
    const std::string prefix = q.query_value("prefix").value_or("");
    std::string x = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListMultipartUploadsResult><Bucket>" +
                    detail::xml_escape(q.bucket()) + "</Bucket><IsTruncated>false</IsTruncated>";
    const bool url = q.query_value("encoding-type").value_or("") == "url";
    if (url) x += "<EncodingType>url</EncodingType>";
    for (const auto& [id, u] : uploads_) {
      if (u.bucket != q.bucket() || !u.key.starts_with(prefix)) continue;
      x += "<Upload><Key>" + (url ? detail::percent_encode(u.key, true) : detail::xml_escape(u.key)) + "</Key><UploadId>" + id +
           "</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>";
    }
    x += "</ListMultipartUploadsResult>";
    s3_reply r(200);
    return r.header("Content-Type", "application/xml").body(std::move(x));
  }

  std::map<std::string, object_map> buckets_;
  upload_map uploads_;
  std::uint64_t last_upload_ = 0;
};

}  // namespace batchweave::testing
