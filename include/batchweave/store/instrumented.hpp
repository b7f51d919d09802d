// A decorator that counts and times the operations of a store, verb by verb.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/metrics.hpp>
#include <batchweave/store/store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave {

/// Counters of one verb; they only grow. Thread safe.
class verb_counters {
 public:
  std::uint64_t requests() const noexcept { return requests_.load(std::memory_order_relaxed); }
  /// Operations that ended in a failure or an exception. Absence and a broken condition are no failures.
  std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }
  /// Object bytes delivered by get, or taken by applied puts.
  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  void started() noexcept {
    requests_.fetch_add(1, std::memory_order_relaxed);
    failures_.fetch_add(1, std::memory_order_relaxed);  // until it is known to have worked
  }
  void worked(std::uint64_t bytes) noexcept {
    failures_.fetch_sub(1, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> requests_{0}, failures_{0}, bytes_{0};
};

class store_counters {
 public:
  verb_counters get, put, head, list, remove;
};

/// Forwards everything and counts; tells `metrics` too, with times by `clock`. Operations under way count as failures until they end. Copies share store and counters.
template <object_store S>
class instrumented_store {
 public:
  explicit instrumented_store(S inner, any_metrics metrics = any_metrics(), any_clock clock = any_clock())
      : inner_(std::move(inner)), state_(std::make_shared<state>(std::move(metrics), std::move(clock))) {}

  const store_counters& counters() const noexcept { return state_->counters; }

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return get_in(inner_, state_, std::move(key), range, std::move(into));
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return put_in(inner_, state_, std::move(key), std::move(body), std::move(condition));
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) { return head_in(inner_, state_, std::move(key)); }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return list_in(inner_, state_, std::move(prefix), std::move(after), max);
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) {
    return remove_in(inner_, state_, std::move(keys));
  }
  store_capabilities capabilities() const { return inner_.capabilities(); }
  std::string name() const { return inner_.name(); }

 private:
  struct state {
    state(any_metrics m, any_clock c) : metrics(std::move(m)), clock(std::move(c)) {}
    store_counters counters;
    any_metrics metrics;
    any_clock clock;
  };
  using state_ptr = std::shared_ptr<state>;

  // One operation from start to end, whichever way it ends.
  class running {
   public:
    running(state& s, verb_counters& c, std::string_view verb) : state_(s), counters_(c), verb_(verb) {
      counters_.started();
      if (state_.metrics) begun_ = state_.clock.now();
    }
    running(const running&) = delete;
    running& operator=(const running&) = delete;
    ~running() {
      const any_metrics& sink = state_.metrics;
      if (!sink) return;
      sink.record(metrics::store_requests, verb_);
      if (!worked_) sink.record(metrics::store_failures, verb_);
      if (bytes_) sink.record(metrics::store_bytes, verb_, static_cast<double>(bytes_));
      sink.record(metrics::store_seconds, verb_, std::chrono::duration<double>(state_.clock.now() - begun_).count());
    }
    void worked(std::uint64_t bytes) {
      worked_ = true;
      bytes_ = bytes;
      counters_.worked(bytes);
    }

   private:
    state& state_;
    verb_counters& counters_;
    std::string_view verb_;
    time_point begun_{};
    std::uint64_t bytes_ = 0;
    bool worked_ = false;
  };

  static asio::awaitable<result<read_outcome>> get_in(S s, state_ptr st, std::string key, byte_range range, mutable_buffers into) {
    running op(*st, st->counters.get, "get");
    result<read_outcome> r = co_await s.get(std::move(key), range, std::move(into));
    if (r) op.worked(r->bytes());
    co_return r;
  }
  static asio::awaitable<result<put_outcome>> put_in(S s, state_ptr st, std::string key, const_buffers body, put_condition condition) {
    running op(*st, st->counters.put, "put");
    const std::uint64_t size = total_size(body);
    result<put_outcome> r = co_await s.put(std::move(key), std::move(body), std::move(condition));
    if (r) op.worked(r->applied() ? size : 0);
    co_return r;
  }
  static asio::awaitable<result<std::optional<object_info>>> head_in(S s, state_ptr st, std::string key) {
    running op(*st, st->counters.head, "head");
    result<std::optional<object_info>> r = co_await s.head(std::move(key));
    if (r) op.worked(0);
    co_return r;
  }
  static asio::awaitable<result<list_page>> list_in(S s, state_ptr st, std::string prefix, std::string after, std::size_t max) {
    running op(*st, st->counters.list, "list");
    result<list_page> r = co_await s.list(std::move(prefix), std::move(after), max);
    if (r) op.worked(0);
    co_return r;
  }
  static asio::awaitable<result<std::vector<remove_failure>>> remove_in(S s, state_ptr st, std::vector<std::string> keys) {
    running op(*st, st->counters.remove, "remove");
    result<std::vector<remove_failure>> r = co_await s.remove(std::move(keys));
    if (r) op.worked(0);
    co_return r;
  }

  S inner_;
  state_ptr state_;
};

}  // namespace batchweave
