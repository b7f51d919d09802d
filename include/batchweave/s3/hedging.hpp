// When a read that has not been answered deserves a second request, and how many of those there may be. Pure.
#pragma once

#include <batchweave/base/clock.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

namespace batchweave::s3 {

/// Learns how long answers take to begin and says after which time a read belongs to the slow tail. Hedges are bounded to a share of the
/// reads. One object: not thread safe. Source: Dean and Barroso, "The Tail at Scale", 2013.
class hedging {
 public:
  /// `share`: most hedges per read, such as 0.05.
  explicit hedging(double share = 0.05) : share_(share) {}

  /// A read was answered after `taken`.
  void answered(duration taken) {
    times_[next_ % times_.size()] = taken;
    ++next_;
    if (next_ % 16 == 0 || next_ == enough) estimate();
    left_ = std::min(most, left_ + share_);
  }
  /// How long to wait for an answer before a second request; nullopt while too little is known.
  std::optional<duration> patience() const noexcept { return patience_; }
  /// Whether a hedge may be made now; takes it if so.
  bool take() noexcept {
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

 private:
  static constexpr std::size_t enough = 32;
  static constexpr double most = 4;
  void estimate() {
    const std::size_t n = std::min(next_, times_.size());
    if (n < enough) return;
    std::array<duration, 128> sorted = times_;
    const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(n * 95 / 100);
    std::nth_element(sorted.begin(), at, sorted.begin() + static_cast<std::ptrdiff_t>(n));
    // A little above the tail: a hedge for what comes in a moment anyway only costs.
    patience_ = std::max<duration>(*at + *at / 4, std::chrono::milliseconds(1));
  }
  double share_, left_ = 1;
  std::array<duration, 128> times_{};
  std::size_t next_ = 0;
  std::optional<duration> patience_;
};

}  // namespace batchweave::s3
