// Every commit policy behind one type, so that a simulated history may mix them.
#pragma once

#include <batchweave/commit/cooperative.hpp>
#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/commit/every.hpp>
#include <batchweave/commit/fixed_interval.hpp>
#include <batchweave/commit/policy.hpp>

#include <cstdint>
#include <variant>

namespace batchweave::testing {

/// `Shares`: announces and carries, like the cooperative policy.
template <bool Shares>
class sim_policy {
 public:
  static constexpr bool carries_others = Shares;
  static constexpr unsigned kinds = 6;
  explicit sim_policy(unsigned kind) : held_(make(kind)) {}

  duration delay_before_commit(const commit::backlog& b) {
    return std::visit([&](auto& p) { return p.delay_before_commit(b); }, held_);
  }
  duration delay_before_retry(const commit::observation& o) {
    return std::visit([&](auto& p) { return p.delay_before_retry(o); }, held_);
  }
  void observe(const commit::observation& o) {
    std::visit([&](auto& p) { p.observe(o); }, held_);
  }
  void seed(std::uint64_t s) {
    std::visit([&](auto& p) { p.seed(s); }, held_);
  }

 private:
  using any = std::variant<commit::dac, commit::eager, commit::every<1>, commit::every<3>, commit::fixed_interval, commit::cooperative>;
  static any make(unsigned kind) {
    switch (kind % kinds) {
      case 1: return commit::eager();
      case 2: return commit::every<1>();
      case 3: return commit::every<3>();
      case 4: return commit::fixed_interval(std::chrono::milliseconds(200));
      case 5: return commit::cooperative();
      default: return commit::dac();
    }
  }
  any held_;
};

static_assert(commit::commit_policy<sim_policy<true>> && commit::is_cooperative_v<sim_policy<true>>);

}  // namespace batchweave::testing
