// Cooperative commit: all producers share one clock of attempts, and each attempt publishes what everybody announced.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/commit/policy.hpp>

#include <algorithm>

namespace batchweave::commit {

/// interval = N * tau / share * uniform(0.5, 1.5), so that all N active producers together make about `share` attempts for each round trip
/// tau, whatever N; N <= 1 commits at once. Whoever's turn it is publishes every announced TGB, so a TGB waits for the next attempt of
/// anybody and not for one of its own producer: visibility does not grow with N.
/// retry = uniform(0, tau): a loser reads the tail again, mostly finds its TGBs published and goes back to work.
/// tau is the smoothed round trip; N and tau are observed, no producer talks to another, and any of them may die at any point.
/// Costs one small PUT for each TGB (its announcement) and one LIST for each attempt more than dac.
class cooperative {
 public:
  /// Producers with this policy announce what they uploaded and carry what others announced.
  static constexpr bool carries_others = true;
  static constexpr double min_share = 0.35, max_share = 0.7;

  cooperative() = default;
  /// Attempts for each round trip of all producers together; clamped to [0.35, 0.7]. Default 0.7: lowest latency.
  cooperative& share(double s) {
    share_ = std::clamp(s, min_share, max_share);
    return *this;
  }

  duration delay_before_commit(const backlog&) {
    if (producers_ <= 1) return duration(0);
    return scaled(producers_ / share_ * random_.uniform(0.5, 1.5));
  }
  duration delay_before_retry(const observation&) { return scaled(random_.uniform()); }
  void observe(const observation& o) {
    producers_ = std::max(1u, o.active_producers);
    if (!o.attempted) return;
    const auto t = static_cast<double>(o.round_trip.count());
    tau_ = tau_ == 0 ? t : tau_ + smoothing * (t - tau_);
  }
  void seed(std::uint64_t s) { random_ = random64(s); }

  double tau_seconds() const noexcept { return tau_ * 1e-9; }
  double share() const noexcept { return share_; }

 private:
  static constexpr double smoothing = 0.2;
  duration scaled(double times) const { return duration(static_cast<duration::rep>(tau_ * times)); }

  random64 random_;
  double tau_ = 0;
  double share_ = max_share;
  unsigned producers_ = 1;
};

static_assert(commit_policy<cooperative> && is_cooperative_v<cooperative>);

}  // namespace batchweave::commit
