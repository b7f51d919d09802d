// What one simulated history consists of, drawn from a seed: the roles, their settings, and which operation meets which fault.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/testing/sim_store.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::testing {

/// What happens to a process at one of its operations, besides what happens to the operation.
enum class sim_mishap : std::uint8_t { none, crash_before, crash_sent, crash_applied, stall, twin, wall_jump, regroup };
inline constexpr std::array<std::string_view, 8> sim_mishap_names{"none",  "crash before sending", "crash after sending", "crash before the answer",
                                                                  "stall", "a twin starts",        "wall clock jump",     "the group goes back"};

/// Kinds of trouble with one operation; each history enables about half of them, so that rare combinations come up often.
enum class sim_trouble : std::uint8_t {
  none,
  slow_down,       ///< 503 SlowDown, not applied
  lost_500,        ///< 500, not applied
  applied_500,     ///< 500, applied
  lost_request,    ///< a time-out, never applied
  lost_reply,      ///< a time-out, applied
  late,            ///< a time-out, applied later
  refused,         ///< no connection, provably not applied
  conflict_409,    ///< 409 ConditionalRequestConflict on a conditional put
  own_412,         ///< 412 on one's own conditional put that was applied
  reset,           ///< the answer of a get breaks off
  lag,             ///< a listing that does not show the newest keys
  slow,            ///< a slow answer
  some_keys        ///< a removal of several keys that fails for some of them
};
inline constexpr std::array<std::string_view, 14> sim_trouble_names{"none", "503 slow down", "500 not applied", "500 applied",  "lost request",
                                                                    "lost reply", "late landing put", "no connection", "409 conflict", "own 412",
                                                                    "reset in mid-body", "lagging list", "slow", "removal of some keys fails"};

/// The description of a history. Two runs of one plan are the same history; dropping parts of it leaves the rest as it was.
class sim_plan {
 public:
  /// Draws everything from the seed.
  explicit sim_plan(std::uint64_t from) : seed(from) {
    random64 r(from);
    r();
    const auto one_of = [&r](auto... v) {
      const std::array all{v...};
      return all[static_cast<std::size_t>(r() % all.size())];
    };
    slices = one_of(1u, 2u, 4u);
    const std::size_t producers = one_of(1u, 1u, 2u, 2u, 3u, 4u);
    for (std::size_t i = 0; i < producers; ++i) batches.push_back(1 + static_cast<unsigned>(r() % 8));
    for (std::size_t i = 0; i < producers; ++i) policy.push_back(static_cast<unsigned>(r() % 6));
    ranks = one_of(1u, 1u, 2u, 4u);
    while (slices % ranks != 0) ranks /= 2;
    groups = one_of(1u, 1u, 1u, 2u);
    round_robin = r() % 6 == 0;
    shares = r() % 3 == 0;
    ordered = r() % 5 != 0;
    json = r() % 16 == 0;
    reclaimers = one_of(0u, 0u, 0u, 1u, 1u, 2u);
    seal_after = 1 + r() % 12;
    checkpoints_kept = 1 + static_cast<unsigned>(r() % 2);
    checkpoint_every = 1 + static_cast<unsigned>(r() % 4);
    uploads_in_flight = one_of(1u, 1u, 2u, 4u);
    poll = duration(static_cast<duration::rep>(2e8 * std::pow(10.0, r.uniform(0, 2.3))));
    longest = poll * 150;
    // Whoever waits for a turn looks at the log several times a second.
    if (round_robin) longest = std::min<duration>(longest, std::chrono::minutes(1));
    patience = r() % 4 == 0 ? std::chrono::seconds(20) : std::chrono::minutes(10);
    think = std::chrono::milliseconds(one_of(0, 50, 300, 2000));
    trouble_rate = one_of(0.0, 0.01, 0.03, 0.08, 0.2);
    mishap_rate = one_of(0.0, 0.01, 0.03, 0.1);
    faulty_operations = 30 + r() % 500;
    for (std::size_t i = 1; i <= static_cast<std::size_t>(sim_trouble::slow); ++i) enabled_trouble[i] = r() % 2 == 0;
    for (std::size_t i = 1; i < sim_mishap_names.size(); ++i) enabled_mishap[i] = r() % 2 == 0;
    // Deciding on a checkpoint by an old listing would be a matter of the store's promise (listings are consistent), not of the protocol.
    if (reclaimers > 0) enabled_trouble[static_cast<std::size_t>(sim_trouble::lag)] = false;
    if (r() % 6 == 0) log_requests_per_second = r.uniform(20, 100);
    const std::uint64_t storms_wanted = r() % 3;
    for (std::uint64_t i = 0; i < storms_wanted && r() % 2; ++i) {
      const std::uint64_t first = r() % 400;
      storms.emplace_back(first, first + 5 + r() % 60);
    }
    enabled_trouble[static_cast<std::size_t>(sim_trouble::some_keys)] = r() % 2 == 0;
    if (groups > 1 && reclaimers > 0 && r() % 2) leaves_at = 1 + r() % 8;
    if (producers > 1 && !round_robin && r() % 4 == 0) retires_after = duration(static_cast<duration::rep>(1e9 * r.uniform(1, 60)));
  }

