// The plain operations: GET, PUT, HEAD, LIST, DELETE of many, and making the bucket, each over perform().
#pragma once

#include <batchweave/s3/perform.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::s3 {

/// The condition of a PUT: none, absent, or an etag.
class condition {
 public:
  condition() = default;
  bool if_absent = false;
  std::optional<std::string> if_match;
};

namespace detail {

inline constexpr std::string_view looks_missing = "refused; a missing key also looks like this when the credentials lack s3:ListBucket";

inline asio::awaitable<result<std::optional<listed_object>>> head_of(std::shared_ptr<client_state> s, std::string key) {
  request q("HEAD", key);
  operation op(*s, "HEAD", std::move(q), false);
  const std::vector<int> accept{404};
  optional_failure bad = co_await perform(s, op, accept);
  if (bad) {
    if (bad->status() == 403) bad->in(looks_missing);
    co_return *bad;
  }
  if (op.head.status == 404) co_return std::optional<listed_object>();
  if (!op.head.content_length) co_return failure(errc::bad_response, op.describe(*s) + ": no Content-Length");
  listed_object found(std::move(key), *op.head.content_length, std::string(op.head.find("etag").value_or("")));
  co_return std::optional<listed_object>(std::move(found));
}

inline asio::awaitable<result<read_result>> get_from(std::shared_ptr<client_state> s, std::string key, std::uint64_t offset, std::uint64_t length,
                                                     mutable_buffers into) {
  read_result r;
  if (length == 0) {
    result<std::optional<listed_object>> there = co_await head_of(s, std::move(key));
    if (!there) co_return there.error();
    if (*there) {
      r.found = true;
      r.object_size = (*there)->size;
      r.etag = (*there)->etag;
    }
    co_return r;
  }
  request q("GET", key);
  operation op(*s, "GET", std::move(q), false);
  op.straight = true;
  op.offset = offset;
  op.length = length;
  op.into = std::move(into);
  if (total_size(op.into) < length || offset + length < offset) {
    co_return failure(errc::invalid_argument, op.describe(*s) + ": the destination is smaller than the range").with_fate(fate::did_not_happen);
  }
  const std::vector<int> accept{404, 412, 416};
  optional_failure bad = co_await perform(s, op, accept);
  if (bad && bad->code() == errc::access_denied && bad->status() == 403) bad->in(looks_missing);
  if (bad) co_return bad->in("bytes " + std::to_string(offset) + "-" + std::to_string(offset + length) + " (end excluded)");
  const int status = op.head.status;
  if (status == 404) {
    if (op.received > 0) co_return failure(errc::object_changed, op.describe(*s) + ": it was removed while it was read");
    co_return r;
  }
  if (status == 412 || (status == 416 && op.received > 0)) {
    co_return failure(errc::object_changed, op.describe(*s) + ": the object changed while it was read").with_status(status);
  }
  if (status == 416) {
    const auto range = content_range::parse(op.head.find("content-range").value_or(""));
    r.found = true;
    if (range) {
      r.object_size = range->size;
      r.etag = std::string(op.head.find("etag").value_or(""));
      co_return r;
    }
    result<std::optional<listed_object>> there = co_await head_of(s, std::move(key));
    if (!there) co_return there.error();
    r.found = there->has_value();
    if (*there) {
      r.object_size = (*there)->size;
      r.etag = (*there)->etag;
    }
    co_return r;
  }
  r.found = true;
  r.bytes = op.received;
  r.object_size = op.object_size;
  r.etag = op.etag;
  co_return r;
}

inline asio::awaitable<result<put_result>> put_whole(std::shared_ptr<client_state> s, std::string key, const_buffers body, condition when) {
  request q("PUT", std::move(key));
  if (when.if_absent) q.header("if-none-match", "*");
  if (when.if_match) {
    std::string etag = *when.if_match;
    if (s->bare_etags && etag.size() > 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
    q.header("if-match", std::move(etag));
  }
  operation op(*s, "PUT", std::move(q), true);
  op.body = std::move(body);
  protect(*s, op);
  std::vector<int> accept;
  if (when.if_absent || when.if_match) accept.push_back(412);
  if (when.if_match) accept.push_back(404);
  optional_failure bad = co_await perform(s, op, accept);
  if (bad) co_return *bad;
  put_result r;
  if (op.head.status >= 300) co_return r;
  r.applied = true;
  r.etag = std::string(op.head.find("etag").value_or(""));
  co_return r;
}

inline asio::awaitable<result<list_result>> list_of(std::shared_ptr<client_state> s, std::string prefix, std::string after, std::size_t max) {
  std::string continuation;
  for (int pages = 0; pages < 100; ++pages) {
    request q("GET", std::string());
    q.query("list-type", "2").query("prefix", prefix).query("max-keys", std::to_string(std::clamp<std::size_t>(max, 1, 1000)));
    q.query("encoding-type", "url");
    if (!continuation.empty()) q.query("continuation-token", continuation);
    else if (!after.empty()) q.query("start-after", after);
    operation op(*s, "LIST", std::move(q), false);
    result<list_result> page = failure(errc::bug, "no page");
    for (unsigned n = 1;; ++n) {
      const std::vector<int> accept;
      optional_failure bad = co_await perform(s, op, accept);
      if (bad) co_return bad->in("prefix \"" + prefix + "\"");
      page = parse_list(op.text);
      if (page) {
        for (const auto& o : page->objects) {
          if (!o.key.starts_with(prefix)) page = failure(errc::bad_response, "the listing has a key outside its prefix");
          if (!page) break;
        }
      }
      if (page) break;
      if (n >= 3) co_return in_context(page.error(), op.describe(*s) + " prefix \"" + prefix + "\"");
      any_clock clock = s->config.clock();
      const duration wait = s->jitter(n);
      co_await clock.wait_for(wait);
    }
    if (!page->objects.empty() || !page->truncated || page->continuation.empty()) co_return page;
    continuation = page->continuation;
  }
  co_return failure(errc::bad_response, "LIST: a hundred empty pages in a row");
}

inline asio::awaitable<result<std::vector<std::pair<std::string, failure>>>> remove_all(std::shared_ptr<client_state> s, std::vector<std::string> keys) {
  std::vector<std::pair<std::string, failure>> failed;
  for (std::size_t first = 0; first < keys.size(); first += 1000) {
    std::vector<std::string> batch(keys.begin() + static_cast<std::ptrdiff_t>(first),
                                   keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), first + 1000)));
    const std::string body = delete_body(batch);
    request q("POST", std::string());
    q.query("delete").header("content-md5", md5_base64(body)).payload_hash(sha256_hex(body));
    operation op(*s, "DELETE", std::move(q), true);
    op.body.push_back(as_bytes(body));
    result<delete_result> done = failure(errc::bug, "no answer");
    for (unsigned n = 1;; ++n) {
      const std::vector<int> accept;
      optional_failure bad = co_await perform(s, op, accept);
      if (bad) co_return bad->in(std::to_string(batch.size()) + " keys from " + batch.front());
      done = parse_delete(op.text);
      if (done) break;
      if (n >= 3) co_return in_context(done.error(), op.describe(*s));
      any_clock clock = s->config.clock();
      const duration wait = s->jitter(n);
      co_await clock.wait_for(wait);
    }
    std::set<std::string> seen(done->removed.begin(), done->removed.end());
    for (auto& [key, e] : done->failed) {
      seen.insert(key);
      if (e.code == "NoSuchKey") continue;
      const verdict v = classify_answer(200, e.code);
      failed.emplace_back(key, failure(e.code == "AccessDenied" ? errc::access_denied : v.code(), "DELETE " + key + ": " + e.code + " " + e.message)
                                   .with_server_code(e.code));
    }
    for (const std::string& key : batch) {
      if (!seen.contains(key)) failed.emplace_back(key, failure(errc::bad_response, "DELETE " + key + ": the answer does not mention it"));
    }
  }
  co_return failed;
}

