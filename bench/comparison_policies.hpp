// Two policies that are usual elsewhere and steer each producer by its own conflicts, to compare with.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/commit/policy.hpp>

#include <algorithm>

namespace bench {

/// Commits at once; after the k-th lost attempt waits uniform(0, 2^k) round trips, at most 20 s.
class exponential_backoff {
 public:
  exponential_backoff() = default;
  batchweave::duration delay_before_commit(const batchweave::commit::backlog&) { return batchweave::duration(0); }
  batchweave::duration delay_before_retry(const batchweave::commit::observation& o) {
    const double most = std::min(20e9, static_cast<double>(o.round_trip.count()) * static_cast<double>(1u << std::min(o.attempt, 20u)));
    return batchweave::duration(static_cast<batchweave::duration::rep>(most * random_.uniform()));
  }
  void observe(const batchweave::commit::observation&) {}
  void seed(std::uint64_t s) { random_ = batchweave::random64(s); }

 private:
  batchweave::random64 random_;
};

/// The interval doubles with every lost attempt and shrinks by half a round trip with every won one; between a round trip and 30 s.
class aimd {
 public:
  aimd() = default;
  batchweave::duration delay_before_commit(const batchweave::commit::backlog&) {
    return batchweave::duration(static_cast<batchweave::duration::rep>(interval_ * random_.uniform(0.5, 1.5)));
  }
  batchweave::duration delay_before_retry(const batchweave::commit::observation&) {
    return batchweave::duration(static_cast<batchweave::duration::rep>(interval_ * random_.uniform()));
  }
  void observe(const batchweave::commit::observation& o) {
    if (!o.attempted) return;
    const auto t = static_cast<double>(o.round_trip.count());
    interval_ = o.won ? std::max(0.0, interval_ - t / 2) : std::clamp(interval_ * 2, t, 30e9);
  }
  void seed(std::uint64_t s) { random_ = batchweave::random64(s); }

 private:
  batchweave::random64 random_;
  double interval_ = 0;
};

static_assert(batchweave::commit::commit_policy<exponential_backoff> && batchweave::commit::commit_policy<aimd>);

}  // namespace bench
