// The simulator: virtual time, a deterministic world, clean histories of the library as it is, and planted bugs that must be found.
#include "support/catch.hpp"

#include <batchweave/testing/sim_roles.hpp>
#include <batchweave/testing/sim_shrink.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>

#include <chrono>
#include <set>
#include <string>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;
namespace sim = batchweave::testing;
using namespace std::chrono_literals;

namespace {

using world = sim::sim_roles<sim::sim_plant::skip_landed_check, sim::sim_plant::forget_epoch, sim::sim_plant::orphans_of_any_epoch>;

struct clocks {
  asio::io_context io{1};
  sim::sim_timeline time{io};
  std::vector<std::string> seen;
  std::exception_ptr thrown;

  auto done() {
    return [this](std::exception_ptr e) {
      if (e && !thrown) thrown = e;
    };
  }
};

asio::awaitable<void> wait_and_note(clocks& c, sim::sim_process* p, bw::duration d, std::string name) {
  sim::sim_clock clock(c.time, p);
  co_await clock.wait_for(d);
  c.seen.push_back(name + "@" + std::to_string((c.time.now() - bw::time_point(1h)) / 1ms));
}

bool was_cancelled(const std::exception_ptr& e) {
  try {
    if (e) std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return bw::is_cancellation(x);
  }
  return false;
}

// Histories until the bug shows, or 0.
std::uint64_t histories_until_found(sim::sim_plant plant, std::uint64_t limit) {
  for (std::uint64_t seed = 1; seed <= limit; ++seed) {
    if (sim::run_history<world>(sim::sim_plan(seed), plant).violation) return seed;
  }
  return 0;
}

}  // namespace

TEST_CASE("Virtual time: hours pass in no time, handlers run when they are due, equal times in the order of asking") {
  clocks c;
  asio::co_spawn(c.io, wait_and_note(c, nullptr, 3h, "late"), c.done());
  asio::co_spawn(c.io, wait_and_note(c, nullptr, 5ms, "first"), c.done());
  asio::co_spawn(c.io, wait_and_note(c, nullptr, 5ms, "second"), c.done());
  c.time.run();
  CHECK(c.seen == std::vector<std::string>{"first@5", "second@5", "late@10800000"});
}

TEST_CASE("A stalled process gets what was due when it wakes, the others go on") {
  clocks c;
  sim::sim_process stalled(1), other(2);
  asio::co_spawn(c.io, wait_and_note(c, &stalled, 10ms, "a"), c.done());
  asio::co_spawn(c.io, wait_and_note(c, &stalled, 20ms, "b"), c.done());
  asio::co_spawn(c.io, wait_and_note(c, &other, 15ms, "c"), c.done());
  stalled.stall_until(c.time.now() + 1s);
  c.time.run();
  CHECK(c.seen == std::vector<std::string>{"c@15", "a@1000", "b@1000"});
}

TEST_CASE("The waits of a dead process, and single waits that are cancelled, end with operation_aborted") {
  clocks c;
  sim::sim_process p(1);
  asio::cancellation_signal signal;
  SECTION("killed") {
    asio::co_spawn(c.io, wait_and_note(c, &p, 10ms, "never"), c.done());
    c.time.run_ready();
    c.time.kill(p);
  }
  SECTION("dead before it waits") {
    c.time.kill(p);
    asio::co_spawn(c.io, wait_and_note(c, &p, 10ms, "never"), c.done());
  }
  SECTION("cancelled") {
    asio::co_spawn(c.io, wait_and_note(c, &p, 10ms, "never"), asio::bind_cancellation_slot(signal.slot(), c.done()));
    c.time.run_ready();
    signal.emit(asio::cancellation_type::terminal);
  }
  c.time.run();
  CHECK(was_cancelled(c.thrown));
  CHECK(c.seen.empty());
}

