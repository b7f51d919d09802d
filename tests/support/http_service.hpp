// A small HTTP service on loopback whose answers a function gives, and a proxy that carries to one port whatever it is asked for.
#pragma once

#include <batchweave/aio/event.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace test {

namespace asio = boost::asio;

/// One thread only. Goes away with everything that is open on it.
class http_service {
  using tcp = asio::ip::tcp;
  using request_type = boost::beast::http::request<boost::beast::http::string_body>;
  using response_type = boost::beast::http::response<boost::beast::http::string_body>;

 public:
  class query {
   public:
    query() = default;
    std::string method, target, body;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string header(const std::string& name) const {
      for (const auto& [n, v] : headers) {
        if (boost::beast::iequals(n, name)) return v;
      }
      return {};
    }
  };
  class reply {
   public:
    reply() = default;
    explicit reply(int s, std::string b = std::string()) : status(s), body(std::move(b)) {}
    static reply never() {
      reply r;
      r.silent = true;
      return r;
    }
    int status = 200;
    std::string body;
    bool silent = false;
  };
  using handler = std::function<reply(const query&)>;

  http_service(asio::any_io_executor executor, handler answer) : state_(std::make_shared<state>(std::move(executor))) {
    state_->answer = std::move(answer);
    start(state_);
  }
  /// A proxy: CONNECT and absolute URLs for any host lead to `upstream` on loopback. `password`: the value of Proxy-Authorization it wants.
  static std::unique_ptr<http_service> proxy(asio::any_io_executor executor, std::uint16_t upstream, std::string password = std::string()) {
    auto p = std::make_unique<http_service>(std::move(executor), handler());
    p->state_->upstream = upstream;
    p->state_->password = std::move(password);
    return p;
  }
  ~http_service() {
    boost::system::error_code ignored;
    state_->acceptor.close(ignored);
    state_->stopped = true;
    for (auto& s : state_->open) s->close(ignored);
    state_->quiet.notify();
  }
  std::uint16_t port() const { return state_->acceptor.local_endpoint().port(); }
  std::string url(const std::string& host = "127.0.0.1") const { return "http://" + host + ":" + std::to_string(port()); }
  const std::vector<query>& queries() const { return state_->queries; }

 private:
  struct state {
    explicit state(asio::any_io_executor e) : executor(std::move(e)), acceptor(executor, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {}
    asio::any_io_executor executor;
    tcp::acceptor acceptor;
    handler answer;
    std::uint16_t upstream = 0;
    std::string password;
    std::vector<query> queries;
    std::list<std::shared_ptr<tcp::socket>> open;
    bool stopped = false;
    batchweave::async_event quiet;
  };

  static void start(const std::shared_ptr<state>& s) {
    asio::co_spawn(s->executor, accept(s), [](std::exception_ptr) {});
  }
  static asio::awaitable<void> accept(std::shared_ptr<state> s) {
    for (;;) {
      auto socket = std::make_shared<tcp::socket>(s->executor);
      boost::system::error_code ec;
      co_await s->acceptor.async_accept(*socket, asio::redirect_error(asio::use_awaitable, ec));
      if (ec) co_return;
      s->open.push_back(socket);
      asio::co_spawn(s->executor, serve(s, socket), [s, socket](std::exception_ptr) {
        boost::system::error_code ignored;
        socket->close(ignored);
        s->open.remove(socket);
      });
    }
  }
  static asio::awaitable<void> serve(std::shared_ptr<state> s, std::shared_ptr<tcp::socket> socket) {
    namespace http = boost::beast::http;
    boost::beast::flat_buffer buffer;
    for (;;) {
      request_type q;
      boost::system::error_code ec;
      co_await http::async_read(*socket, buffer, q, asio::redirect_error(asio::use_awaitable, ec));
      if (ec) co_return;
      query seen;
      seen.method = std::string(q.method_string());
      seen.target = std::string(q.target());
      seen.body = q.body();
      for (const auto& f : q) seen.headers.emplace_back(std::string(f.name_string()), std::string(f.value()));
      s->queries.push_back(seen);
      response_type r;
      r.version(11);
      r.set(http::field::connection, "close");
      if (s->upstream != 0 && !s->password.empty() && seen.header("proxy-authorization") != s->password) {
        r.result(407);
      } else if (s->upstream != 0) {
        auto other = std::make_shared<tcp::socket>(s->executor);
        const tcp::endpoint there(asio::ip::address_v4::loopback(), s->upstream);
        co_await other->async_connect(there, asio::redirect_error(asio::use_awaitable, ec));
        if (ec) co_return;
        s->open.push_back(other);
        if (seen.method == "CONNECT") {
          const std::string ok = "HTTP/1.1 200 Connection established\r\n\r\n";
          co_await asio::async_write(*socket, asio::buffer(ok), asio::redirect_error(asio::use_awaitable, ec));
          asio::co_spawn(s->executor, relay(other, socket), [](std::exception_ptr) {});
          co_await relay(socket, other);
          co_return;
        }
        const std::size_t slash = seen.target.find('/', seen.target.find("://") + 3);
        q.target(seen.target.substr(slash));
        q.erase("proxy-authorization");
        co_await http::async_write(*other, q, asio::redirect_error(asio::use_awaitable, ec));
        boost::beast::flat_buffer back;
        co_await http::async_read(*other, back, r, asio::redirect_error(asio::use_awaitable, ec));
        s->open.remove(other);
        if (ec) co_return;
      } else {
        const reply a = s->answer(seen);
        if (a.silent) {
          while (!s->stopped) co_await s->quiet.wait(s->quiet.observe());
          co_return;
        }
        r.result(static_cast<unsigned>(a.status));
        r.body() = a.body;
        r.prepare_payload();
      }
      co_await http::async_write(*socket, r, asio::redirect_error(asio::use_awaitable, ec));
      if (ec || !r.keep_alive()) co_return;
    }
  }
  static asio::awaitable<void> relay(std::shared_ptr<tcp::socket> from, std::shared_ptr<tcp::socket> to) {
    std::string piece(64 * 1024, '\0');
    boost::system::error_code ec;
    while (!ec) {
      const std::size_t n = co_await from->async_read_some(asio::buffer(piece), asio::redirect_error(asio::use_awaitable, ec));
      if (n > 0) co_await asio::async_write(*to, asio::buffer(piece.data(), n), asio::redirect_error(asio::use_awaitable, ec));
    }
    to->close(ec);
  }

  std::shared_ptr<state> state_;
};

}  // namespace test
