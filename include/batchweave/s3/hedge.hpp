// A second request for a read whose answer is slow to begin: whichever is answered first delivers the bytes, the other is cancelled.
#pragma once

#include <batchweave/aio/task_group.hpp>
#include <batchweave/s3/attempt.hpp>

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace batchweave::s3::detail {

/// Two attempts of one read. Only the one that was answered first ever touches the caller's memory.
struct hedged_read {
  explicit hedged_read(const operation& op) : side{op, op} {}
  std::array<operation, 2> side;
  std::array<attempt, 2> how;
  std::array<optional_failure, 2> out;
  std::array<bool, 2> running{}, done{};
  std::optional<std::size_t> winner;
  std::optional<time_point> sent;
  async_event changed;
};

inline asio::awaitable<void> run_side(std::shared_ptr<client_state> s, std::shared_ptr<hedged_read> r, std::size_t i) {
  hedged_read* const both = r.get();
  time_point sent{};
  client_state* const shared = s.get();
  both->how[i].on_sending = [both, &sent] {
    sent = real_clock().now();
    if (!both->sent) {
      both->sent = sent;
      both->changed.notify();
    }
  };
  both->how[i].on_answer = [both, i, &sent, shared](int status) {
    if (both->winner) return false;
    // A store that is overloaded answers "no" sooner than the other one answers "yes".
    if (status >= 500 || status == 429) return true;
    {
      const std::lock_guard lock(shared->mutex);
      shared->tail.answered(real_clock().now() - sent);
    }
    both->winner = i;
    both->changed.notify();
    return true;
  };
  struct finally {
    hedged_read& r;
    std::size_t i;
    ~finally() {
      r.how[i].on_sending = nullptr;
      r.how[i].on_answer = nullptr;
      r.done[i] = true;
      r.changed.notify();
    }
  } const at_end{*both, i};
  both->out[i] = failure(errc::cancelled, "another request was answered first");
  both->out[i] = co_await send_once(s, both->side[i], both->how[i]);
}

inline asio::awaitable<void> watch_both(std::shared_ptr<client_state> s, std::shared_ptr<hedged_read> r, task_group first, task_group second) {
  std::optional<duration> patience;
  {
    const std::lock_guard lock(s->mutex);
    patience = s->tail.patience();
  }
  any_clock clock;
  for (;;) {
    const async_event::ticket seen = r->changed.observe();
    if (r->winner && r->done[*r->winner]) co_return;
    if (r->done[0] && (!r->running[1] || r->done[1])) co_return;
    if (r->winner) (*r->winner == 0 ? second : first).cancel();
    if (r->winner || r->done[0] || r->running[1] || !patience || !r->sent) {
      co_await r->changed.wait(seen);
      continue;
    }
    const time_point due = *r->sent + *patience;
    if (clock.now() < due) {
      co_await r->changed.wait_until(seen, clock, due);
      continue;
    }
    patience.reset();  // one chance
    bool go = s->connections.has_room();
    if (go) {
      const std::lock_guard lock(s->mutex);
      go = s->tail.take();
    }
    if (!go) continue;
    s->hedges.fetch_add(1);
    r->running[1] = true;
    second.spawn(run_side(s, r, 1));
  }
}

/// As send_once(), with a second request when the first belongs to the slow tail.
inline asio::awaitable<optional_failure> send_hedged(std::shared_ptr<client_state> s, operation& op, attempt& how) {
  auto r = std::make_shared<hedged_read>(op);
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  task_group first(executor), second(executor);
  r->running[0] = true;
  first.spawn(run_side(s, r, 0));
  std::exception_ptr thrown;
  try {
    co_await watch_both(s, r, first, second);
  } catch (...) {
    thrown = std::current_exception();
  }
  // The memory belongs to the caller: no request may still be at work when this returns.
  first.cancel();
  second.cancel();
  co_await join_whatever_happens(first, thrown);
  co_await join_whatever_happens(second, thrown);
  if (thrown) std::rethrow_exception(thrown);
  const std::size_t i = r->winner ? *r->winner : r->done[0] ? 0 : 1;
  if (r->winner == std::size_t{1}) s->hedges_won.fetch_add(1);
  op = std::move(r->side[i]);
  how.started = r->how[i].started;
  how.stale = r->how[i].stale;
  co_return std::move(r->out[i]);
}

}  // namespace batchweave::s3::detail
