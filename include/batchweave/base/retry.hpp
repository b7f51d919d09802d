// How often and how long to retry: a pure function of the attempt and a random draw.
#pragma once

#include <batchweave/base/clock.hpp>
#include <batchweave/base/random.hpp>

#include <algorithm>

namespace batchweave {

/// Capped exponential back-off with full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter").
class retry_policy {
 public:
  retry_policy() noexcept = default;
  /// Attempts in all, first one included; >= 1.
  retry_policy& attempts(unsigned n) { attempts_ = std::max(1u, n); return *this; }
  retry_policy& base(duration d) { base_ = d; return *this; }
  retry_policy& cap(duration d) { cap_ = d; return *this; }
  /// Wall limit over all attempts of one operation.
  retry_policy& total(duration d) { total_ = d; return *this; }

  unsigned attempts() const noexcept { return attempts_; }
  duration total() const noexcept { return total_; }
  duration cap() const noexcept { return cap_; }

  /// Wait after failed attempt `attempt` (1-based): uniform in [base/2, min(cap, base * 2^attempt)].
  template <random_source R>
  duration delay(unsigned attempt, R& random) const {
    const double top = std::min<double>(static_cast<double>(cap_.count()),
                                        static_cast<double>(base_.count()) * static_cast<double>(1ull << std::min(attempt, 30u)));
    const double low = static_cast<double>(base_.count()) / 2;
    return duration(static_cast<duration::rep>(low + (std::max(top, low) - low) * random.uniform()));
  }

 private:
  unsigned attempts_ = 8;
  duration base_ = std::chrono::milliseconds(100);
  duration cap_ = std::chrono::seconds(10);
  duration total_ = std::chrono::minutes(2);
};

}  // namespace batchweave
