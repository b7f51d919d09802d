// One connection to a server, TCP or TLS, and the watchdog that bounds each phase on it.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/event.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/http/tls.hpp>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::http {

/// How long each phase may take. Zero: no limit (only `overall`).
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
  std::string key() const { return (tls ? "https " : "http ") + host + " " + std::to_string(port); }
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
    state_->phase_deadline = std::chrono::time_point_cast<duration>(steady::now()) + state_->limit;
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

/// Addresses of hosts, kept for a short time; one look-up at a time for a host. Thread safe.
class name_cache {
 public:
  using endpoints = std::vector<asio::ip::tcp::endpoint>;
  explicit name_cache(duration keep = std::chrono::seconds(30)) : state_(std::make_shared<state>(keep)) {}

  /// All addresses, starting at another one each time. errc::resolve_failed. A look-up that takes longer than `limit` is abandoned.
  asio::awaitable<result<endpoints>> find(std::string host, std::uint16_t port, duration limit) {
    return find_in(state_, std::move(host), port, limit);
  }
  /// Forgets a host none of whose addresses answered.
  void forget(const std::string& host) {
    const std::lock_guard lock(state_->mutex);
    state_->known.erase(host);
  }

 private:
  struct entry {
    bool done = false;
    error_code ec;
    std::vector<asio::ip::address> addresses;
    time_point until{};
    async_event changed;
  };
  struct state {
    explicit state(duration k) : keep(k) {}
    std::mutex mutex;
    const duration keep;
    std::size_t turn = 0;
    std::map<std::string, std::shared_ptr<entry>> known;
  };

  static asio::awaitable<result<endpoints>> find_in(std::shared_ptr<state> s, std::string host, std::uint16_t port, duration limit) {
    endpoints list;
    error_code ec;
    const asio::ip::address literal = asio::ip::make_address(host, ec);
    if (!ec) {
      list.emplace_back(literal, port);
      co_return list;
    }
    any_clock clock;
    const time_point give_up = clock.now() + limit;
    std::shared_ptr<entry> e;
    bool mine = false;
    {
      const std::lock_guard lock(s->mutex);
      auto& slot = s->known[host];
      if (!slot || (slot->done && (slot->ec || slot->until < clock.now()))) {
        slot = std::make_shared<entry>();
        mine = true;
      }
      e = slot;
    }
    if (mine) {
      // Getaddrinfo cannot be interrupted: it finishes by itself, into the entry, whether somebody still waits or not.
      auto resolver = std::make_shared<asio::ip::tcp::resolver>(co_await asio::this_coro::executor);
      resolver->async_resolve(host, std::to_string(port), [s, e, resolver](error_code failed, asio::ip::tcp::resolver::results_type found) {
        {
          const std::lock_guard lock(s->mutex);
          e->ec = failed;
          for (const auto& f : found) e->addresses.push_back(f.endpoint().address());
          if (!failed && e->addresses.empty()) e->ec = asio::error::host_not_found;
          e->until = any_clock().now() + s->keep;
          e->done = true;
        }
        e->changed.notify();
      });
    }
    for (;;) {
      const async_event::ticket seen = e->changed.observe();
      {
        const std::lock_guard lock(s->mutex);
        if (e->done) {
          if (e->ec) {
            co_return failure(errc::resolve_failed, "the host name " + host + " did not resolve: " + e->ec.message())
                .with_fate(fate::did_not_happen);
          }
          const std::size_t first = s->turn++;
          for (std::size_t i = 0; i < e->addresses.size(); ++i) {
            list.emplace_back(e->addresses[(first + i) % e->addresses.size()], port);
          }
          break;
        }
      }
      if (clock.now() >= give_up) {
        co_return failure(errc::resolve_failed, "the host name " + host + " did not resolve in time").with_fate(fate::did_not_happen);
      }
      co_await e->changed.wait_until(seen, clock, give_up);
    }
    co_return list;
  }
  std::shared_ptr<state> state_;
};

[[noreturn]] inline void throw_cancelled() { throw boost::system::system_error(asio::error::operation_aborted); }

/// Connects, trying every address in turn, each with its share of the limit; then TLS. nullopt: connected.
/// Cancelling throws operation_aborted.
inline asio::awaitable<std::optional<failure>> connect(connection& c, name_cache names, std::shared_ptr<asio::ssl::context> tls,
                                                       timeouts limits, time_point overall) {
  result<name_cache::endpoints> found = co_await names.find(c.to().host, c.to().port, limits.connect);
  if (!found) co_return found.error();
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  watchdog guard(executor, c.socket(), overall);
  const std::string where = c.to().host + ":" + std::to_string(c.to().port);
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
    if (!ec) {
      last.reset();
      break;
    }
    if (guard.fired()) {
      last = failure(guard.phase(), "connecting to " + where + " took too long");
    } else if (ec == asio::error::operation_aborted) {
      throw_cancelled();
    } else {
      last = failure(errc::connect_failed, "cannot connect to " + where + ": " + ec.message());
    }
  }
  if (last) {
    names.forget(c.to().host);
    co_return last->with_fate(fate::did_not_happen);
  }
  error_code ec;
  c.socket().set_option(asio::ip::tcp::no_delay(true), ec);
  if (c.to().tls) {
    c.start_tls(tls);
    guard.arm(errc::tls_timeout, limits.tls);
    co_await c.tls().async_handshake(asio::ssl::stream_base::client, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) {
      if (guard.fired()) co_return failure(guard.phase(), "the TLS handshake with " + where + " took too long").with_fate(fate::did_not_happen);
      if (ec == asio::error::operation_aborted) throw_cancelled();
      // A peer that hangs up in the handshake is a passing fault; a certificate that does not fit is not.
      const bool passing = ec == asio::error::eof || ec == asio::error::connection_reset || ec == asio::ssl::error::stream_truncated;
      co_return failure(passing ? errc::connect_failed : errc::tls_failed, "TLS handshake with " + where + ": " + ec.message())
          .with_fate(fate::did_not_happen);
    }
  }
  co_return std::nullopt;
}

}  // namespace batchweave::http
