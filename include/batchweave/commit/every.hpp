// Commits after every n batches: deterministic traces.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/commit/policy.hpp>

#include <cstddef>

namespace batchweave::commit {

/// Not before `N` batches wait (flush and close do not ask); uniform(0, round trip) after a lost attempt.
template <std::size_t N>
class every {
  static_assert(N > 0);

 public:
  every() = default;
  duration delay_before_commit(const backlog& b) { return b.batches >= N ? duration(0) : not_yet; }
  duration delay_before_retry(const observation& o) {
    return jittered(o.round_trip, random_, 0, 1);
  }
  void observe(const observation&) {}
  void seed(std::uint64_t s) { random_ = random64(s); }

 private:
  random64 random_;
};

static_assert(commit_policy<every<1>>);

}  // namespace batchweave::commit
