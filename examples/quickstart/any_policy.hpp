// A commit policy chosen by name at run time.
#pragma once

#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/commit/every.hpp>
#include <batchweave/commit/fixed_interval.hpp>
#include <batchweave/commit/policy.hpp>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace quickstart {

namespace bw = batchweave;

class any_policy {
 public:
  /// dac | eager | fixed (every 200 ms) | every (4 batches). Throws std::invalid_argument.
  explicit any_policy(const std::string& name) : held_(make(name)) {}

  bw::duration delay_before_commit(const bw::commit::backlog& b) {
    return std::visit([&](auto& p) { return p.delay_before_commit(b); }, held_);
  }
  bw::duration delay_before_retry(const bw::commit::observation& o) {
    return std::visit([&](auto& p) { return p.delay_before_retry(o); }, held_);
  }
  void observe(const bw::commit::observation& o) {
    std::visit([&](auto& p) { p.observe(o); }, held_);
  }
  void seed(std::uint64_t s) {
    std::visit([&](auto& p) { p.seed(s); }, held_);
  }

 private:
  using choice = std::variant<bw::commit::dac, bw::commit::eager, bw::commit::fixed_interval, bw::commit::every<4>>;
  static choice make(const std::string& name) {
    if (name == "dac") return bw::commit::dac();
    if (name == "eager") return bw::commit::eager();
    if (name == "fixed") return bw::commit::fixed_interval(std::chrono::milliseconds(200));
    if (name == "every") return bw::commit::every<4>();
    throw std::invalid_argument("--policy " + name + ": must be dac, eager, fixed or every");
  }
  choice held_;
};
static_assert(bw::commit::commit_policy<any_policy>);

}  // namespace quickstart
