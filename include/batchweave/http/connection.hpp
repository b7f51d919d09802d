// One connection to a server, TCP or TLS, and the watchdog that bounds each phase on it.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/http/proxy.hpp>
#include <batchweave/http/tls.hpp>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace batchweave::http {

/// How long each phase may take. Zero: no limit.
class timeouts {
 public:
  timeouts() = default;
  duration connect = std::chrono::seconds(5);       ///< name resolution, and TCP over all addresses
  duration tls = std::chrono::seconds(5);           ///< handshake
  duration first_byte = std::chrono::seconds(30);   ///< request sent to response head read
  duration stall = std::chrono::seconds(20);        ///< no byte moved, in either direction
  duration overall = duration::zero();              ///< one whole operation with its retries
};

/// Who to talk to. A value.
class target {
 public:
  target() = default;
  target(bool secure, std::string name, std::uint16_t p, bool is_address)
      : tls(secure), host(std::move(name)), port(p), address(is_address) {}
  bool tls = false;
  std::string host;
  std::uint16_t port = 80;
  bool address = false;
  /// The proxy in between, if any.
  std::optional<proxy> via;
  friend bool operator==(const target&, const target&) = default;
};

/// Cancels what runs on a socket when a phase takes too long, and remembers which. Lives for one exchange; all members must be called,
/// and the timer fires, on the executor of that exchange.
class watchdog {
 public:
  using steady = std::chrono::steady_clock;

  watchdog(asio::any_io_executor executor, asio::ip::tcp::socket& socket, time_point overall)
      : state_(std::make_shared<state>(std::move(executor), socket, overall)) {}
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;
  ~watchdog() {
    state_->socket = nullptr;
    state_->timer.cancel();
  }

  /// From now on at most `limit` may pass without progress().
  void arm(errc phase, duration limit) {
    state_->limit = limit;
    state_->phase = phase;
    state_->fired = false;
    progress();
    if (state_->deadline < state_->armed) wait(state_);
  }
  void progress() noexcept {
    state_->phase_deadline =
        state_->limit > duration::zero() ? std::chrono::time_point_cast<duration>(steady::now()) + state_->limit : time_point::max();
    state_->deadline = std::min(state_->phase_deadline, state_->overall);
  }
  bool fired() const noexcept { return state_->fired; }
  errc phase() const noexcept { return state_->deadline == state_->overall ? errc::overall_timeout : state_->phase; }

 private:
  struct state {
    state(asio::any_io_executor e, asio::ip::tcp::socket& s, time_point o)
        : executor(std::move(e)), timer(executor), socket(&s), overall(o) {}
    asio::any_io_executor executor;
    asio::steady_timer timer;
    asio::ip::tcp::socket* socket;
    const time_point overall;
    time_point deadline = time_point::max(), phase_deadline = time_point::max(), armed = time_point::max();
    duration limit{0};
    errc phase = errc::stalled;
    bool fired = false;
  };
  // Progress only moves the deadline; the timer looks at it when it fires, so that a busy transfer costs no timer operations.
  static void wait(const std::shared_ptr<state>& s) { wait_until(s, s->deadline); }
  static void wait_until(const std::shared_ptr<state>& s, time_point when) {
    s->armed = when;
    s->timer.expires_at(std::chrono::time_point_cast<steady::duration>(when));
    s->timer.async_wait(asio::bind_executor(s->executor, [s](error_code ec) {
      if (ec || !s->socket) return;
      const time_point now = std::chrono::time_point_cast<duration>(steady::now());
      if (!s->fired && now < s->deadline) {
        wait(s);
        return;
      }
      s->fired = true;
      error_code ignored;
      s->socket->cancel(ignored);
      // A composed read that is between two of its steps would start the next one: cancel until the exchange has seen it.
      wait_until(s, now + std::chrono::milliseconds(20));
    }));
  }
  std::shared_ptr<state> state_;
};

/// A socket that may carry TLS. Not thread safe; at most one exchange at a time. Destroying it closes it.
class connection {
 public:
  connection(asio::any_io_executor executor, target to) : to_(std::move(to)), socket_(std::move(executor)) {}
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  const target& to() const noexcept { return to_; }
  asio::ip::tcp::socket& socket() noexcept { return socket_; }
  bool secure() const noexcept { return tls_.has_value(); }
  tls_stream& tls() noexcept { return *tls_; }
  void start_tls(const std::shared_ptr<asio::ssl::context>& context) {
    context_ = context;
    tls_.emplace(socket_, *context_);
    prepare_tls(*tls_, to_.host, to_.address);
  }
  /// Whether an exchange has already been completed on it.
  bool used() const noexcept { return used_; }
  bool reusable() const noexcept { return reusable_; }
  void set_reusable(bool yes) noexcept {
    reusable_ = yes;
    if (yes) used_ = true;
  }
  /// What waits in the receive buffer, without reading it: 1 bytes, 0 nothing, -1 end of file or an error.
  int pending() noexcept {
    char c;
    const auto n = ::recv(socket_.native_handle(), &c, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0) return 1;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    return -1;
  }
  time_point idle_since{};

 private:
  target to_;
  asio::ip::tcp::socket socket_;
  std::shared_ptr<asio::ssl::context> context_;
  std::optional<tls_stream> tls_;
  bool used_ = false, reusable_ = false;
};

[[noreturn]] inline void throw_cancelled() { throw boost::system::system_error(asio::error::operation_aborted); }

}  // namespace batchweave::http
