// Addresses of hosts, kept for a short time: one look-up at a time for a host, connections spread over all of its addresses.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/event.hpp>
#include <batchweave/base/error.hpp>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::http {

/// Replaces the system's resolver: all addresses of a host, empty when there are none. Called on the executor of the connection; must not
/// block for long.
using address_lookup = std::function<std::vector<asio::ip::address>(const std::string& host)>;

/// Copies share the cache. Thread safe.
class name_cache {
 public:
  using endpoints = std::vector<asio::ip::tcp::endpoint>;
  explicit name_cache(any_clock clock = any_clock(), duration keep = std::chrono::seconds(30), address_lookup with = address_lookup())
      : state_(std::make_shared<state>(std::move(clock), keep, std::move(with))) {}

  /// All addresses, starting at another one each time; those that failed lately come last. errc::resolve_failed. A look-up that takes longer
  /// than `limit` is abandoned.
  asio::awaitable<result<endpoints>> find(std::string host, std::uint16_t port, duration limit) {
    return find_in(state_, std::move(host), port, limit);
  }
  /// Forgets a host none of whose addresses answered: the next connection looks it up again.
  void forget(const std::string& host) {
    const std::lock_guard lock(state_->mutex);
    state_->known.erase(host);
  }
  /// An address that did not accept a connection is tried last until the entry is looked up again; one that did is as good as any.
  void note(const std::string& host, const asio::ip::address& address, bool good) {
    const std::lock_guard lock(state_->mutex);
    const auto at = state_->known.find(host);
    if (at == state_->known.end()) return;
    auto& bad = at->second->bad;
    const auto here = std::find(bad.begin(), bad.end(), address);
    if (good && here != bad.end()) bad.erase(here);
    if (!good && here == bad.end()) bad.push_back(address);
  }

 private:
  struct entry {
    bool done = false;
    error_code ec;
    std::vector<asio::ip::address> addresses, bad;
    time_point until{};
    async_event changed;
  };
  struct state {
    state(any_clock c, duration k, address_lookup w) : clock(std::move(c)), keep(k), with(std::move(w)) {}
    std::mutex mutex;
    any_clock clock;
    const duration keep;
    const address_lookup with;
    std::size_t turn = 0;
    std::map<std::string, std::shared_ptr<entry>> known;
  };

  static void finish(state& s, entry& e, error_code failed, std::vector<asio::ip::address> found) {
    {
      const std::lock_guard lock(s.mutex);
      e.ec = failed;
      e.addresses = std::move(found);
      if (!failed && e.addresses.empty()) e.ec = asio::error::host_not_found;
      e.until = s.clock.now() + s.keep;
      e.done = true;
    }
    e.changed.notify();
  }

  static asio::awaitable<result<endpoints>> find_in(std::shared_ptr<state> s, std::string host, std::uint16_t port, duration limit) {
    endpoints list;
    error_code ec;
    const asio::ip::address literal = asio::ip::make_address(host, ec);
    if (!ec) {
      list.emplace_back(literal, port);
      co_return list;
    }
    any_clock real;  // a look-up takes real time
    const time_point give_up = real.now() + limit;
    std::shared_ptr<entry> e;
    bool mine = false;
    {
      const std::lock_guard lock(s->mutex);
      auto& slot = s->known[host];
      if (!slot || (slot->done && (slot->ec || slot->until < s->clock.now()))) {
        slot = std::make_shared<entry>();
        mine = true;
      }
      e = slot;
    }
    if (mine && s->with) {
      std::vector<asio::ip::address> found = s->with(host);
      finish(*s, *e, error_code(), std::move(found));
    } else if (mine) {
      // Getaddrinfo cannot be interrupted: it finishes by itself, into the entry, whether somebody still waits or not.
      auto resolver = std::make_shared<asio::ip::tcp::resolver>(co_await asio::this_coro::executor);
      resolver->async_resolve(host, std::to_string(port), [s, e, resolver](error_code failed, asio::ip::tcp::resolver::results_type results) {
        std::vector<asio::ip::address> found;
        for (const auto& r : results) found.push_back(r.endpoint().address());
        finish(*s, *e, failed, std::move(found));
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
          for (const bool failed : {false, true}) {
            for (std::size_t i = 0; i < e->addresses.size(); ++i) {
              const asio::ip::address& a = e->addresses[(first + i) % e->addresses.size()];
              if ((std::find(e->bad.begin(), e->bad.end(), a) != e->bad.end()) == failed) list.emplace_back(a, port);
            }
          }
          break;
        }
      }
      if (real.now() >= give_up) {
        co_return failure(errc::resolve_failed, "the host name " + host + " did not resolve in time").with_fate(fate::did_not_happen);
      }
      co_await e->changed.wait_until(seen, real, give_up);
    }
    co_return list;
  }
  std::shared_ptr<state> state_;
};

}  // namespace batchweave::http
