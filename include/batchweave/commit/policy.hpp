// The commit policy concept: when to attempt a commit, how long to wait after losing one.
#pragma once

#include <batchweave/base/clock.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace batchweave::commit {

/// What one finished attempt, or a look at the tail, taught us.
class observation {
 public:
  observation() noexcept {}
  bool attempted = true;          ///< false: only the tail was read, and it left nothing to do; only the last three members say something
  bool won = false;               ///< 200, or 412 resolved as our own
  duration round_trip{0};         ///< tail read + conditional PUT, this attempt
  unsigned attempt = 1;           ///< 1 for the first try of a commit
  std::uint64_t versions_passed = 0;  ///< versions that others added since our last look
  unsigned active_producers = 1;  ///< distinct producers that committed in the recent window, ourselves included
  std::size_t manifest_bytes = 0; ///< size of the newest version
};

/// What waits to be committed.
class backlog {
 public:
  backlog() noexcept {}
  std::size_t batches = 0;
  std::uint64_t bytes = 0;
  duration oldest_age{0};
};

/// "Not now": ask again when the backlog has changed.
inline constexpr duration not_yet = duration::max();

/// A pure function of what it is told and of its own randomness; it never touches the store. One object serves one producer.
/// - delay_before_commit(b): from now until the attempt; asked once a commit (and again on a changed backlog after `not_yet`).
/// - delay_before_retry(o): after a lost attempt.
/// - observe(o): told of every finished attempt, before delay_before_retry, and of looks at the tail that came to nothing.
/// - seed(s): reseeds its randomness, so that a run can be reproduced.
template <class P>
concept commit_policy = std::copy_constructible<P> && requires(P& p, const observation& o, const backlog& b, std::uint64_t s) {
  { p.delay_before_commit(b) } -> std::same_as<duration>;
  { p.delay_before_retry(o) } -> std::same_as<duration>;
  p.observe(o);
  p.seed(s);
};

/// Whether producers with policy `P` announce their uploaded TGBs and publish what others announced: such a policy has
/// `static constexpr bool carries_others = true`.
template <class P>
inline constexpr bool is_cooperative_v = [] {
  if constexpr (requires { { P::carries_others } -> std::convertible_to<bool>; }) return bool{P::carries_others};
  else return false;
}();

/// No attempt before this from now, even when a batch has waited for its bound (producer_options::max_visibility_delay): what the log can
/// take bounds every promise. A policy may have `duration soonest() const`; without it the bound always holds.
template <class P>
duration soonest_attempt(const P& policy) {
  if constexpr (requires { { policy.soonest() } -> std::same_as<duration>; }) return policy.soonest();
  else return duration(0);
}

}  // namespace batchweave::commit
