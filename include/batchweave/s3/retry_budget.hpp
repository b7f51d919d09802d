// How many retries a client may spend: one budget for all its requests, so that an outage is not answered with a storm. Pure.
#pragma once

#include <batchweave/base/clock.hpp>

#include <algorithm>

namespace batchweave::s3 {

/// A bucket of retries: each retry takes one, each success gives a part of one back, and time gives a few, so that a client that only ever
/// sees failures still tries now and then. First attempts are free. One object: not thread safe.
/// Source: the AWS SDKs' standard retry mode (retry quota), Finagle's RetryBudget (minimum retries per second).
class retry_budget {
 public:
  /// `capacity`: retries that can be saved up; it starts full. Zero: no limit.
  explicit retry_budget(double capacity = 200, double per_success = 0.2, double per_second = 2)
      : capacity_(capacity), per_success_(per_success), per_second_(per_second), left_(capacity) {}

  /// Whether one more retry may be made now; takes it if so.
  bool take(time_point now) noexcept {
    if (capacity_ <= 0) return true;
    if (started_ && now > last_) {
      left_ = std::min(capacity_, left_ + per_second_ * std::chrono::duration<double>(now - last_).count());
    }
    started_ = true;
    last_ = std::max(last_, now);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  void success() noexcept { left_ = std::min(capacity_, left_ + per_success_); }
  double left() const noexcept { return left_; }

 private:
  double capacity_, per_success_, per_second_, left_;
  bool started_ = false;
  time_point last_{};
};

}  // namespace batchweave::s3
