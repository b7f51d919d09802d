// Virtual time: a heap of handlers on one single-threaded context, simulated processes that can stall and die, and their clocks.
#pragma once

#include <batchweave/aio/clock.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace batchweave::testing {

/// A set of coroutines that share one fate: while it is stalled, nothing that it waits for reaches it; when it is dead, nothing ever
/// does. Made and owned by the test; must outlive the run. Not thread safe.
class sim_process {
 public:
  explicit sim_process(std::uint32_t number = 0) : number_(number) {}
  sim_process(const sim_process&) = delete;
  sim_process& operator=(const sim_process&) = delete;

  std::uint32_t number() const noexcept { return number_; }
  bool dead() const noexcept { return dead_; }
  /// Timers and replies that fall due before `t` arrive at `t`, in their order.
  void stall_until(time_point t) { stalled_until_ = std::max(stalled_until_, t); }
  time_point stalled_until() const noexcept { return stalled_until_; }
  /// The wall clock of the process jumps; its monotonic clock does not.
  void jump_wall(duration by) { wall_offset_ += by; }
  duration wall_offset() const noexcept { return wall_offset_; }
  /// Store operations begun so far.
  std::uint64_t operations() const noexcept { return operations_; }
  std::uint64_t count_operation() noexcept { return ++operations_; }

 private:
  friend class sim_timeline;
  std::uint32_t number_;
  bool dead_ = false;
  time_point stalled_until_{};
  duration wall_offset_{0};
  std::uint64_t operations_ = 0;
};

/// Owns virtual time. Handlers run on the io_context that it is given; time moves only when none of them is ready. There is no timer, no
/// thread and no system call behind it. Handlers that fall due at one moment run in the order in which they were asked for.
/// Must outlive what waits on it; not thread safe. Destroying it destroys the handlers that still wait.
class sim_timeline {
  using error_code = boost::system::error_code;
  struct item {
    virtual ~item() = default;
    virtual void complete(error_code) = 0;
    sim_process* owner = nullptr;  // null: an event of the world, which no process can hold back
    bool over = false;
  };
  template <class Handler>
  struct wait_item final : item {
    explicit wait_item(Handler h) : handler(std::move(h)) {}
    void complete(error_code ec) override {
      auto executor = asio::get_associated_executor(handler);
      asio::post(executor, [h = std::move(handler), ec]() mutable { std::move(h)(ec); });
    }
    Handler handler;
  };
  template <class Event>
  struct event_item final : item {
    explicit event_item(Event e) : event(std::move(e)) {}
    void complete(error_code ec) override {
      if (!ec) event();
    }
    Event event;
  };

 public:
  explicit sim_timeline(asio::io_context& context) : context_(&context) {}
  sim_timeline(const sim_timeline&) = delete;
  sim_timeline& operator=(const sim_timeline&) = delete;
  ~sim_timeline() { clear(); }

