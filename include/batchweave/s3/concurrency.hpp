// How many requests may be in flight: fewer when the store asks to slow down, slowly more again when it does not. Pure.
#pragma once

#include <batchweave/base/clock.hpp>

#include <algorithm>
#include <cstddef>

namespace batchweave::s3 {

/// Additive increase, multiplicative decrease (Chiu and Jain 1989, as in TCP). Answers that belong to one burst count once: after a
/// decrease nothing decreases further for `rest`. One object: not thread safe.
class concurrency_limit {
 public:
  /// `least`: a request that is slow to end must not hold up everything else, such as a commit.
  explicit concurrency_limit(std::size_t most, std::size_t least = 4, duration rest = std::chrono::milliseconds(500))
      : most_(static_cast<double>(std::max<std::size_t>(1, most))), least_(std::clamp(static_cast<double>(least), 1.0, most_)), now_(most_), rest_(rest) {}

  std::size_t value() const noexcept { return static_cast<std::size_t>(now_); }
  bool at_most() const noexcept { return now_ >= most_; }
  /// A request came through: one more a window's worth of them. True: the value changed.
  bool success() noexcept {
    const std::size_t before = value();
    now_ = std::min(most_, now_ + 1.0 / now_);
    return value() != before;
  }
  /// The store asked to slow down while `in_flight` requests were on their way. True: the value changed.
  bool throttled(time_point at, std::size_t in_flight) noexcept {
    if (decreased_ && at < last_ + rest_) return false;
    decreased_ = true;
    last_ = at;
    const std::size_t before = value();
    now_ = std::max(least_, std::min(now_, static_cast<double>(std::max<std::size_t>(1, in_flight))) * 0.7);
    return value() != before;
  }

 private:
  double most_, least_, now_;
  duration rest_;
  bool decreased_ = false;
  time_point last_{};
};

}  // namespace batchweave::s3
