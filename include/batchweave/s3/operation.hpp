// One S3 operation over all its attempts, and what a good answer to a read must say.
#pragma once

#include <batchweave/base/checksum.hpp>
#include <batchweave/http/exchange.hpp>
#include <batchweave/s3/client_state.hpp>
#include <batchweave/s3/request.hpp>
#include <batchweave/s3/response.hpp>
#include <batchweave/s3/xml.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave::s3::detail {

/// State of one operation. A value: an attempt that runs beside another one works on a copy.
class operation {
 public:
  operation(const client_state& s, std::string verb_, request r, bool writes_)
      : verb(std::move(verb_)), what(std::move(r)), writes(writes_), started(s.config.clock().now()) {
    const duration limit = s.config.timeouts().overall;
    // Sockets wait in real time, whatever clock the retries use.
    if (limit > duration::zero()) overall = real_clock().now() + limit;
  }
  std::string verb;
  request what;
  bool writes;
  const_buffers body;
  // Where the bytes of a 200 or 206 go; unused unless `straight`.
  bool straight = false;
  mutable_buffers into;
  std::uint64_t offset = 0, length = 0, received = 0, object_size = 0;
  std::string etag;

  http::response_head head;
  std::string text;
  std::string code;
  credential_cache::keys signed_with;
  optional_failure sticky;  // an earlier attempt whose effect is not known
  bool replayed = false, doubted = false, clock_learned = false, region_learned = false, renewed = false, unquoted = false;
  unsigned hops = 0;
  std::optional<endpoint> redirected;
  std::string redirected_path;
  time_point started, sent{};
  time_point overall = time_point::max();

  std::string describe(const client_state& s) const {
    std::string r = verb + " s3://" + s.config.bucket();
    if (!what.key().empty()) r += "/" + what.key();
    return r;
  }
};

/// What is left of `all` after its first `skip` bytes.
inline mutable_buffers rest_of(const mutable_buffers& all, std::uint64_t skip) {
  mutable_buffers r;
  for (const auto& b : all) {
    if (skip >= b.size()) {
      skip -= b.size();
      continue;
    }
    r.push_back(b.subspan(static_cast<std::size_t>(skip)));
    skip = 0;
  }
  return r;
}

/// What a 200 or 206 says about the object, checked against what was asked for.
inline optional_failure check_range(operation& op) {
  const std::string etag(op.head.find("etag").value_or(""));
  const std::uint64_t from = op.offset + op.received;
  std::uint64_t size = 0;
  if (op.head.status == 206) {
    const auto range = content_range::parse(op.head.find("content-range").value_or(""));
    if (!range || !range->satisfied) return failure(errc::bad_response, "206 without a usable Content-Range");
    if (range->first != from || range->last >= op.offset + op.length) {
      return failure(errc::bad_response, "another range than the one asked for: bytes " + std::to_string(range->first) + "-" + std::to_string(range->last));
    }
    if (range->last + 1 != std::min(op.offset + op.length, range->size)) return failure(errc::bad_response, "fewer bytes than the object has in the range");
    size = range->size;
  } else {
    // The whole object although a part was asked for: fine when that is the same.
    if (from != 0) return failure(errc::bad_response, "the store ignored the Range header");
    if (op.head.content_length && *op.head.content_length > op.length) return failure(errc::bad_response, "the store ignored the Range header");
    if (!op.head.content_length) return failure(errc::bad_response, "200 without Content-Length");
    size = *op.head.content_length;
  }
  if (op.received > 0 && ((!op.etag.empty() && etag != op.etag) || size != op.object_size)) {
    return failure(errc::object_changed, "the object changed while it was read");
  }
  op.etag = etag;
  op.object_size = size;
  return std::nullopt;
}

/// Puts the guarantee of its body on a request: a signed hash, or a checksum. Without one a store can keep half of a body that was cut off.
inline void protect(const client_state& s, operation& op) {
  constexpr std::size_t small_body = 64 * 1024;
  const payload_signing how = s.config.signing().value_or(s.secure ? payload_signing::crc32c : payload_signing::signed_hash);
  if (total_size(op.body) <= small_body || how == payload_signing::signed_hash || s.no_crc32c) {
    op.what.remove_header("x-amz-checksum-crc32c").payload_hash(sha256_hex(op.body));
    return;
  }
  crc32c sum;
  for (const auto& b : op.body) sum.update(b);
  op.what.payload_hash(std::string(unsigned_payload)).header("x-amz-checksum-crc32c", crc32c_base64(sum.value()));
}

}  // namespace batchweave::s3::detail
