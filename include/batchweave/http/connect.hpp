// Opens a connection: name, TCP over every address, the proxy's tunnel, TLS; each step within its own limit.
#pragma once

#include <batchweave/http/connection.hpp>
#include <batchweave/http/names.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace batchweave::http {

namespace detail {

/// "CONNECT host:port" to the proxy on the other side; nothing of it is part of the exchange that follows. Within the TLS limit.
inline asio::awaitable<std::optional<failure>> open_tunnel(connection& c, watchdog& guard, duration limit) {
  const proxy& via = *c.to().via;
  const bool v6 = c.to().host.find(':') != std::string::npos;
  const std::string there = (v6 ? "[" + c.to().host + "]" : c.to().host) + ":" + std::to_string(c.to().port);
  const std::string where = "proxy " + via.host() + ":" + std::to_string(via.port());
  std::string text = "CONNECT " + there + " HTTP/1.1\r\nhost: " + there + "\r\n";
  if (!via.authorization().empty()) text += "proxy-authorization: " + via.authorization() + "\r\n";
  text += "\r\n";
  error_code ec;
  guard.arm(errc::connect_timeout, limit);
  const asio::const_buffer bytes(text.data(), text.size());
  co_await asio::async_write(c.socket(), bytes, asio::redirect_error(asio::use_awaitable, ec));
  std::string answer;
  while (!ec && answer.find("\r\n\r\n") == std::string::npos && answer.size() < 16 * 1024) {
    char piece[1024];
    const asio::mutable_buffer into(piece, sizeof piece);
    const std::size_t n = co_await c.socket().async_read_some(into, asio::redirect_error(asio::use_awaitable, ec));
    answer.append(piece, n);
  }
  if (guard.fired()) co_return failure(guard.phase(), "the " + where + " did not answer CONNECT in time").with_fate(fate::did_not_happen);
  if (ec == asio::error::operation_aborted) throw_cancelled();
  const std::size_t end = answer.find("\r\n\r\n");
  if (ec || end == std::string::npos) {
    co_return failure(errc::connect_failed, "the " + where + " gave no answer to CONNECT" + (ec ? ": " + ec.message() : std::string()))
        .with_fate(fate::did_not_happen);
  }
  const std::string status = answer.starts_with("HTTP/1.") && answer.size() > 12 ? answer.substr(9, 3) : std::string();
  if (status.size() == 3 && status[0] == '2' && end + 4 == answer.size()) co_return std::nullopt;
  if (status == "407") {
    co_return failure(errc::rejected, "the " + where + " wants a user and password (407): put them into the proxy URL").with_fate(fate::did_not_happen);
  }
  const bool passing = status.empty() || status[0] == '5' || status[0] == '2';
  co_return failure(passing ? errc::connect_failed : errc::rejected, "the " + where + " refused CONNECT to " + there + ": " + (status.empty() ? "no HTTP" : status))
      .with_fate(fate::did_not_happen);
}

}  // namespace detail

/// Connects, trying every address in turn, each with its share of the limit; then TLS. nullopt: connected. Failures, all of which did not
/// happen: resolve_failed, connect_failed, connect_timeout, tls_failed, tls_timeout, overall_timeout, rejected (a proxy that refuses).
/// Cancelling throws operation_aborted.
inline asio::awaitable<std::optional<failure>> connect(connection& c, name_cache names, std::shared_ptr<asio::ssl::context> tls,
                                                       timeouts limits, time_point overall) {
  const target& to = c.to();
  const std::string& host = to.via ? to.via->host() : to.host;
  const std::uint16_t port = to.via ? to.via->port() : to.port;
  const std::string where = std::string(to.via ? "proxy " : "") + host + ":" + std::to_string(port);
  const duration left = overall == time_point::max() ? limits.connect : std::min<duration>(limits.connect, overall - real_clock().now());
  result<name_cache::endpoints> found = co_await names.find(host, port, left);
  if (!found) co_return found.error();
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  watchdog guard(executor, c.socket(), overall);
  std::optional<failure> last;
  const duration share = std::max<duration>(limits.connect / static_cast<int>(std::min<std::size_t>(found->size(), 4)), std::chrono::milliseconds(50));
  for (const asio::ip::tcp::endpoint& at : *found) {
    error_code ec;
    c.socket().close(ec);
    c.socket().open(at.protocol(), ec);
    if (!ec) {
      guard.arm(errc::connect_timeout, share);
      co_await c.socket().async_connect(at, asio::redirect_error(asio::use_awaitable, ec));
    }
    names.note(host, at.address(), !ec);
    if (!ec) {
      last.reset();
      break;
    }
    if (guard.fired()) {
      last = failure(guard.phase(), "connecting to " + where + " took too long");
      if (guard.phase() == errc::overall_timeout) break;
    } else if (ec == asio::error::operation_aborted) {
      throw_cancelled();
    } else {
      last = failure(errc::connect_failed, "cannot connect to " + where + ": " + ec.message());
    }
  }
  if (last) {
    names.forget(host);
    co_return last->with_fate(fate::did_not_happen);
  }
  error_code ec;
  c.socket().set_option(asio::ip::tcp::no_delay(true), ec);
  if (to.via && to.tls) {
    std::optional<failure> bad = co_await detail::open_tunnel(c, guard, limits.connect);
    if (bad) co_return bad;
  }
  if (to.tls) {
    const std::string peer = to.host + ":" + std::to_string(to.port);
    c.start_tls(tls);
    guard.arm(errc::tls_timeout, limits.tls);
    co_await c.tls().async_handshake(asio::ssl::stream_base::client, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) {
      if (guard.fired()) co_return failure(guard.phase(), "the TLS handshake with " + peer + " took too long").with_fate(fate::did_not_happen);
      if (ec == asio::error::operation_aborted) throw_cancelled();
      // A peer that hangs up in the handshake is a passing fault; a certificate that does not fit is not.
      const bool passing = ec == asio::error::eof || ec == asio::error::connection_reset || ec == asio::ssl::error::stream_truncated;
      co_return failure(passing ? errc::connect_failed : errc::tls_failed, "TLS handshake with " + peer + ": " + tls_problem(c.tls(), ec))
          .with_fate(fate::did_not_happen);
    }
  }
  co_return std::nullopt;
}

}  // namespace batchweave::http
