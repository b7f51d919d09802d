// One small request on a connection of its own: for services beside the store, such as those that hand out credentials.
#pragma once

#include <batchweave/http/connect.hpp>
#include <batchweave/http/exchange.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace batchweave::http {

/// A request as a value. `head`: request line without "HTTP/1.1", and header lines that each end in CRLF, without Host and Content-Length.
class fetch_request {
 public:
  fetch_request() = default;
  fetch_request& method(std::string m) { method_ = std::move(m); return *this; }
  fetch_request& to(target t) { to_ = std::move(t); return *this; }
  /// Value of Host.
  fetch_request& authority(std::string a) { authority_ = std::move(a); return *this; }
  /// Encoded path and query.
  fetch_request& path(std::string p) { path_ = std::move(p); return *this; }
  fetch_request& header(const std::string& name, const std::string& value) {
    headers_ += name + ": " + value + "\r\n";
    return *this;
  }
  fetch_request& body(std::string b) { body_ = std::move(b); return *this; }
  fetch_request& limits(timeouts t) { limits_ = t; return *this; }

  const target& to() const noexcept { return to_; }
  const std::string& body() const noexcept { return body_; }
  const timeouts& limits() const noexcept { return limits_; }
  std::string head() const {
    std::string text = method_ + " " + (to_.via && !to_.tls ? "http://" + authority_ : std::string()) + path_ + " HTTP/1.1\r\nhost: " + authority_ +
                       "\r\nuser-agent: batchweave\r\nconnection: close\r\n" + headers_;
    if (to_.via && !to_.tls && !to_.via->authorization().empty()) text += "proxy-authorization: " + to_.via->authorization() + "\r\n";
    if (method_ == "POST" || method_ == "PUT") text += "content-length: " + std::to_string(body_.size()) + "\r\n";
    return text + "\r\n";
  }

 private:
  std::string method_ = "GET", authority_, path_ = "/", headers_, body_;
  target to_;
  timeouts limits_;
};

/// What came back, whatever its status.
class fetch_answer {
 public:
  fetch_answer() = default;
  int status = 0;
  std::string text;
};

/// Sends once. `tls` may be null for plain HTTP. The whole takes at most limits().overall, where that is not zero. Failures as those of
/// connect() and exchange; cancelling throws operation_aborted.
inline asio::awaitable<result<fetch_answer>> fetch(fetch_request request, name_cache names, std::shared_ptr<asio::ssl::context> tls) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const timeouts& limits = request.limits();
  const time_point overall = limits.overall > duration::zero() ? real_clock().now() + limits.overall : time_point::max();
  connection line(executor, request.to());
  std::optional<failure> bad = co_await connect(line, names, tls, limits, overall);
  if (bad) co_return *bad;
  exchange talk(executor, line, limits, overall);
  std::string head = request.head();
  const_buffers body;
  if (!request.body().empty()) body.push_back(as_bytes(request.body()));
  bad = co_await talk.request(std::move(head), std::move(body), false);
  if (bad) co_return *bad;
  fetch_answer answer;
  answer.status = talk.head().status;
  bad = co_await talk.read_text(answer.text, std::size_t{1} << 20);
  if (bad) co_return *bad;
  co_return answer;
}

}  // namespace batchweave::http
