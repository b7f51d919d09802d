// Coroutines that belong together: spawned on one executor, cancelled together, joined, no exception lost.
#pragma once

#include <batchweave/aio/event.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>

#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace batchweave {

/// Whether an exception only says that the operation was cancelled.
inline bool is_cancellation(const std::exception& e) noexcept {
  const auto* s = dynamic_cast<const boost::system::system_error*>(&e);
  return s && s->code() == asio::error::operation_aborted;
}

/// Spawns on `executor`, which must be a strand or belong to a single-threaded context. Copies refer to the same group.
/// Thread safe. The first exception that is not a cancellation is kept and rethrown by join().
class task_group {
 public:
  explicit task_group(asio::any_io_executor executor) : state_(std::make_shared<state>(std::move(executor))) {}

  const asio::any_io_executor& executor() const noexcept { return state_->executor; }

  /// Starts `work`. After cancel() nothing starts any more.
  void spawn(asio::awaitable<void> work) {
    auto signal = std::make_shared<asio::cancellation_signal>();
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->cancelled) return;
      state_->signals.push_back(signal);
    }
    asio::co_spawn(state_->executor, std::move(work),
                   asio::bind_cancellation_slot(signal->slot(), [s = state_, signal](std::exception_ptr e) {
                     {
                       const std::lock_guard lock(s->mutex);
                       s->signals.remove(signal);
                       if (e && !s->first && !only_cancelled(e)) s->first = e;
                     }
                     s->changed.notify();
                   }));
  }

  /// Asks every task to stop; the signals are emitted on the group's executor.
  void cancel() {
    {
      const std::lock_guard lock(state_->mutex);
      state_->cancelled = true;
    }
    asio::post(state_->executor, [s = state_] {
      std::list<std::shared_ptr<asio::cancellation_signal>> signals;
      {
        const std::lock_guard lock(s->mutex);
        signals = s->signals;
      }
      for (auto& signal : signals) signal->emit(asio::cancellation_type::terminal);
    });
  }

  /// Waits until no task is left.
  asio::awaitable<void> join() { return join_state(state_); }

 private:
  struct state {
    explicit state(asio::any_io_executor e) : executor(std::move(e)) {}
    asio::any_io_executor executor;
    std::mutex mutex;
    bool cancelled = false;
    std::list<std::shared_ptr<asio::cancellation_signal>> signals;
    std::exception_ptr first;
    async_event changed;
  };

  static bool only_cancelled(const std::exception_ptr& e) {
    try {
      std::rethrow_exception(e);
    } catch (const std::exception& x) {
      return is_cancellation(x);
    } catch (...) {
      return false;
    }
  }

  static asio::awaitable<void> join_state(std::shared_ptr<state> s) {
    for (;;) {
      const async_event::ticket seen = s->changed.observe();
      std::exception_ptr first;
      bool done = false;
      {
        const std::lock_guard lock(s->mutex);
        done = s->signals.empty();
        first = s->first;
      }
      if (done) {
        if (first) std::rethrow_exception(first);
        co_return;
      }
      co_await s->changed.wait(seen);
    }
  }

  std::shared_ptr<state> state_;
};

/// Joins even when the caller is cancelled meanwhile, for tasks that use memory of the caller: the group is then cancelled, and so it is
/// when `thrown` is set already. The first exception goes into `thrown`; nothing is thrown from here.
inline asio::awaitable<void> join_whatever_happens(task_group group, std::exception_ptr& thrown) {
  const bool before = co_await asio::this_coro::throw_if_cancelled();
  if (thrown) group.cancel();
  for (int n = 0; n < 2; ++n) {
    if (thrown) co_await asio::this_coro::throw_if_cancelled(false);
    bool again = false;
    try {
      co_await group.join();
    } catch (...) {
      if (!thrown) thrown = std::current_exception();
      again = n == 0;
    }
    if (!again) break;
    group.cancel();
  }
  co_await asio::this_coro::throw_if_cancelled(before);
}

}  // namespace batchweave
