// A decorator that counts requests, bytes and failures of a store, verb by verb.
#pragma once

#include <batchweave/store/store.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
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

/// Forwards everything and counts. Operations under way count as failures until they end. Copies share store and counters.
template <object_store S>
class instrumented_store {
 public:
  explicit instrumented_store(S inner) : inner_(std::move(inner)), counters_(std::make_shared<store_counters>()) {}

  const store_counters& counters() const noexcept { return *counters_; }

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return get_in(inner_, counters_, std::move(key), range, std::move(into));
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return put_in(inner_, counters_, std::move(key), std::move(body), std::move(condition));
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) { return head_in(inner_, counters_, std::move(key)); }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return list_in(inner_, counters_, std::move(prefix), std::move(after), max);
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) {
    return remove_in(inner_, counters_, std::move(keys));
  }
  store_capabilities capabilities() const { return inner_.capabilities(); }
  std::string name() const { return inner_.name(); }

 private:
  using counters_ptr = std::shared_ptr<store_counters>;

  static asio::awaitable<result<read_outcome>> get_in(S s, counters_ptr c, std::string key, byte_range range, mutable_buffers into) {
    c->get.started();
    result<read_outcome> r = co_await s.get(std::move(key), range, std::move(into));
    if (r) c->get.worked(r->bytes());
    co_return r;
  }
  static asio::awaitable<result<put_outcome>> put_in(S s, counters_ptr c, std::string key, const_buffers body, put_condition condition) {
    c->put.started();
    const std::uint64_t size = total_size(body);
    result<put_outcome> r = co_await s.put(std::move(key), std::move(body), std::move(condition));
    if (r) c->put.worked(r->applied() ? size : 0);
    co_return r;
  }
  static asio::awaitable<result<std::optional<object_info>>> head_in(S s, counters_ptr c, std::string key) {
    c->head.started();
    result<std::optional<object_info>> r = co_await s.head(std::move(key));
    if (r) c->head.worked(0);
    co_return r;
  }
  static asio::awaitable<result<list_page>> list_in(S s, counters_ptr c, std::string prefix, std::string after, std::size_t max) {
    c->list.started();
    result<list_page> r = co_await s.list(std::move(prefix), std::move(after), max);
    if (r) c->list.worked(0);
    co_return r;
  }
  static asio::awaitable<result<std::vector<remove_failure>>> remove_in(S s, counters_ptr c, std::vector<std::string> keys) {
    c->remove.started();
    result<std::vector<remove_failure>> r = co_await s.remove(std::move(keys));
    if (r) c->remove.worked(0);
    co_return r;
  }

  S inner_;
  counters_ptr counters_;
};

}  // namespace batchweave
