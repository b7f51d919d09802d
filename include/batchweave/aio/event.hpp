// A thread-safe wake-up: any number of coroutines wait for the next notification.
#pragma once

#include <batchweave/aio/clock.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution/context_as.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace batchweave {

/// Waiters take a ticket, look at the state they care about, then wait for anything newer than the ticket: no wake-up is lost.
/// Copies refer to the same event. Thread safe. Cancelling a wait throws operation_aborted and leaves nothing behind.
class async_event {
 public:
  using ticket = std::uint64_t;

  async_event() : state_(std::make_shared<state>()) {}

  ticket observe() const {
    const std::lock_guard lock(state_->mutex);
    return state_->generation;
  }

  /// Wakes everyone who waits now, and whoever holds a ticket from before. Never runs a handler inline.
  void notify() {
    std::list<std::shared_ptr<waiter>> woken;
    {
      const std::lock_guard lock(state_->mutex);
      ++state_->generation;
      woken.swap(state_->waiting);
      for (auto& w : woken) w->linked = false;
    }
    for (auto& w : woken) w->complete(error_code());
  }

  asio::awaitable<void> wait(ticket seen) {
    return asio::async_initiate<const asio::use_awaitable_t<>, void(error_code)>(start(), asio::use_awaitable, state_, seen);
  }

  /// Returns at the next notification or at `deadline`, whichever is first.
  asio::awaitable<void> wait_until(ticket seen, any_clock clock, time_point deadline) {
    using namespace asio::experimental::awaitable_operators;
    if (clock.now() >= deadline) co_return;
    bool cancelled = false;
    try {
      co_await (wait(seen) || clock.wait_until(deadline));
    } catch (const asio::multiple_exceptions&) {
      cancelled = true;  // both sides failed: only cancellation does that
    }
    if (cancelled) throw boost::system::system_error(asio::error::operation_aborted);
  }

 private:
  using error_code = boost::system::error_code;

  struct state;
  struct waiter {
    virtual ~waiter() = default;
    virtual void complete(error_code) = 0;
    bool linked = false;
    std::list<std::shared_ptr<waiter>>::iterator where;
    std::weak_ptr<state> of;
  };
  // A waiting coroutine may own the event that it waits for. When its execution context goes away first, as when a program stops
  // early, this breaks the circle, so that the frame is destroyed like those of all other unfinished operations.
  class shutdown_service final : public asio::execution_context::service {
   public:
    using key_type = shutdown_service;
    static inline asio::execution_context::id id;
    explicit shutdown_service(asio::execution_context& c) : asio::execution_context::service(c) {}
    using place = std::list<std::weak_ptr<waiter>>::iterator;
    place add(std::weak_ptr<waiter> w) {
      const std::lock_guard lock(mutex_);
      return waiters_.insert(waiters_.end(), std::move(w));
    }
    void remove(place at) {
      const std::lock_guard lock(mutex_);
      waiters_.erase(at);
    }

   private:
    void shutdown() override {
      std::list<std::shared_ptr<waiter>> dropped;
      {
        const std::lock_guard lock(mutex_);
        for (auto& weak : waiters_) {
          if (auto w = weak.lock()) dropped.push_back(std::move(w));
        }
      }
      for (auto& w : dropped) {
        auto s = w->of.lock();
        if (!s) continue;
        const std::lock_guard lock(s->mutex);
        if (!std::exchange(w->linked, false)) continue;
        s->waiting.erase(w->where);
      }
    }
    std::mutex mutex_;
    std::list<std::weak_ptr<waiter>> waiters_;
  };
  template <class Handler>
  struct typed_waiter final : waiter {
    explicit typed_waiter(Handler h)
        : handler(std::move(h)),
          work(asio::make_work_guard(handler)),
          service(asio::use_service<shutdown_service>(
              asio::query(work.get_executor(), asio::execution::context_as<asio::execution_context&>))) {}
    ~typed_waiter() override {
      if (registered) service.remove(place);
    }
    void register_self(std::weak_ptr<waiter> self) {
      place = service.add(std::move(self));
      registered = true;
    }
    void complete(error_code ec) override {
      auto executor = work.get_executor();
      asio::post(executor, [h = std::move(handler), w = std::move(work), ec]() mutable {
        w.reset();
        std::move(h)(ec);
      });
    }
    Handler handler;
    // Keeps the io_context running while somebody waits.
    asio::executor_work_guard<asio::associated_executor_t<Handler>> work;
    shutdown_service& service;
    typename shutdown_service::place place;
    bool registered = false;
  };
  struct state {
    std::mutex mutex;
    ticket generation = 0;
    std::list<std::shared_ptr<waiter>> waiting;
  };
  struct start {
    template <class Handler>
    void operator()(Handler&& handler, std::shared_ptr<state> s, ticket seen) const {
      using typed = typed_waiter<std::decay_t<Handler>>;
      auto slot = asio::get_associated_cancellation_slot(handler);
      auto w = std::make_shared<typed>(std::forward<Handler>(handler));
      w->of = s;
      w->register_self(w);
      bool ready = false;
      {
        const std::lock_guard lock(s->mutex);
        ready = s->generation != seen;
        if (!ready) {
          w->where = s->waiting.insert(s->waiting.end(), w);
          w->linked = true;
        }
      }
      if (ready) {
        w->complete(error_code());
        return;
      }
      if (slot.is_connected()) {
        slot.assign([weak_state = std::weak_ptr<state>(s), weak = std::weak_ptr<waiter>(w)](asio::cancellation_type) {
          auto live = weak_state.lock();
          auto self = weak.lock();
          if (!live || !self) return;
          {
            const std::lock_guard lock(live->mutex);
            if (!self->linked) return;
            live->waiting.erase(self->where);
            self->linked = false;
          }
          self->complete(asio::error::operation_aborted);
        });
      }
    }
  };

  std::shared_ptr<state> state_;
};

}  // namespace batchweave
