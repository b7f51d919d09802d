// What every operation that waits for a store lets its user set.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/random.hpp>

#include <chrono>
#include <cstdint>
#include <utility>

namespace batchweave {

/// Base of option classes; `Self` is the class itself, so that setters chain.
template <class Self>
class patient_options {
 public:
  /// How long an operation keeps trying while the store is down or throttles, or others win every commit. Default 10 min.
  Self& give_up_after(duration d) { patience_ = d; return self(); }
  /// Default: the real one.
  Self& clock(any_clock c) { clock_ = std::move(c); return self(); }
  /// Makes identifiers, jitter and draws reproducible. Objects that may run at one time need different seeds. Default: the system's.
  Self& seed(std::uint64_t s) { random_ = random64(s); return self(); }

  duration give_up_after() const noexcept { return patience_; }
  const any_clock& clock() const noexcept { return clock_; }
  random64 random() const noexcept { return random_; }

 protected:
  patient_options() = default;
  Self& self() noexcept { return static_cast<Self&>(*this); }

 private:
  duration patience_ = std::chrono::minutes(10);
  any_clock clock_;
  random64 random_;
};

}  // namespace batchweave
