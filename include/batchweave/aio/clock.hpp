// The clock concept of asynchronous code, the real clock, and a type-erased handle for roles.
#pragma once

#include <batchweave/base/clock.hpp>
#include <batchweave/base/config.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <concepts>
#include <memory>
#include <utility>

namespace batchweave {

/// Tells the time and waits for it. `wait_until` completes at or after `t`; cancelling it throws operation_aborted.
template <class C>
concept clock = requires(C& c, time_point t) {
  { c.now() } -> std::same_as<time_point>;
  { c.wall_now() } -> std::same_as<wall_time>;
  { c.wait_until(t) } -> std::same_as<asio::awaitable<void>>;
};

/// The only place that names steady_timer outside http/. Stateless; thread safe.
class real_clock {
 public:
  time_point now() const noexcept { return std::chrono::time_point_cast<duration>(std::chrono::steady_clock::now()); }
  wall_time wall_now() const noexcept { return std::chrono::time_point_cast<duration>(std::chrono::system_clock::now()); }
  asio::awaitable<void> wait_until(time_point t) {
    asio::steady_timer timer(co_await asio::this_coro::executor, t);
    co_await timer.async_wait(asio::use_awaitable);
  }
};

/// A copyable handle to any clock; the default is the real one. Copies share the clock.
class any_clock {
 public:
  any_clock() : any_clock(real_clock()) {}
  template <clock C>
    requires(!std::same_as<C, any_clock>)
  any_clock(C c) : self_(std::make_shared<model<C>>(std::move(c))) {}

  time_point now() const { return self_->now(); }
  wall_time wall_now() const { return self_->wall_now(); }
  asio::awaitable<void> wait_until(time_point t) { return self_->wait_until(t); }
  asio::awaitable<void> wait_for(duration d) { return self_->wait_until(now() + d); }

 private:
  struct interface {
    virtual ~interface() = default;
    virtual time_point now() = 0;
    virtual wall_time wall_now() = 0;
    virtual asio::awaitable<void> wait_until(time_point) = 0;
  };
  template <class C>
  struct model final : interface {
    explicit model(C c) : held(std::move(c)) {}
    time_point now() override { return held.now(); }
    wall_time wall_now() override { return held.wall_now(); }
    asio::awaitable<void> wait_until(time_point t) override { return held.wait_until(t); }
    C held;
  };
  std::shared_ptr<interface> self_;
};

static_assert(clock<real_clock> && clock<any_clock>);

}  // namespace batchweave
