// Commits as soon as something is pending: lowest latency for one to four producers.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/commit/policy.hpp>

namespace batchweave::commit {

/// No wait before a commit; uniform(0, round trip) after a lost one.
class eager {
 public:
  eager() = default;
  duration delay_before_commit(const backlog&) { return duration(0); }
  duration delay_before_retry(const observation& o) {
    return jittered(o.round_trip, random_, 0, 1);
  }
  void observe(const observation&) {}
  void seed(std::uint64_t s) { random_ = random64(s); }

 private:
  random64 random_;
};

static_assert(commit_policy<eager>);

}  // namespace batchweave::commit
