// A large object in parts: started, sent a few parts at a time, completed, or aborted so that no parts are left behind.
#pragma once

#include <batchweave/aio/task_group.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/s3/operations.hpp>

#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::s3::detail {

struct upload {
  std::string key, id;
  const_buffers body;
  std::uint64_t part = 0;
  std::size_t next = 0;
  std::vector<std::string> etags;
  optional_failure bad;
};

inline const_buffers slice_of(const const_buffers& all, std::uint64_t from, std::uint64_t size) {
  const_buffers r;
  for (const auto& b : all) {
    if (size == 0) break;
    if (from >= b.size()) {
      from -= b.size();
      continue;
    }
    const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(size, b.size() - from));
    r.push_back(b.subspan(static_cast<std::size_t>(from), n));
    from = 0;
    size -= n;
  }
  return r;
}

inline asio::awaitable<void> send_parts(std::shared_ptr<client_state> s, std::shared_ptr<upload> u) {
  while (!u->bad && u->next < u->etags.size()) {
    const std::size_t i = u->next++;
    request q("PUT", u->key);
    q.query("partNumber", std::to_string(i + 1)).query("uploadId", u->id);
    operation op(*s, "PUT part " + std::to_string(i + 1), std::move(q), true);
    op.body = slice_of(u->body, i * u->part, u->part);
    protect(*s, op);
    const std::vector<int> accept;
    optional_failure bad = co_await perform(s, op, accept);
    if (!bad) {
      u->etags[i] = std::string(op.head.find("etag").value_or(""));
      if (u->etags[i].empty()) bad = failure(errc::bad_response, op.describe(*s) + ": no ETag");
    }
    if (bad && !u->bad) u->bad = bad;
  }
}

inline asio::awaitable<result<put_result>> complete(std::shared_ptr<client_state> s, std::shared_ptr<upload> u, std::string token, std::uint64_t size) {
  const std::string body = complete_body(u->etags);
  put_result r;
  for (unsigned n = 1;; ++n) {
    request q("POST", u->key);
    q.query("uploadId", u->id).payload_hash(sha256_hex(body));
    operation op(*s, "COMPLETE UPLOAD", std::move(q), true);
    op.body.push_back(as_bytes(body));
    const std::vector<int> accept{404};
    optional_failure bad = co_await perform(s, op, accept);
    if (bad) co_return *bad;
    if (op.head.status == 404) {
      // An earlier attempt may have done it: then the object carries our token.
      request look("HEAD", u->key);
      operation there(*s, "HEAD", std::move(look), false);
      optional_failure blind = co_await perform(s, there, accept);
      if (blind) co_return *blind;
      if (there.head.status == 200 && there.head.find("x-amz-meta-batchweave-token") == std::string_view(token) && there.head.content_length == size) {
        r.applied = true;
        r.etag = std::string(there.head.find("etag").value_or(""));
        co_return r;
      }
      co_return failure(errc::rejected, op.describe(*s) + ": 404 " + op.code + ": the upload is gone and the object is not ours")
          .with_status(404)
          .with_server_code(op.code)
          .with_fate(fate::did_not_happen);
    }
    const result<complete_result> done = parse_complete(op.text);
    if (done && !done->error) {
      r.applied = true;
      r.etag = done->etag;
      co_return r;
    }
    failure why = done ? refusal(*s, op, *done->error, classify_answer(200, done->error->code)) : done.error();
    const bool retry = !done || classify_answer(200, done->error->code).retryable();
    if (!retry || n >= s->config.retry().attempts()) co_return in_context(why, op.describe(*s));
    any_clock clock = s->config.clock();
    const duration wait = s->jitter(n);
    co_await clock.wait_for(wait);
  }
}

/// Tells the store to forget the parts. Bounded, and never under a scope that was cancelled.
inline asio::awaitable<void> abort_upload(std::shared_ptr<client_state> s, std::string key, std::string id) {
  s->aborts.fetch_add(1);
  request quit("DELETE", std::move(key));
  quit.query("uploadId", std::move(id));
  operation op(*s, "ABORT UPLOAD", std::move(quit), true);
  op.overall = std::min(op.overall, real_clock().now() + std::chrono::seconds(30));
  const std::vector<int> gone{404};
  optional_failure left = co_await perform(s, op, gone);
  if (left) s->failed_aborts.fetch_add(1);
}

/// Starts abort_upload() and does not wait for it: the caller was cancelled, and its own awaits would be too.
inline void abort_in_own_scope(const std::shared_ptr<client_state>& s, const asio::any_io_executor& executor, std::string key, std::string id) {
  asio::co_spawn(executor, abort_upload(s, std::move(key), std::move(id)), [s](std::exception_ptr thrown) {
    if (thrown) s->failed_aborts.fetch_add(1);
  });
}

inline asio::awaitable<result<put_result>> put_parts(std::shared_ptr<client_state> s, std::string key, const_buffers body) {
  const std::uint64_t size = total_size(body);
  std::string token;
  {
    const std::lock_guard lock(s->mutex);
    token = id128::draw(s->random).to_string();
  }
  request start("POST", key);
  start.query("uploads").header("x-amz-meta-batchweave-token", token);
  operation opening(*s, "START UPLOAD", std::move(start), true);
  const std::vector<int> none;
  optional_failure bad = co_await perform(s, opening, none);
  // An upload whose id never came cannot be aborted; it holds no parts.
  if (opening.sticky) s->failed_aborts.fetch_add(1);
  if (bad) co_return *bad;
  const result<std::string> id = parse_initiate(opening.text);
  if (!id) co_return in_context(id.error(), opening.describe(*s));

  auto u = std::make_shared<upload>();
  u->key = key;
  u->id = *id;
  u->body = body;
  u->part = std::max<std::uint64_t>(s->config.part_size(), (size + 9999) / 10000);
  u->etags.resize(static_cast<std::size_t>((size + u->part - 1) / u->part));
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  task_group group(executor);
  const std::size_t workers = std::min(s->config.parts_in_flight(), u->etags.size());
  for (std::size_t w = 0; w < workers; ++w) group.spawn(send_parts(s, u));
  // The pieces belong to the caller: whatever happens, no part may still be on its way when this returns.
  std::exception_ptr thrown;
  co_await join_whatever_happens(group, thrown);
  if (thrown) {
    abort_in_own_scope(s, executor, std::move(key), *id);
    std::rethrow_exception(thrown);
  }
  if (!u->bad) {
    result<put_result> done = co_await complete(s, u, token, size);
    if (done || done.error().fate() == fate::unknown) co_return done;
    u->bad = done.error();
  }
  co_await abort_upload(s, std::move(key), *id);
  co_return *u->bad;
}

}  // namespace batchweave::s3::detail
