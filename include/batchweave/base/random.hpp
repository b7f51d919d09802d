// The one source of randomness a component is given; a seed reproduces it.
#pragma once

#include <batchweave/base/clock.hpp>

#include <concepts>
#include <cstdint>
#include <random>

namespace batchweave {

/// Anything that yields 64 uniform bits a call and draws reals in [0, 1).
template <class R>
concept random_source = std::copy_constructible<R> && requires(R& r) {
  { r() } -> std::same_as<std::uint64_t>;
  { r.uniform() } -> std::same_as<double>;
};

/// SplitMix64 (Steele, Lea, Flood 2014): tiny, seedable, good enough for jitter and identifiers. One object: not thread safe.
class random64 {
 public:
  using result_type = std::uint64_t;
  /// Seeds from the operating system.
  random64() {
    std::random_device d;
    state_ = (static_cast<std::uint64_t>(d()) << 32) ^ d();
  }
  explicit random64(std::uint64_t seed) noexcept : state_(seed) {}

  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return ~std::uint64_t{0}; }
  std::uint64_t operator()() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() noexcept { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
  double uniform(double from, double to) noexcept { return from + (to - from) * uniform(); }

 private:
  std::uint64_t state_;
};

static_assert(random_source<random64>);

/// `d` times a factor drawn from [from, to).
template <random_source R>
duration jittered(duration d, R& random, double from, double to) {
  return duration(static_cast<duration::rep>(static_cast<double>(d.count()) * (from + (to - from) * random.uniform())));
}

}  // namespace batchweave
