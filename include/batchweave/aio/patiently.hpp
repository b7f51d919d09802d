// Repeats an idempotent operation while its failure is one that passes by itself.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/base/retry.hpp>

#include <string>
#include <utility>

namespace batchweave {

/// Awaits `attempt()` (an awaitable<result<T>>, idempotent) until it succeeds, fails for a reason that waiting does not cure, or
/// `limit` has passed since the start; waits with full jitter in between. Cancelling ends the wait or the attempt.
/// `told` is called with each failure that is waited for, and with null once an attempt has succeeded after one.
template <class Attempt, class Told>
auto patiently(any_clock clock, random64& random, duration limit, Attempt& attempt, Told told) -> decltype(attempt()) {
  retry_policy pause;
  pause.base(std::chrono::milliseconds(50)).cap(std::chrono::seconds(5));
  const time_point give_up = clock.now() + limit;
  for (unsigned n = 1;; ++n) {
    auto outcome = co_await attempt();
    if (outcome || kind_of(outcome.error().code()) != error_kind::retry_later) {
      if (n > 1) told(static_cast<const failure*>(nullptr));
      co_return outcome;
    }
    const failure why = outcome.error();
    told(&why);
    const duration wait = pause.delay(n, random);
    if (clock.now() + wait > give_up) {
      co_return in_context(outcome.error(), "gave up after " + std::to_string(n) + " attempts");
    }
    co_await clock.wait_for(wait);
  }
}

template <class Attempt>
auto patiently(any_clock clock, random64& random, duration limit, Attempt& attempt) -> decltype(attempt()) {
  return patiently(std::move(clock), random, limit, attempt, [](const failure*) {});
}

}  // namespace batchweave
