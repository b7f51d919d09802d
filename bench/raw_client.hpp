// The raw limit: one thread, epoll, HTTP or TLS without signing, one reused buffer for each request in flight.
#pragma once

#include "load.hpp"
#include "range_server.hpp"
#include "support.hpp"

#include <netdb.h>
#include <openssl/ssl.h>

#include <functional>
#include <string>
#include <vector>

namespace bench {

inline int connect_to(const std::string& host, const std::string& port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) throw std::runtime_error("cannot resolve " + host);
  int fd = -1;
  for (const addrinfo* a = list; a; a = a->ai_next) {
    fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
    ::close(fd);
    fd = -1;
  }
  ::freeaddrinfo(list);
  if (fd < 0) throw std::runtime_error("cannot connect to " + host + ":" + port);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/// GETs of `length` bytes or PUTs of `length` bytes (when `body` is given) for `seconds`, `in_flight` connections, which are kept
/// from one round to the next, as a pool keeps them.
class raw_client {
 public:
  /// More header lines, each with its line end, for a method and a path: signatures made ahead, where the server wants some.
  using more_headers = std::function<std::string(const std::string& method, const std::string& path)>;

  /// GETs go to `path`; the PUTs of connection i to `path`i, or to `put_path`i. `tls`: no certificate is checked.
  raw_client(std::string host, const std::string& port, std::string path, std::size_t in_flight, bool tls = false,
             std::string put_path = std::string(), more_headers more = more_headers())
      : host_(std::move(host)), path_(std::move(path)), put_path_(put_path.empty() ? path_ : std::move(put_path)), more_(std::move(more)),
        poll_(::epoll_create1(EPOLL_CLOEXEC)), all_(in_flight) {
    if (tls) {
      context_.reset(SSL_CTX_new(TLS_client_method()));
      SSL_CTX_set_mode(context_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
      // Several records with one read from the socket.
      SSL_CTX_set_read_ahead(context_.get(), 1);
      SSL_CTX_set_default_read_buffer_len(context_.get(), std::size_t{64} << 10);
    }
    for (std::size_t i = 0; i < all_.size(); ++i) {
      all_[i].fd = connect_to(host_, port);
      if (tls) {
        all_[i].tls.reset(SSL_new(context_.get()));
        SSL_set_fd(all_[i].tls.get(), all_[i].fd);
        if (SSL_connect(all_[i].tls.get()) != 1) throw std::runtime_error("raw client: the TLS handshake failed");
      }
      ::fcntl(all_[i].fd, F_SETFL, ::fcntl(all_[i].fd, F_GETFL, 0) | O_NONBLOCK);
      epoll_event e{};
      e.events = EPOLLIN;
      e.data.u64 = i;
      ::epoll_ctl(poll_, EPOLL_CTL_ADD, all_[i].fd, &e);
    }
    host_ += ":" + port;
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  ~raw_client() { ::close(poll_); }

  load get(std::uint64_t object, std::size_t length, double seconds) { return drive(object, length, seconds, nullptr); }
  load put(const char* body, std::size_t length, double seconds) { return drive(length, length, seconds, body); }

 private:
  struct free_tls {
    void operator()(SSL* s) const { SSL_free(s); }
    void operator()(SSL_CTX* c) const { SSL_CTX_free(c); }
  };
  struct exchange {
    int fd = -1;
    std::unique_ptr<SSL, free_tls> tls;
    std::string common;  // request line and those headers that stay the same
    std::string request;
    std::size_t sent = 0;
    std::size_t body_sent = 0;
    char head[2048];
    std::size_t head_size = 0;
    bool in_body = false;
    std::vector<char> body;
    std::size_t received = 0;
    std::size_t expected = 0;
    std::uint64_t offset = 0;
    double started = 0;
    bool wants_out = false;
    bool idle = true;
    ~exchange() {
      if (fd >= 0) ::close(fd);
    }
    ssize_t some(int done) const {
      if (done > 0) return done;
      const int why = SSL_get_error(tls.get(), done);
      if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return 0;
      errno = EAGAIN;
      return -1;
    }
    ssize_t send(const char* data, std::size_t size, int flags) {
      if (!tls) return ::send(fd, data, size, MSG_NOSIGNAL | flags);
      return some(SSL_write(tls.get(), data, static_cast<int>(std::min<std::size_t>(size, 1u << 30))));
    }
    ssize_t receive(char* to, std::size_t size) {
      if (!tls) return ::recv(fd, to, size, 0);
      return some(SSL_read(tls.get(), to, static_cast<int>(std::min<std::size_t>(size, 1u << 30))));
    }
  };

  load drive(std::uint64_t object, std::size_t length, double seconds, const char* upload) {
    load result;
    range_walk walk(object, length);
    std::vector<exchange>& all = all_;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string method = upload ? "PUT" : "GET", path = upload ? put_path_ + std::to_string(i) : path_;
      all[i].common = method + " " + path + " HTTP/1.1\r\nHost: " + host_ + "\r\n" + (more_ ? more_(method, path) : std::string());
      if (!upload) all[i].body.resize(length);
    }
    const stopwatch watch;
    std::size_t busy = 0;
    const auto begin = [&](exchange& x) {
      if (upload) {
        x.request = x.common + "Content-Length: " + std::to_string(length) + "\r\n\r\n";
      } else {
        x.offset = walk.next();
        x.request = x.common + "Range: bytes=" + std::to_string(x.offset) + "-" + std::to_string(x.offset + length - 1) + "\r\n\r\n";
      }
      x.sent = x.body_sent = x.head_size = x.received = 0;
      x.in_body = false;
      x.idle = false;
      x.started = now_seconds();
      ++busy;
      send_more(poll_, x, static_cast<std::uint64_t>(&x - all.data()), upload, length);
    };
    for (exchange& x : all) begin(x);
    std::vector<epoll_event> events(all.size());
    while (busy > 0) {
      const int n = ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), 10000);
      if (n <= 0) throw std::runtime_error("raw client: nothing moved for 10 s");
      for (int i = 0; i < n; ++i) {
        const epoll_event& e = events[static_cast<std::size_t>(i)];
        exchange& x = all[e.data.u64];
        if (e.events & EPOLLOUT) send_more(poll_, x, e.data.u64, upload, length);
        if (!(e.events & EPOLLIN) || !receive(x, length, upload == nullptr)) continue;
        const double t = now_seconds();
        result.latencies.push_back(t - x.started);
        result.bytes += length;
        ++result.requests;
        --busy;
        x.idle = true;
        if (watch.wall() < seconds) begin(x);
      }
    }
    result.wall = watch.wall();
    result.cpu = watch.cpu();
    return result;
  }

