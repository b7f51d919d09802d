// A bounded set of connections: idle ones are kept for a while, waiters are served in the order of asking.
#pragma once

#include <batchweave/aio/event.hpp>
#include <batchweave/http/connection.hpp>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace batchweave::http {

/// Hands out permission to use one connection, and an idle connection when there is a live one. Copies share the pool; leases keep it
/// alive. Thread safe: leases may be taken and given back on different strands.
class pool {
  struct waiter {
    async_event granted;
    bool has_slot = false;
  };
  struct state {
    state(std::size_t m, duration i) : max(std::max<std::size_t>(1, m)), idle_limit(i), limit(max) {}
    std::mutex mutex;
    const std::size_t max;
    const duration idle_limit;
    std::size_t limit;  // 1 to max: how many may be in use now
    std::size_t in_use = 0;
    std::list<std::shared_ptr<waiter>> queue;
    std::list<std::unique_ptr<connection>> idle;
    std::uint64_t opened = 0;
  };

 public:
  /// `max`: connections in use at one time. `idle_limit`: shorter than the server's own, or requests meet a closing socket.
  pool(std::size_t max, duration idle_limit) : state_(std::make_shared<state>(max, idle_limit)) {}

  /// The right to use one connection, until destruction. Move-only.
  class lease {
   public:
    lease() = default;
    lease(lease&& o) noexcept : from_(std::move(o.from_)), held_(std::move(o.held_)) {}
    lease& operator=(lease&& o) noexcept {
      if (this != &o) {
        give_back();
        from_ = std::move(o.from_);
        held_ = std::move(o.held_);
      }
      return *this;
    }
    ~lease() { give_back(); }
    /// nullptr: open one and put() it here.
    connection* get() const noexcept { return held_.get(); }
    void put(std::unique_ptr<connection> c) {
      held_ = std::move(c);
      const std::lock_guard lock(from_->mutex);
      ++from_->opened;
    }
    /// Closes the connection but keeps the right to another one.
    void drop() noexcept { held_.reset(); }

   private:
    friend class pool;
    explicit lease(std::shared_ptr<state> from) noexcept : from_(std::move(from)) {}
    void give_back() noexcept {
      if (!from_) return;
      std::unique_ptr<connection> closing;
      if (held_ && held_->reusable()) {
        held_->idle_since = real_clock().now();
        const std::lock_guard lock(from_->mutex);
        from_->idle.push_back(std::move(held_));
        if (from_->idle.size() > from_->max) {
          closing = std::move(from_->idle.front());
          from_->idle.pop_front();
        }
      }
      held_.reset();
      pool::release(*from_);
      from_.reset();
    }
    std::shared_ptr<state> from_;
    std::unique_ptr<connection> held_;
  };

  /// Waits for a free place, until `deadline` at most: then errc::overall_timeout. Cancelling throws operation_aborted and gives the place up.
  asio::awaitable<result<lease>> acquire(target to, time_point deadline = time_point::max()) {
    return acquire_from(state_, std::move(to), deadline);
  }
  /// Whether acquire() would not wait now.
  bool has_room() const {
    const std::lock_guard lock(state_->mutex);
    return state_->queue.empty() && state_->in_use < state_->limit;
  }
  /// How many may be in use from now on, at most what the pool was made for. Connections in use stay in use.
  void limit(std::size_t n) {
    std::list<std::shared_ptr<waiter>> go;
    {
      const std::lock_guard lock(state_->mutex);
      state_->limit = std::clamp<std::size_t>(n, 1, state_->max);
      while (!state_->queue.empty() && state_->in_use < state_->limit) {
        ++state_->in_use;
        state_->queue.front()->has_slot = true;
        go.splice(go.end(), state_->queue, state_->queue.begin());
      }
    }
    for (auto& w : go) w->granted.notify();
  }

  /// Connections opened so far, for tests and metrics.
  std::uint64_t opened() const {
    const std::lock_guard lock(state_->mutex);
    return state_->opened;
  }
  /// Closes what is idle.
  void close_idle() {
    std::list<std::unique_ptr<connection>> closing;
    const std::lock_guard lock(state_->mutex);
    closing.swap(state_->idle);
  }

 private:
  static void release(state& s) noexcept {
    std::shared_ptr<waiter> next;
    {
      const std::lock_guard lock(s.mutex);
      if (s.queue.empty() || s.in_use > s.limit) {
        --s.in_use;
        return;
      }
      next = s.queue.front();
      s.queue.pop_front();
      next->has_slot = true;
    }
    next->granted.notify();
  }

  // A place in the queue; a waiter that goes away passes a place that it was given on to the next.
  struct place {
    explicit place(std::shared_ptr<state> s) : from(std::move(s)), me(std::make_shared<waiter>()) {}
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() {
      if (taken) return;
      bool pass_on = false;
      {
        const std::lock_guard lock(from->mutex);
        pass_on = me->has_slot;
        if (!pass_on) from->queue.remove(me);
      }
      if (pass_on) release(*from);
    }
    std::shared_ptr<state> from;
    std::shared_ptr<waiter> me;
    bool taken = false;
  };

  static asio::awaitable<result<lease>> acquire_from(std::shared_ptr<state> s, target to, time_point deadline) {
    bool wait = false;
    {
      place mine(s);
      {
        const std::lock_guard lock(s->mutex);
        if (s->queue.empty() && s->in_use < s->limit) {
          ++s->in_use;
          mine.taken = true;
        } else {
          s->queue.push_back(mine.me);
          wait = true;
        }
      }
      while (wait) {
        const async_event::ticket seen = mine.me->granted.observe();
        {
          const std::lock_guard lock(s->mutex);
          if (mine.me->has_slot) {
            mine.taken = true;
            break;
          }
        }
        if (deadline == time_point::max()) {
          co_await mine.me->granted.wait(seen);
          continue;
        }
        any_clock clock;  // places are waited for in real time, as sockets are
        if (clock.now() >= deadline) {
          co_return failure(errc::overall_timeout, "no connection became free: all " + std::to_string(s->max) + " are in use; raise max_connections or the limit")
              .with_fate(fate::did_not_happen);
        }
        co_await mine.me->granted.wait_until(seen, clock, deadline);
      }
    }
    lease mine(s);
    std::list<std::unique_ptr<connection>> closing;
    const time_point now = real_clock().now();
    const std::lock_guard lock(s->mutex);
    for (auto at = s->idle.begin(); at != s->idle.end();) {
      const auto here = at++;
      if (now - (*here)->idle_since > s->idle_limit) closing.splice(closing.end(), s->idle, here);
    }
    // The most recently used first. Bytes that nobody asked for are as bad as an end of file.
    for (auto at = s->idle.end(); at != s->idle.begin();) {
      --at;
      if (!((*at)->to() == to)) continue;
      const auto here = at++;
      if ((*here)->pending() == 0) {
        mine.held_ = std::move(*here);
        s->idle.erase(here);
        mine.held_->set_reusable(false);
        break;
      }
      closing.splice(closing.end(), s->idle, here);
    }
    co_return std::move(mine);
  }

  std::shared_ptr<state> state_;
};

}  // namespace batchweave::http