TEST_CASE("A history is its seed: the same one twice is the same to the last operation, another seed is another history") {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    const sim::sim_plan plan(seed);
    const sim::sim_result once = sim::run_history<world>(plan);
    const sim::sim_result again = sim::run_history<world>(plan, sim::sim_plant::none, true);
    CHECK(once.trace_hash == again.trace_hash);
    CHECK(once.faults == again.faults);
    CHECK(once.counts.operations == again.counts.operations);
    hashes.insert(once.trace_hash);
  }
  CHECK(hashes.size() == 20);
}

TEST_CASE("I1-I9 CW-01 CW-02 CW-05 CW-06 CW-15 CO-05: histories of the library as it is break no invariant, and end") {
  sim::sim_counts all;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    sim::sim_result r = sim::run_history<world>(sim::sim_plan(seed));
    INFO("build/release/bench/simulate --seed " << seed << " --histories 1 --trace");
    REQUIRE(r.violation.value_or("none") == "none");
    all.add(r.counts);
  }
  // The faults and the branches of the protocol that these histories are for did occur.
  CHECK(all.commits_lost > 0);
  CHECK(all.unknown_ours > 0);
  CHECK(all.unknown_others > 0);
  CHECK(all.fenced > 0);
  CHECK(all.restored > 0);
  for (std::size_t i = 1; i < all.trouble.size(); ++i) {
    if (i != static_cast<std::size_t>(sim::sim_trouble::some_keys)) CHECK(all.trouble[i] > 0);  // rare: the soak below meets it
  }
  for (std::size_t i = 1; i < all.mishap.size(); ++i) CHECK(all.mishap[i] > 0);
}

TEST_CASE("A soak: hours with crashes, checkpoints, roll-backs, a group that leaves and a producer given up; the bucket stays within 1.1 windows") {
  sim::sim_counts all;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    sim::sim_result r = sim::run_history<world>(sim::sim_plan::soak(seed, 1h));
    INFO("build/release/bench/simulate --soak-hours 1 --histories 1 --seed " << seed);
    REQUIRE(r.violation.value_or("none") == "none");
    CHECK(r.counts.steps > 2000);
    CHECK(r.bytes_over_window > 0.9);
    CHECK(r.bytes_over_window <= 1.1);
    CHECK(r.virtual_time >= 1h);
    all.add(r.counts);
  }
  CHECK(all.left == 3);
  CHECK(all.retired == 3);
  CHECK(all.roll_backs > 0);
  CHECK(all.sealed > 0);
  CHECK(all.buried > 0);
  CHECK(all.trouble[static_cast<std::size_t>(sim::sim_trouble::some_keys)] > 0);
}

TEST_CASE("Planted bugs are found, each by the invariant that it breaks") {
  using sim::sim_plant;
  for (const sim_plant plant : {sim_plant::skip_landed_check, sim_plant::forget_epoch, sim_plant::orphans_of_any_epoch,
                                sim_plant::clean_after_unknown, sim_plant::forget_state, sim_plant::cursor_ahead}) {
    INFO(sim::sim_plant_names[static_cast<std::size_t>(plant)]);
    CHECK(histories_until_found(plant, 400) > 0);
  }
}

TEST_CASE("A failing history is shrunk to few faults that still break the same invariant, and tells its trace") {
  const std::uint64_t seed = histories_until_found(sim::sim_plant::skip_landed_check, 400);
  REQUIRE(seed > 0);
  const sim::sim_plan plan(seed);
  const sim::sim_result whole = sim::run_history<world>(plan, sim::sim_plant::skip_landed_check);
  const sim::sim_shrinker<world> small(plan, sim::sim_plant::skip_landed_check, 200);
  REQUIRE(small.result().violation.has_value());
  CHECK(small.result().faults.size() <= whole.faults.size());
  CHECK(small.result().faults.size() <= 4);
  CHECK(small.to_string().find("version") != std::string::npos);
  CHECK(small.to_string().find("violated: I9") != std::string::npos);
}