  static void send_more(int poll, exchange& x, std::uint64_t id, const char* upload, std::size_t length) {
    bool full = false;
    while (!full && x.sent < x.request.size()) {
      const ssize_t n = x.send(x.request.data() + x.sent, x.request.size() - x.sent, upload ? MSG_MORE : 0);
      full = blocked(n);
      if (n > 0) x.sent += static_cast<std::size_t>(n);
    }
    while (!full && upload && x.body_sent < length) {
      const ssize_t n = x.send(upload + x.body_sent, length - x.body_sent, 0);
      full = blocked(n);
      if (n > 0) x.body_sent += static_cast<std::size_t>(n);
    }
    if (full != x.wants_out) {
      epoll_event e{};
      e.events = full ? EPOLLIN | EPOLLOUT : EPOLLIN;
      e.data.u64 = id;
      ::epoll_ctl(poll, EPOLL_CTL_MOD, x.fd, &e);
      x.wants_out = full;
    }
  }
  static bool blocked(ssize_t n) {
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) throw std::runtime_error("raw client: the connection broke");
    return false;
  }

  // True when the answer is complete.
  static bool receive(exchange& x, std::size_t length, bool wants_body) {
    if (x.idle) {
      char c;
      if (x.tls && blocked(x.receive(&c, 1))) return false;  // a session ticket, no byte of an answer
      throw std::runtime_error("raw client: the server closed an idle connection");
    }
    for (;;) {
      ssize_t n;
      if (!x.in_body) {
        n = x.receive(x.head + x.head_size, sizeof x.head - x.head_size);
        if (blocked(n)) return false;
        x.head_size += static_cast<std::size_t>(n);
        const std::string_view head(x.head, x.head_size);
        const std::size_t end = head.find("\r\n\r\n");
        if (end == std::string_view::npos) continue;
        const std::size_t at = head.find("Content-Length: ");
        if (!head.starts_with("HTTP/1.1 20") || at > end) {
          throw std::runtime_error("raw client: unexpected answer: " + std::string(head.substr(0, head.find("\r\n"))));
        }
        x.expected = std::strtoull(x.head + at + 16, nullptr, 10);
        if (wants_body && x.expected != length) throw std::runtime_error("raw client: wrong length");
        x.in_body = true;
        if (x.body.size() < x.expected) x.body.resize(x.expected);
        const std::size_t rest = x.head_size - end - 4;
        if (rest) std::memcpy(x.body.data(), x.head + end + 4, rest);
        x.received = rest;
      } else {
        n = x.receive(x.body.data() + x.received, x.expected - x.received);
        if (blocked(n)) return false;
        x.received += static_cast<std::size_t>(n);
      }
      if (x.in_body && x.received == x.expected) {
        if (wants_body) {
          std::uint64_t first;
          std::memcpy(&first, x.body.data(), sizeof first);
          if (first != pattern_at(x.offset)) throw std::runtime_error("raw client: wrong bytes");
        }
        return true;
      }
    }
  }

  std::string host_, path_, put_path_;
  more_headers more_;
  std::unique_ptr<SSL_CTX, free_tls> context_;
  int poll_;
  std::vector<exchange> all_;
};

}  // namespace bench
