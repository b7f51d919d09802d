// The conditional PUT of one version, repeated until the store has decided.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/base/retry.hpp>
#include <batchweave/commit/rules.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/store/store.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace batchweave::commit {

/// What became of the PUT of a version.
class version_put {
 public:
  version_put() {}
  bool applied = false;            ///< the store said 200
  bool ambiguous = false;          ///< an earlier try of the same bytes may have been applied: when not `applied`, read and compare
  unsigned attempts = 0;           ///< requests made
  std::optional<failure> failed;   ///< neither yes nor no within the limit, or the store refuses
};

/// Writes `encoded` under the key of version `number` if nothing is there, repeating the same bytes to the same key, with jittered waits,
/// until the store has said yes or no or `limit` has passed. Never plan anew while a version is undecided (CW-05).
/// `who` is for messages. `encoded` must stay valid. Errors: undecided when an earlier try may have happened, else those of the store.
/// Cancellation: the outcome is unknown.
/// `told` hears of each failure that is waited for, and null after it has passed.
template <class Rules = rules, object_store S, class Told>
asio::awaitable<version_put> put_version(S store, any_clock clock, random64& random, std::uint64_t number, const_bytes encoded,
                                         duration limit, std::string who, Told told) {
  version_put out;
  retry_policy pause;
  pause.base(std::chrono::milliseconds(50)).cap(std::chrono::seconds(5));
  const time_point give_up = clock.now() + limit;
  const put_condition condition = Rules::version_condition();
  const std::string key = manifest::log_key(number);
  for (;;) {
    ++out.attempts;
    const const_buffers body{encoded};
    result<put_outcome> put = co_await store.put(key, body, condition);
    if (put) {
      if (out.attempts > 1) told(static_cast<const failure*>(nullptr));
      out.applied = put->applied();
      co_return out;
    }
    const failure why = put.error();
    if (why.fate() == fate::unknown) out.ambiguous = true;
    const duration wait = pause.delay(out.attempts, random);
    if (Rules::hopeless(why) || clock.now() + wait > give_up) {
      failure f = in_context(why, "committing version " + std::to_string(number) + " at " + key + " for " + who + " after " +
                                      std::to_string(out.attempts) + " attempts");
      if (out.ambiguous) f = failure(errc::undecided, f.what() + "; the commit may yet take effect, re-open to find out");
      out.failed = std::move(f);
      co_return out;
    }
    told(&why);
    co_await clock.wait_for(wait);
  }
}

template <class Rules = rules, object_store S>
asio::awaitable<version_put> put_version(S store, any_clock clock, random64& random, std::uint64_t number, const_bytes encoded,
                                         duration limit, std::string who) {
  return put_version<Rules>(std::move(store), std::move(clock), random, number, encoded, limit, std::move(who), [](const failure*) {});
}

}  // namespace batchweave::commit
