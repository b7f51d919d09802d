// Cooperative commit: all producers share one clock of attempts, and each attempt publishes what everybody announced.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/commit/policy.hpp>

#include <algorithm>

namespace batchweave::commit {

/// Whoever won the last commit goes on: after a pause it lists the inbox and publishes what everybody announced, again and again, one
/// attempt in `tau / share`, tau its smoothed round trip. So a TGB waits for the next attempt of anybody and not for one of its own
/// producer, and visibility does not grow with the number of producers N. The pause leaves room for whoever else writes to the log.
/// Everybody else is a spare: interval = N * tau / 0.1 * uniform(0.5, 1.5), so all spares together make an attempt in ten round trips.
/// Sooner or later one of them wins and goes on in the other's place; when the winner dies, one follows within about ten round trips.
/// retry = uniform(0, tau): a loser reads the tail again, mostly finds its TGBs published and goes back to work.
/// N <= 1 commits at once. While the inbox stays empty the pause doubles, up to 32 times.
/// N and tau are observed, no producer talks to another, and any of them may die at any point.
/// Costs one small PUT for each TGB more than dac (its announcement), and saves most tail reads.
class cooperative {
 public:
  /// Producers with this policy announce what they uploaded and carry what others announced.
  static constexpr bool carries_others = true;
  static constexpr double spare_share = 0.1;

  cooperative() = default;
  /// Attempts for each round trip of all producers together; clamped to [0.35, 1]. Default 0.7.
  cooperative& share(double s) {
    share_ = std::clamp(s, 0.35, 1.0);
    return *this;
  }

  duration delay_before_commit(const backlog&) {
    if (producers_ <= 1) return duration(0);
    if (leading_) return scaled((1 / share_ - 1) * static_cast<double>(1u << idle_) * random_.uniform(0.9, 1.1));
    return scaled(producers_ / spare_share * random_.uniform(0.5, 1.5));
  }
  duration delay_before_retry(const observation&) { return scaled(random_.uniform()); }
  void observe(const observation& o) {
    producers_ = std::max(1u, o.active_producers);
    if (!o.attempted) {
      if (idle_ < 5) ++idle_;
      return;
    }
    idle_ = 0;
    leading_ = o.won;
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
  double share_ = 0.7;
  unsigned producers_ = 1;
  unsigned idle_ = 0;
  bool leading_ = false;
};

static_assert(commit_policy<cooperative> && is_cooperative_v<cooperative>);

}  // namespace batchweave::commit