  /// A run of `length` with everything that a long run meets: four producers, one of which is given up half way, a training run and an
  /// evaluation that leaves, two reclaimers, faults and crashes until the end. About 2 steps a second.
  static sim_plan soak(std::uint64_t from, duration length) {
    sim_plan p(from);
    p.runs_for = length;
    p.slice_bytes = 4096;
    p.slices = 4;
    p.batches.assign(4, 0);
    p.policy.clear();
    random64 r = p.draws(3);
    for (std::size_t i = 0; i < p.batches.size(); ++i) p.policy.push_back(static_cast<unsigned>(r() % 6));
    p.ranks = p.groups = p.reclaimers = 2;
    p.round_robin = p.json = false;
    p.seal_after = 32;
    p.checkpoints_kept = 2;
    p.checkpoint_every = 64;
    p.uploads_in_flight = 2;
    p.poll = std::chrono::milliseconds(500);
    p.longest = std::chrono::minutes(10);
    p.patience = std::chrono::minutes(10);
    p.think = std::chrono::seconds(1);
    p.trouble_rate = 0.01;
    p.mishap_rate = 0.001;
    p.enabled_trouble.fill(true);
    p.enabled_trouble[static_cast<std::size_t>(sim_trouble::lag)] = false;
    p.enabled_mishap.fill(true);
    p.log_requests_per_second.reset();
    p.storms.clear();
    for (std::uint64_t i = 1; i <= 100; ++i) p.storms.emplace_back(i * 30'000, i * 30'000 + 60);
    p.leaves_at = 64 + static_cast<std::uint64_t>(std::chrono::duration<double>(length).count() / 4);
    p.retires_after = length / 2;
    return p;
  }

