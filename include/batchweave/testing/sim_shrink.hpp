// Makes a failing history small: drops faults, roles and batches one after the other while it still fails.
#pragma once

#include <batchweave/testing/sim_plan.hpp>
#include <batchweave/testing/sim_plants.hpp>
#include <batchweave/testing/sim_result.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::testing {

/// Runs one history in a world of type `World` (see sim_roles.hpp).
template <class World>
sim_result run_history(const sim_plan& plan, sim_plant plant = sim_plant::none, bool traced = false) {
  World world(plan, plant, traced);
  return world.run();
}

/// Shrinks `plan`, which must fail, with at most `runs` runs. What is left breaks the same invariant.
template <class World>
class sim_shrinker {
 public:
  sim_shrinker(sim_plan plan, sim_plant plant, unsigned runs = 600) : plan_(std::move(plan)), plant_(plant), left_(runs) {
    result_ = run_history<World>(plan_, plant_);
    if (!result_.violation) return;
    invariant_ = result_.violation->substr(0, result_.violation->find(':'));
    bool better = true;
    while (better && left_ > 0) {
      better = drop_faults();
      better = drop_roles() || better;
      better = drop_batches() || better;
      better = simplify() || better;
    }
    result_ = run_history<World>(plan_, plant_, true);
  }

  const sim_plan& plan() const noexcept { return plan_; }
  /// Of the shrunk history, with its trace.
  const sim_result& result() const noexcept { return result_; }

  std::string to_string() const {
    std::string text = plan_.to_string() + "\n";
    for (const std::string& line : result_.trace) text += line + "\n";
    return text + "violated: " + result_.violation.value_or("nothing") + "\n";
  }

 private:
  bool still_fails(sim_plan candidate) {
    if (left_ == 0) return false;
    --left_;
    sim_result r = run_history<World>(candidate, plant_);
    if (!r.violation || !r.violation->starts_with(invariant_)) return false;
    plan_ = std::move(candidate);
    result_ = std::move(r);
    return true;
  }

  bool drop_faults() {
    bool any = false;
    for (std::size_t size = std::max<std::size_t>(1, result_.faults.size()); size >= 1; size /= 2) {
      for (std::size_t at = 0; at < result_.faults.size() && left_ > 0;) {
        sim_plan fewer = plan_;
        const std::size_t end = std::min(result_.faults.size(), at + size);
        for (std::size_t i = at; i < end; ++i) fewer.suppressed.insert(result_.faults[i]);
        if (still_fails(std::move(fewer))) any = true;
        else at += size;
      }
    }
    return any;
  }
  bool drop_roles() {
    bool any = false;
    for (unsigned r = 0; r < plan_.roles(); ++r) {
      sim_plan fewer = plan_;
      if (fewer.absent.insert(r).second && has_producer(fewer)) any = still_fails(std::move(fewer)) || any;
    }
    return any;
  }
  bool drop_batches() {
    bool any = false;
    for (std::size_t i = 0; i < plan_.batches.size(); ++i) {
      while (plan_.batches[i] > 1) {
        sim_plan fewer = plan_;
        --fewer.batches[i];
        if (!still_fails(std::move(fewer))) break;
        any = true;
      }
    }
    return any;
  }
  bool simplify() {
    bool any = false;
    const auto attempt = [&](auto change) {
      sim_plan simpler = plan_;
      if (change(simpler)) any = still_fails(std::move(simpler)) || any;
    };
    attempt([](sim_plan& p) { return std::exchange(p.round_robin, false); });
    attempt([](sim_plan& p) { return std::exchange(p.shares, false); });
    attempt([](sim_plan& p) { return !std::exchange(p.ordered, true); });
    attempt([](sim_plan& p) { return std::exchange(p.json, false); });
    attempt([](sim_plan& p) { return std::exchange(p.uploads_in_flight, 1) != 1; });
    return any;
  }
  static bool has_producer(const sim_plan& p) {
    for (unsigned i = 0; i < p.batches.size(); ++i) {
      if (!p.absent.contains(i)) return true;
    }
    return false;
  }

  sim_plan plan_;
  sim_plant plant_;
  unsigned left_;
  sim_result result_;
  std::string invariant_;
};

}  // namespace batchweave::testing