inline asio::awaitable<optional_failure> make_bucket(std::shared_ptr<client_state> s) {
  request q("PUT", std::string());
  operation op(*s, "CREATE BUCKET", std::move(q), true);
  std::string body;
  if (s->config.on_aws() && s->config.region() != "us-east-1") {
    body = "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>" + xml_escape(s->config.region()) +
           "</LocationConstraint></CreateBucketConfiguration>";
    op.body.push_back(as_bytes(body));
    op.what.payload_hash(sha256_hex(body));
  }
  const std::vector<int> accept{409};
  optional_failure bad = co_await perform(s, op, accept);
  if (bad) co_return bad;
  if (op.head.status == 409 && op.code != "BucketAlreadyOwnedByYou") {
    // Some stores use one code for "yours" and "somebody else's": what counts is whether these credentials reach it.
    request look("HEAD", std::string());
    operation there(*s, "HEAD BUCKET", std::move(look), false);
    const std::vector<int> none;
    optional_failure out_of_reach = co_await perform(s, there, none);
    if (!out_of_reach) co_return std::nullopt;
    co_return failure(errc::rejected, op.describe(*s) + ": 409 " + op.code).with_status(409).with_server_code(op.code).with_fate(fate::did_not_happen);
  }
  co_return std::nullopt;
}

}  // namespace detail
}  // namespace batchweave::s3
