// One attempt of an operation: signed afresh, sent on one connection, its answer read; body bytes go straight to the caller's memory.
#pragma once

#include <batchweave/http/connect.hpp>
#include <batchweave/s3/operation.hpp>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace batchweave::s3::detail {

/// What an attempt tells besides its outcome, and what may stop it half-way.
class attempt {
 public:
  attempt() {}
  bool started = false;  // a byte of the request may have reached the store
  bool stale = false;    // the connection was an idle one and gave nothing
  /// Called once the attempt owns a connection, and once the head of an answer has come; false: stop, somebody else was faster.
  std::function<void()> on_sending;
  std::function<bool(int status)> on_answer;
};

inline constexpr std::size_t text_limit = std::size_t{16} << 20;

/// Sends once and reads the whole answer into `op`.
inline asio::awaitable<optional_failure> send_once(std::shared_ptr<client_state> s, operation& op, attempt& how) {
  how.started = how.stale = false;
  op.text.clear();
  op.code.clear();
  op.signed_with = s->keys.ready();
  if (!op.signed_with) {
    result<credential_cache::keys> got = co_await s->keys.get(op.overall);
    if (!got) co_return got.error();
    op.signed_with = std::move(*got);
  }
  endpoint at;
  std::string region;
  {
    const std::lock_guard lock(s->mutex);
    at = op.redirected ? *op.redirected : s->at;
    region = s->region;
  }
  const std::string& bucket = s->config.bucket();
  std::string path;
  if (op.redirected) {
    path = op.redirected_path;
  } else if (use_virtual_host(at, bucket, s->config.style(), s->config.on_aws())) {
    at = at.with_label(bucket);
    path = "/" + uri_encode(op.what.key(), true);
  } else {
    path = "/" + uri_encode(bucket, false) + (op.what.key().empty() ? std::string() : "/" + uri_encode(op.what.key(), true));
  }
  const http::target to = s->target_of(at);
  result<http::pool::lease> place = co_await s->connections.acquire(to, op.overall);
  if (!place) co_return place.error();
  const in_flight counted(s->in_flight);
  if (how.on_sending) how.on_sending();
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  if (!place->get()) {
    auto fresh = std::make_unique<http::connection>(s->executor, to);
    optional_failure bad = co_await http::connect(*fresh, s->names, s->tls, s->config.timeouts(), op.overall);
    if (bad) co_return bad;
    place->put(std::move(fresh));
  }
  http::connection& line = *place->get();

  if (op.straight) {
    op.what.remove_header("range").remove_header("if-match");
    op.what.header("range", "bytes=" + std::to_string(op.offset + op.received) + "-" + std::to_string(op.offset + op.length - 1));
    if (op.received > 0 && !op.etag.empty()) op.what.header("if-match", op.etag);
  }
  const std::string date = amz_date(s->config.clock().wall_now() + std::chrono::seconds(s->offset.load()));
  const bool absolute = to.via && !to.tls;
  std::string head = op.what.sign(s->sign, *op.signed_with, region, date, at.authority(), path, total_size(op.body),
                                  absolute ? at.url() : std::string(), absolute ? to.via->authorization() : std::string());
  http::exchange exchange(executor, line, s->config.timeouts(), op.overall);
  const bool no_body = op.what.method() == "HEAD";
  op.sent = s->config.clock().now();
  const_buffers pieces = op.body;
  optional_failure bad = co_await exchange.request(std::move(head), std::move(pieces), no_body);
  how.started = exchange.started();
  if (bad) {
    how.stale = line.used() && !exchange.answered() && bad->code() == errc::connection_lost;
    co_return bad;
  }
  op.head = exchange.head();
  if (how.on_answer && !how.on_answer(op.head.status)) co_return failure(errc::cancelled, "another request was answered first");
  if (no_body || op.head.status == 204 || op.head.status == 304) {
    exchange.finish();
    co_return std::nullopt;
  }
  if (op.straight && (op.head.status == 200 || op.head.status == 206)) {
    bad = check_range(op);
    if (bad) co_return bad;
    const std::uint64_t want = op.object_size <= op.offset ? 0 : std::min(op.length, op.object_size - op.offset) - op.received;
    if (op.head.content_length) {
      if (*op.head.content_length != want) {
        co_return failure(errc::bad_response, "Content-Length is " + std::to_string(*op.head.content_length) + ", " + std::to_string(want) + " bytes are due");
      }
      mutable_buffers to_fill = rest_of(op.into, op.received);
      bad = co_await exchange.read_into(std::move(to_fill), op.received);
      if (bad) co_return bad;
    } else {
      std::string whole;
      bad = co_await exchange.read_text(whole, static_cast<std::size_t>(want) + 1);
      if (bad) co_return bad;
      if (whole.size() != want) co_return failure(errc::body_truncated, std::to_string(whole.size()) + " bytes came, " + std::to_string(want) + " are due");
      const_bytes left = as_bytes(whole);
      for (const auto& b : rest_of(op.into, op.received)) {
        const std::size_t n = std::min(b.size(), left.size());
        if (n) std::memcpy(b.data(), left.data(), n);
        left = left.subspan(n);
      }
      op.received += want;
    }
    exchange.finish();
    co_return std::nullopt;
  }
  bad = co_await exchange.read_text(op.text, text_limit);
  if (bad) {
    // A refusal whose body is lost is still a refusal.
    if (op.head.status >= 300) {
      op.text.clear();
      co_return std::nullopt;
    }
    co_return bad;
  }
  exchange.finish();
  co_return std::nullopt;
}

}  // namespace batchweave::s3::detail
