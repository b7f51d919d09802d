// Commits every T, whatever the load.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/commit/policy.hpp>

#include <algorithm>

namespace batchweave::commit {

/// Waits until the oldest pending batch is `interval` old; after a lost attempt uniform(0, interval / 4), at most 8 round trips.
class fixed_interval {
 public:
  explicit fixed_interval(duration interval) : interval_(interval) {}
  duration delay_before_commit(const backlog& b) { return std::max(duration(0), interval_ - b.oldest_age); }
  duration delay_before_retry(const observation& o) {
    const auto most = static_cast<double>(std::min(interval_ / 4, o.round_trip * 8).count());
    return duration(static_cast<duration::rep>(most * random_.uniform()));
  }
  void observe(const observation&) {}
  void seed(std::uint64_t s) { random_ = random64(s); }

 private:
  duration interval_;
  random64 random_;
};

static_assert(commit_policy<fixed_interval>);

}  // namespace batchweave::commit
