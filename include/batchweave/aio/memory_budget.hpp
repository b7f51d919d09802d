// A shared bound on the bytes that uploads and prefetch hold at one time.
#pragma once

#include <batchweave/aio/event.hpp>
#include <batchweave/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace batchweave {

/// Hands out bytes in the order of asking. Copies share the budget. Thread safe.
class memory_budget {
  struct state {
    explicit state(std::size_t t) : total(t) {}
    std::mutex mutex;
    const std::size_t total;
    std::size_t used = 0;
    std::size_t peak = 0;
    std::list<int> queue;  // one node for each waiter, oldest first
    async_event changed;
  };

 public:
  static constexpr std::size_t default_bytes = std::size_t{256} << 20;

  explicit memory_budget(std::size_t bytes = default_bytes) : state_(std::make_shared<state>(bytes)) {}

  /// Bytes held until destruction. Move-only.
  class lease {
   public:
    lease() noexcept = default;
    lease(lease&& o) noexcept : from_(std::move(o.from_)), bytes_(std::exchange(o.bytes_, 0)) {}
    lease& operator=(lease&& o) noexcept {
      if (this != &o) {
        release();
        from_ = std::move(o.from_);
        bytes_ = std::exchange(o.bytes_, 0);
      }
      return *this;
    }
    ~lease() { release(); }
    std::size_t bytes() const noexcept { return bytes_; }
    void release() noexcept {
      if (!from_) return;
      {
        const std::lock_guard lock(from_->mutex);
        from_->used -= bytes_;
      }
      from_->changed.notify();
      from_.reset();
      bytes_ = 0;
    }

   private:
    friend class memory_budget;
    lease(std::shared_ptr<state> from, std::size_t bytes) noexcept : from_(std::move(from)), bytes_(bytes) {}
    std::shared_ptr<state> from_;
    std::size_t bytes_ = 0;
  };

  /// Waits until `bytes` are free, first come first served. errc::budget_too_small at once when they never can be.
  /// `what` names the unit in that message. Cancelling leaves nothing behind.
  asio::awaitable<result<lease>> acquire(std::size_t bytes, std::string what) {
    return acquire_from(state_, bytes, std::move(what));
  }

  std::size_t total() const noexcept { return state_->total; }
  std::size_t used() const {
    const std::lock_guard lock(state_->mutex);
    return state_->used;
  }
  std::size_t peak() const {
    const std::lock_guard lock(state_->mutex);
    return state_->peak;
  }

 private:
  struct place {
    explicit place(std::shared_ptr<state> s) : from(std::move(s)) {
      const std::lock_guard lock(from->mutex);
      at = from->queue.insert(from->queue.end(), 0);
    }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() {
      {
        const std::lock_guard lock(from->mutex);
        from->queue.erase(at);
      }
      from->changed.notify();
    }
    std::shared_ptr<state> from;
    std::list<int>::iterator at;
  };

  static asio::awaitable<result<lease>> acquire_from(std::shared_ptr<state> s, std::size_t bytes, std::string what) {
    if (bytes > s->total) {
      co_return failure(errc::budget_too_small, what + " needs " + std::to_string(bytes) + " bytes, the memory budget has " +
                                                    std::to_string(s->total) + "; raise the budget or make the unit smaller")
          .with_fate(fate::did_not_happen);
    }
    place mine(s);
    for (;;) {
      const async_event::ticket seen = s->changed.observe();
      {
        const std::lock_guard lock(s->mutex);
        if (mine.at == s->queue.begin() && s->used + bytes <= s->total) {
          s->used += bytes;
          s->peak = std::max(s->peak, s->used);
          co_return lease(s, bytes);
        }
      }
      co_await s->changed.wait(seen);
    }
  }

  std::shared_ptr<state> state_;
};

}  // namespace batchweave