  asio::io_context& context() const noexcept { return *context_; }
  time_point now() const noexcept { return now_; }
  /// Of a process without jumps. Starts in the year 2026.
  wall_time wall_now() const noexcept { return wall_time(std::chrono::seconds(1'767'225'600) + now_.time_since_epoch()); }
  /// Waits and events that took place.
  std::uint64_t fired() const noexcept { return fired_; }

  /// Calls `event()` at `t`, outside of any coroutine.
  template <class Event>
  void at(time_point t, Event event) {
    insert(t, std::make_shared<event_item<Event>>(std::move(event)));
  }
  template <class Event>
  void after(duration d, Event event) {
    at(now_ + d, std::move(event));
  }

  /// Runs what is ready, then moves time to the next handler that is due; false when nothing is left to do.
  bool step() {
    run_ready();
    for (;;) {
      while (!heap_.empty() && heap_.front().what->over) pop();
      if (heap_.empty()) return false;
      sim_process* const owner = heap_.front().what->owner;
      if (!owner || owner->stalled_until_ <= heap_.front().when) break;
      entry held = pop();
      held.when = owner->stalled_until_;
      push(std::move(held));
    }
    entry next = pop();
    now_ = std::max(now_, next.when);
    next.what->over = true;
    ++fired_;
    next.what->complete(error_code());
    return true;
  }
  /// Until nothing is left to do.
  void run() {
    while (step()) {
    }
  }
  /// Until `done()` holds, looked at after every step; false when nothing is left to do before that.
  template <class Predicate>
  bool run_until(Predicate done) {
    while (!done()) {
      if (!step()) return done();
    }
    return true;
  }
  /// Runs what is ready without moving time.
  void run_ready() {
    context_->restart();
    while (context_->poll() != 0) {
    }
  }

  /// The process is gone: what it waits for ends with operation_aborted now, and so does what its coroutines wait for from now on.
  void kill(sim_process& p) {
    p.dead_ = true;
    std::vector<std::shared_ptr<item>> mine;
    for (entry& e : heap_) {
      if (e.what->owner == &p && !std::exchange(e.what->over, true)) mine.push_back(e.what);
    }
    for (auto& i : mine) i->complete(asio::error::operation_aborted);
  }

  /// Drops whatever waits, without completing it.
  void clear() {
    std::vector<entry> dropped;
    dropped.swap(heap_);
  }

  /// Completes at `t`, as seen by `owner` (may be null). Cancelling throws operation_aborted. Lazy, like every awaitable.
  asio::awaitable<void> wait_until(time_point t, sim_process* owner) {
    return asio::async_initiate<const asio::use_awaitable_t<>, void(error_code)>(start(), asio::use_awaitable, this, t, owner);
  }

 private:
  struct entry {
    time_point when;
    std::uint64_t order;
    std::shared_ptr<item> what;
  };
  struct later {
    bool operator()(const entry& a, const entry& b) const noexcept {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };
  struct start {
    template <class Handler>
    void operator()(Handler&& handler, sim_timeline* self, time_point t, sim_process* owner) const {
      auto slot = asio::get_associated_cancellation_slot(handler);
      auto i = std::make_shared<wait_item<std::decay_t<Handler>>>(std::forward<Handler>(handler));
      i->owner = owner;
      if (owner && owner->dead_) {
        i->complete(asio::error::operation_aborted);
        return;
      }
      if (slot.is_connected()) {
        slot.assign([weak = std::weak_ptr<item>(i)](asio::cancellation_type) {
          const auto live = weak.lock();
          if (!live || std::exchange(live->over, true)) return;
          live->complete(asio::error::operation_aborted);
        });
      }
      self->insert(t, std::move(i));
    }
  };

  void insert(time_point t, std::shared_ptr<item> i) {
    entry e;
    e.when = std::max(t, now_);
    e.order = order_++;
    e.what = std::move(i);
    push(std::move(e));
  }
  void push(entry e) {
    heap_.push_back(std::move(e));
    std::push_heap(heap_.begin(), heap_.end(), later());
  }
  entry pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later());
    entry e = std::move(heap_.back());
    heap_.pop_back();
    return e;
  }

  asio::io_context* context_;
  time_point now_{std::chrono::hours(1)};
  std::uint64_t order_ = 0;
  std::uint64_t fired_ = 0;
  std::vector<entry> heap_;
};

/// The clock (batchweave::clock) of one process, or of the world when there is none. A cheap copyable handle.
class sim_clock {
 public:
  explicit sim_clock(sim_timeline& time, sim_process* process = nullptr) : time_(&time), process_(process) {}
  time_point now() const noexcept { return time_->now(); }
  wall_time wall_now() const noexcept { return time_->wall_now() + (process_ ? process_->wall_offset() : duration(0)); }
  asio::awaitable<void> wait_until(time_point t) { return time_->wait_until(t, process_); }
  asio::awaitable<void> wait_for(duration d) { return time_->wait_until(later(d), process_); }

 private:
  time_point later(duration d) const {
    const duration most = duration::max() - time_->now().time_since_epoch();
    return time_->now() + std::min(d, most);
  }
  sim_timeline* time_;
  sim_process* process_;
};

static_assert(clock<sim_clock>);

}  // namespace batchweave::testing