  std::uint64_t seed;
  std::uint32_t slices = 1;
  std::vector<unsigned> batches;  ///< that each producer publishes
  std::vector<unsigned> policy;   ///< of each producer
  unsigned ranks = 1, groups = 1;
  bool round_robin = false, shares = false, ordered = true, json = false;
  unsigned reclaimers = 0;  ///< 0: the groups hold no checkpoints either
  std::uint64_t seal_after = 1;
  unsigned checkpoints_kept = 1, checkpoint_every = 1, uploads_in_flight = 1;
  duration poll{0}, longest{0}, patience{0}, think{0};
  double trouble_rate = 0, mishap_rate = 0;
  std::uint64_t faulty_operations = 0;  ///< of the whole world; after that nothing goes wrong any more and everything must end well
  std::array<bool, sim_trouble_names.size()> enabled_trouble{};
  std::array<bool, sim_mishap_names.size()> enabled_mishap{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> storms;  ///< operations of the world in which most requests fail
  std::optional<double> log_requests_per_second;
  std::uint64_t leaves_at = 0;   ///< step at which the last group is done and leaves; 0: it does not
  duration retires_after{0};     ///< the last producer is given up then; 0: it is not
  duration runs_for{0};          ///< producers go on, and faults too, for so long; 0: `batches` and `faulty_operations` say it
  std::size_t slice_bytes = 0;   ///< at least
  std::set<std::uint64_t> suppressed;  ///< faults that do not happen, by fault_id
  std::set<unsigned> absent;           ///< roles that never start: producers first, then the reclaimers, then the ranks of each group

  static std::uint64_t fault_id(const sim_request& r, bool mishap) {
    return std::uint64_t{r.process ? r.process->number() : 0xffff} << 33 | (r.number & 0xffffffff) << 1 | static_cast<std::uint64_t>(mishap);
  }

  /// A source of draws that depends on nothing but the seed and `salt`.
  random64 draws(std::uint64_t salt) const {
    random64 r(seed ^ (salt * 0xd1342543de82ef95u));
    r();
    r();
    return r;
  }

  /// Nothing goes wrong any more.
  bool calm(std::uint64_t world_operations, duration passed) const {
    return runs_for > duration(0) ? passed >= runs_for : world_operations > faulty_operations;
  }

  sim_mishap mishap_of(const sim_request& request, random64& r) const {
    if (r.uniform() >= mishap_rate) return sim_mishap::none;
    const auto what = static_cast<std::size_t>(1 + r() % (sim_mishap_names.size() - 1));
    if (!enabled_mishap[what] || suppressed.contains(fault_id(request, true))) return sim_mishap::none;
    return static_cast<sim_mishap>(what);
  }

  /// Trouble that has no meaning for the operation does not happen.
  sim_trouble trouble_of(const sim_request& request, std::uint64_t world_operations, random64& r) const {
    const bool storm = std::any_of(storms.begin(), storms.end(), [&](const auto& s) {
      return s.first <= world_operations && world_operations < s.second;
    });
    if (r.uniform() >= (storm ? 0.7 : trouble_rate)) return sim_trouble::none;
    std::array<sim_trouble, sim_trouble_names.size()> possible{};
    std::size_t n = 0;
    for (std::size_t i = 1; i < enabled_trouble.size(); ++i) {
      const auto t = static_cast<sim_trouble>(i);
      if (enabled_trouble[i] && makes_sense(t, request)) possible[n++] = t;
    }
    const std::uint64_t pick = r();
    if (n == 0 || suppressed.contains(fault_id(request, false))) return sim_trouble::none;
    return possible[pick % n];
  }

  /// Between `from` and the longest time of this history, evenly in the logarithm.
  duration long_time(duration from, random64& r) const {
    const double ratio = static_cast<double>(longest.count()) / static_cast<double>(from.count());
    return duration(static_cast<duration::rep>(static_cast<double>(from.count()) * std::pow(std::max(1.0, ratio), r.uniform())));
  }

  sim_fault fault_for(sim_trouble t, random64& r) const {
    using kind = sim_fault::kind;
    const duration timeout(static_cast<duration::rep>(r.uniform(0.1e9, 30e9)));
    switch (t) {
      case sim_trouble::none: break;
      case sim_trouble::slow_down: return sim_fault(kind::refuse, errc::throttled, fate::unknown, duration(0)).with_status(503);
      case sim_trouble::lost_500: return sim_fault(kind::refuse, errc::store_unavailable, fate::unknown, duration(0)).with_status(500);
      case sim_trouble::applied_500: return sim_fault(kind::fail_applied, errc::store_unavailable, fate::unknown, duration(0)).with_status(500);
      case sim_trouble::lost_request: return sim_fault(kind::refuse, errc::first_byte_timeout, fate::unknown, timeout);
      case sim_trouble::lost_reply: return sim_fault(kind::fail_applied, errc::connection_lost, fate::unknown, timeout);
      case sim_trouble::late: return sim_fault(kind::late, errc::first_byte_timeout, fate::unknown, long_time(std::chrono::milliseconds(20), r));
      case sim_trouble::refused: return sim_fault(kind::refuse, errc::connect_failed, fate::did_not_happen, duration(0));
      case sim_trouble::conflict_409: return sim_fault(kind::refuse, errc::store_unavailable, fate::unknown, duration(0)).with_status(409);
      case sim_trouble::own_412: return sim_fault(kind::own_412, errc::bug, fate::unknown, duration(0));
      case sim_trouble::reset: return sim_fault(kind::reset_body, errc::connection_lost, fate::unknown, duration(0));
      case sim_trouble::lag: return sim_fault(kind::lag, errc::bug, fate::unknown, timeout);
      case sim_trouble::slow: return sim_fault(kind::slow, errc::bug, fate::unknown, timeout);
      case sim_trouble::some_keys: return sim_fault(kind::some_keys, errc::bug, fate::unknown, duration(0));
    }
    return sim_fault();
  }

  std::size_t roles() const { return batches.size() + std::size_t{groups} * ranks + reclaimers; }

  std::string to_string() const {
    std::string text = "seed " + std::to_string(seed) + ": " + std::to_string(batches.size()) + " producers of";
    for (unsigned b : batches) text += " " + std::to_string(b);
    text += " batches, " + std::to_string(groups) + " groups of " + std::to_string(ranks) + " ranks, " + std::to_string(slices) + " slices";
    if (round_robin) text += ", round_robin";
    if (shares) text += ", cooperative";
    if (!ordered) text += ", unordered listings";
    if (reclaimers) text += ", " + std::to_string(reclaimers) + " reclaimers, checkpoints every " + std::to_string(checkpoint_every) + " steps";
    if (leaves_at) text += ", the last group leaves at step " + std::to_string(leaves_at);
    if (retires_after > duration(0)) text += ", the last producer is given up";
    if (runs_for == duration(0)) text += ", faults in the first " + std::to_string(faulty_operations) + " operations";
    else text += ", for " + std::to_string(std::chrono::duration<double>(runs_for).count() / 3600) + " h";
    if (!suppressed.empty() || !absent.empty()) {
      text += ", without " + std::to_string(suppressed.size()) + " of the faults and " + std::to_string(absent.size()) + " of the roles";
    }
    return text;
  }

 private:
  static bool makes_sense(sim_trouble t, const sim_request& r) {
    switch (t) {
      case sim_trouble::conflict_409:
      case sim_trouble::own_412: return r.verb == op::put && r.condition.absent();
      case sim_trouble::late: return r.verb == op::put || r.verb == op::remove;
      case sim_trouble::reset: return r.verb == op::get;
      case sim_trouble::lag: return r.verb == op::list;
      case sim_trouble::some_keys: return r.verb == op::remove && r.keys.size() > 1;
      default: return true;
    }
  }
};

}  // namespace batchweave::testing
