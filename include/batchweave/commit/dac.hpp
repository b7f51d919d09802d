// Decentralised adaptive commit: the interval follows what every producer can see in the manifest and in its own round trips.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/commit/policy.hpp>

#include <algorithm>

namespace batchweave::commit {

/// interval = c * (N - 1) * tau * uniform(0.75, 1.25), N the active producers, tau the smoothed round trip; N <= 1 commits at once.
/// retry = uniform(0, tau * min(8, 2^(attempt - 1))): a loser keeps its turn, and a crowd of losers spreads out.
/// Everybody reads the same N, so the interval is fair by construction. Conflicts correct only c, slowly, within [0.8, 3].
/// Source: the BatchWeave paper (arXiv 2605.09994), with the rule on shared observables only.
class dac {
 public:
  dac() = default;
  /// Factor of the interval, start value; clamped to [0.8, 3].
  dac& factor(double c) {
    c_ = std::clamp(c, min_factor, max_factor);
    return *this;
  }

  duration delay_before_commit(const backlog&) {
    jitter_ = random_.uniform(0.75, 1.25);
    if (producers_ <= 1) return duration(0);
    return scaled(c_ * (producers_ - 1) * jitter_);
  }
  duration delay_before_retry(const observation& o) {
    const unsigned doublings = std::clamp(o.attempt, 1u, 4u) - 1;
    return scaled(random_.uniform() * static_cast<double>(1u << doublings));
  }
  /// No bound on visibility brings c below its default: with more producers than the log has room for within the bound, all of them
  /// would attempt all the time and hold each other up.
  duration soonest() const {
    if (producers_ <= 1) return duration(0);
    return scaled(std::min(c_, default_factor) * (producers_ - 1) * jitter_);
  }
  void observe(const observation& o) {
    producers_ = std::max(1u, o.active_producers);
    if (!o.attempted) return;
    const auto t = static_cast<double>(o.round_trip.count());
    tau_ = tau_ == 0 ? t : tau_ + smoothing * (t - tau_);
    if (o.attempt == 1) c_ = std::clamp(c_ + (o.won ? -0.01 : 0.01), min_factor, max_factor);
  }
  void seed(std::uint64_t s) { random_ = random64(s); }

  double tau_seconds() const noexcept { return tau_ * 1e-9; }
  double factor() const noexcept { return c_; }

 private:
  static constexpr double smoothing = 0.2;
  static constexpr double min_factor = 0.8, default_factor = 1.2, max_factor = 3;
  duration scaled(double times) const { return duration(static_cast<duration::rep>(tau_ * times)); }

  random64 random_;
  double tau_ = 0;
  double c_ = default_factor;
  double jitter_ = 1;
  unsigned producers_ = 1;
};

static_assert(commit_policy<dac>);

}  // namespace batchweave::commit
