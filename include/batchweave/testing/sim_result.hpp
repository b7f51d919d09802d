// What a simulated history brought: a violation or none, how often everything happened, and its trace.
#pragma once

#include <batchweave/base/clock.hpp>
#include <batchweave/testing/sim_plan.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace batchweave::testing {

/// How often things happened; adds up over histories.
class sim_counts {
 public:
  sim_counts() {}
  std::uint64_t operations = 0, steps = 0, versions = 0;
  std::uint64_t commits_tried = 0, commits_won = 0, commits_lost = 0;
  std::uint64_t unknown = 0, unknown_ours = 0, unknown_others = 0, unknown_nothing = 0;
  std::uint64_t opened = 0, restored = 0, fenced = 0, undecided = 0, gave_up = 0, closed = 0, stream_was_closed = 0, restarts = 0;
  std::uint64_t delivered = 0, reclaimed = 0, rate_limited = 0, announced = 0;
  std::uint64_t marks = 0, checkpoints = 0, roll_backs = 0, reclaims = 0, trimmed = 0, sealed = 0, removed = 0, buried = 0;
  std::uint64_t left = 0, retired = 0;
  std::array<std::uint64_t, sim_trouble_names.size()> trouble{};
  std::array<std::uint64_t, sim_mishap_names.size()> mishap{};

  /// Calls f(name, value, other.value) for each count.
  template <class F>
  void each(F f) {
    f("store operations", operations);
    f("steps", steps);
    f("versions", versions);
    f("commit put: tried", commits_tried);
    f("commit put: won", commits_won);
    f("commit put: lost", commits_lost);
    f("commit put: outcome unknown", unknown);
    f("unknown, was ours", unknown_ours);
    f("unknown, was somebody else's", unknown_others);
    f("unknown, nothing there", unknown_nothing);
    f("producer opened", opened);
    f("producer opened with a state", restored);
    f("producer fenced", fenced);
    f("producer stopped undecided", undecided);
    f("role gave up on the store", gave_up);
    f("producer closed", closed);
    f("producer found the stream closed", stream_was_closed);
    f("process restarted", restarts);
    f("steps delivered to a rank", delivered);
    f("rank found its step reclaimed", reclaimed);
    f("batch announced", announced);
    f("request over the rate limit", rate_limited);
    f("checkpoint marked by a rank", marks);
    f("checkpoint complete", checkpoints);
    f("group rolled back", roll_backs);
    f("group left", left);
    f("producer retired", retired);
    f("reclaim finished", reclaims);
    f("log trimmed", trimmed);
    f("log sealed", sealed);
    f("key removed", removed);
    f("version buried", buried);
    for (std::size_t i = 1; i < trouble.size(); ++i) f("fault: " + std::string(sim_trouble_names[i]), trouble[i]);
    for (std::size_t i = 1; i < mishap.size(); ++i) f("process: " + std::string(sim_mishap_names[i]), mishap[i]);
  }
  void add(sim_counts& other) {
    std::vector<std::uint64_t> values;
    other.each([&](const std::string&, std::uint64_t& v) { values.push_back(v); });
    std::size_t i = 0;
    each([&](const std::string&, std::uint64_t& v) { v += values[i++]; });
  }
};

class sim_result {
 public:
  sim_result() {}
  std::optional<std::string> violation;
  std::uint64_t trace_hash = 0;       ///< over every operation's time, kind, key and outcome
  std::vector<std::uint64_t> faults;  ///< ids of those that happened
  std::vector<std::string> trace;     ///< one line an event, when asked for
  sim_counts counts;
  duration virtual_time{0};
  double bytes_over_window = 0;       ///< of a soak: the most that was in the bucket after a reclaim, over the steps that must be there
};

}  // namespace batchweave::testing
