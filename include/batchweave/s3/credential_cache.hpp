// The keys in use: fetched once for everybody, renewed before they expire, never thrown away before new ones are there.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/event.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/s3/credentials.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/strand.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace batchweave::s3 {

/// Gets credentials from wherever they come from. Called again when the last ones are about to expire or the store says that they have;
/// never twice at the same time. Must end by itself within a few seconds (a process: a minute). A failure of kind retry_later is tried again.
using credentials_provider = std::function<asio::awaitable<result<credentials>>()>;

/// Shared by the operations of a client. Copies share the keys. Thread safe.
///
/// Renewal begins at a random moment in the last third of the keys' life, at most 10 minutes and at least 5 before the end where they live long
/// enough; operations go on with the old keys meanwhile. Only when the old ones have (almost) expired do they wait.
class credential_cache {
 public:
  using keys = std::shared_ptr<const credentials>;

  /// Fetches run on a strand of `executor`. `clock`: wall time for expiry, and for the pauses between failed renewals.
  credential_cache(asio::any_io_executor executor, any_clock clock, random64 random, credentials_provider from)
      : state_(std::make_shared<state>(std::move(executor), std::move(clock), random, std::move(from))) {}
  /// Keys that never change.
  explicit credential_cache(credentials fixed) : state_(std::make_shared<state>()) { state_->current = std::make_shared<const credentials>(std::move(fixed)); }

  /// Keys that are good now; null: wait for them with get(). Starts a renewal when it is time.
  keys ready() {
    const std::shared_ptr<state>& s = state_;
    bool start = false;
    keys k;
    {
      const std::lock_guard lock(s->mutex);
      k = s->current;
      if (!s->from || !k || !k->expires()) return k;
      const wall_time now = s->clock.wall_now();
      if (now >= s->renew_at && !s->fetching && s->clock.now() >= s->not_before) start = s->fetching = true;
      if (now + last_moment >= *k->expires()) k = nullptr;
    }
    if (start) fetch(s);
    return k;
  }
  /// As ready(), but waits, until `deadline` of the real clock at most (errc::overall_timeout). Cancelling ends the wait, not the fetch.
  asio::awaitable<result<keys>> get(time_point deadline = time_point::max()) { return wait(state_, nullptr, deadline); }
  /// Others than `used`, which the store has refused as expired: forces one fetch for all who ask. The same keys again when there are no others.
  asio::awaitable<result<keys>> renew(keys used, time_point deadline = time_point::max()) { return wait(state_, std::move(used), deadline); }
  /// Whether a renewal can bring other keys.
  bool renewable() const noexcept { return static_cast<bool>(state_->from); }
  /// Fetches begun so far, for tests and metrics.
  std::uint64_t fetches() const {
    const std::lock_guard lock(state_->mutex);
    return state_->fetches;
  }

 private:
  // A request that is sent with keys that expire while it travels is refused.
  static constexpr std::chrono::seconds last_moment{5};

  struct state {
    state() : random(0) {}
    state(asio::any_io_executor e, any_clock c, random64 r, credentials_provider f)
        : executor(std::move(e)), clock(std::move(c)), random(r), from(std::move(f)) {}
    asio::any_io_executor executor;
    any_clock clock;
    std::mutex mutex;
    random64 random;
    credentials_provider from;
    keys current;
    std::optional<failure> problem;  // of the last fetch
    wall_time renew_at{};
    time_point not_before{};
    unsigned failures = 0;
    bool fetching = false;
    std::uint64_t fetches = 0;
    async_event changed;
  };

  static asio::awaitable<result<keys>> wait(std::shared_ptr<state> s, keys used, time_point deadline) {
    std::uint64_t mine = 0;  // the fetch whose failure is ours to report
    any_clock real;
    for (;;) {
      const async_event::ticket seen = s->changed.observe();
      bool start = false;
      {
        const std::lock_guard lock(s->mutex);
        const bool fresh = s->current && (!s->current->expires() || s->clock.wall_now() + last_moment < *s->current->expires());
        if (!s->from || (fresh && s->current != used)) co_return s->current;
        if (!s->fetching) {
          if (mine != 0 && s->fetches >= mine && s->problem) co_return *s->problem;
          if (mine != 0 && s->fetches >= mine && s->current) {
            // The newest keys there are, although they are said to be expired: the store decides.
            co_return s->current;
          }
          start = s->fetching = true;
        }
        if (mine == 0) mine = start ? s->fetches + 1 : s->fetches;
      }
      if (start) fetch(s);
      if (deadline == time_point::max()) {
        co_await s->changed.wait(seen);
        continue;
      }
      if (real.now() >= deadline) {
        co_return failure(errc::overall_timeout, "no credentials came in time").with_fate(fate::did_not_happen);
      }
      co_await s->changed.wait_until(seen, real, deadline);
    }
  }

  static asio::awaitable<void> fetch_now(std::shared_ptr<state> s, std::shared_ptr<result<credentials>> into) {
    *into = co_await s->from();
  }

  /// Runs the provider in a scope of its own: whoever asked for the keys may be cancelled meanwhile.
  static void fetch(const std::shared_ptr<state>& s) {
    {
      const std::lock_guard lock(s->mutex);
      ++s->fetches;
    }
    auto got = std::make_shared<result<credentials>>(failure(errc::credentials_missing, "the provider of credentials gave none"));
    asio::co_spawn(asio::make_strand(s->executor), fetch_now(s, got), [s, got](std::exception_ptr thrown) {
      if (thrown) *got = failure(errc::credentials_missing, "the provider of credentials threw" + text_of(thrown)).with_fate(fate::did_not_happen);
      {
        const std::lock_guard lock(s->mutex);
        s->fetching = false;
        if (*got) {
          s->failures = 0;
          s->problem.reset();
          take(*s, std::move(**got));
        } else {
          s->problem = got->error();
          ++s->failures;
          const auto pause = std::chrono::milliseconds(std::min<std::uint64_t>(30'000, std::uint64_t{500} << std::min(s->failures, 6u)));
          s->not_before = s->clock.now() + jittered(pause, s->random, 0.5, 1);
        }
      }
      s->changed.notify();
    });
  }

  static void take(state& s, credentials c) {
    if (s.current && s.current->same_keys(c) && s.current->expires() == c.expires()) return;
    if (c.expires()) {
      const duration life = *c.expires() - s.clock.wall_now();
      const duration ahead = std::min<duration>(std::chrono::minutes(10), life / 3);
      s.renew_at = *c.expires() - jittered(ahead, s.random, 0.5, 1);
    }
    s.current = std::make_shared<const credentials>(std::move(c));
  }

  static std::string text_of(const std::exception_ptr& e) {
    try {
      std::rethrow_exception(e);
    } catch (const std::exception& x) {
      return std::string(": ") + x.what();
    } catch (...) {
      return std::string();
    }
  }

  std::shared_ptr<state> state_;
};

}  // namespace batchweave::s3
