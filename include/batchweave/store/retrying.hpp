// A decorator that repeats failed operations of a store which does not do so itself.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/retry.hpp>
#include <batchweave/store/store.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

/// For stores of your own: s3_store retries by itself and file_store has nothing to retry. Repeats only failures of kind retry_later.
/// Reads, removals and overwrites are idempotent and always repeated. A put under a condition is repeated with the same bytes; when an
/// earlier attempt had an unknown fate and the repetition finds the condition broken, the object may be the caller's own: compare a
/// nonce in it (see put_outcome). Each copy refers to the same store and draws its own jitter; one object is not thread safe.
template <object_store S>
class retrying_store {
 public:
  explicit retrying_store(S inner, retry_policy policy = retry_policy(), any_clock clock = any_clock(), random64 random = random64())
      : state_(std::make_shared<state>(std::move(inner), policy, std::move(clock), random)) {}

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return repeat<read_outcome>(state_, [key = std::move(key), range, into = std::move(into)](S& s) { return s.get(key, range, into); });
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return repeat<put_outcome>(state_, [key = std::move(key), body = std::move(body), condition = std::move(condition)](S& s) {
      return s.put(key, body, condition);
    });
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) {
    return repeat<std::optional<object_info>>(state_, [key = std::move(key)](S& s) { return s.head(key); });
  }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return repeat<list_page>(state_, [prefix = std::move(prefix), after = std::move(after), max](S& s) { return s.list(prefix, after, max); });
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) {
    return repeat<std::vector<remove_failure>>(state_, [keys = std::move(keys)](S& s) { return s.remove(keys); });
  }
  store_capabilities capabilities() const { return state_->inner.capabilities(); }
  std::string name() const { return state_->inner.name(); }

 private:
  struct state {
    state(S s, retry_policy p, any_clock c, random64 r) : inner(std::move(s)), policy(p), clock(std::move(c)), random(r) {}
    S inner;
    retry_policy policy;
    any_clock clock;
    random64 random;
  };

  // `attempt` is a plain function object, kept in this frame; it makes one awaitable for each attempt.
  template <class T, class Attempt>
  static asio::awaitable<result<T>> repeat(std::shared_ptr<state> s, Attempt attempt) {
    const time_point start = s->clock.now();
    bool unknown = false;
    for (unsigned n = 1;; ++n) {
      result<T> outcome = co_await attempt(s->inner);
      if (outcome) co_return outcome;
      failure why = outcome.error();
      unknown = unknown || why.fate() == fate::unknown;
      const duration wait = s->policy.delay(n, s->random);
      const bool late = s->clock.now() + wait - start > s->policy.total();
      if (why.kind() != error_kind::retry_later || n >= s->policy.attempts() || late) {
        if (unknown) why.with_fate(fate::unknown);  // one attempt that may have happened makes the whole operation so
        if (n > 1) why.in("after " + std::to_string(n) + " attempts");
        co_return why;
      }
      co_await s->clock.wait_for(wait);
    }
  }

  std::shared_ptr<state> state_;
};

}  // namespace batchweave
