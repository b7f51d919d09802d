// Deterministic simulation of whole streams: any number of histories on every core, each held against the protocol's invariants.
#include "support.hpp"

#include <batchweave/testing/sim_roles.hpp>
#include <batchweave/testing/sim_shrink.hpp>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace bw = batchweave;
namespace sim = batchweave::testing;

namespace {

using world = sim::sim_roles<sim::sim_plant::skip_landed_check, sim::sim_plant::overwrite_version, sim::sim_plant::early_commit,
                             sim::sim_plant::forget_epoch, sim::sim_plant::open_without_epoch, sim::sim_plant::no_tombstones,
                             sim::sim_plant::delete_before_trim, sim::sim_plant::orphans_of_any_epoch>;

struct campaign {
  std::uint64_t first_seed = 1, histories = 0;
  double seconds = 0;  // stop after this long; 0: no limit
  unsigned threads = 1;
  sim::sim_plant plant = sim::sim_plant::none;
};

struct outcome {
  std::uint64_t done = 0;
  std::optional<std::uint64_t> failed;  // the lowest seed that failed
  std::uint64_t needed = 0;             // histories up to and with that one
  sim::sim_counts counts;
  double virtual_seconds = 0;
};

// Stops soon after the first failure; the lowest failing seed does not depend on the number of threads.
outcome run(const campaign& c) {
  outcome all;
  std::atomic<std::uint64_t> next{0}, stop_at{c.histories};
  std::mutex mutex;
  const bench::stopwatch time;
  const auto work = [&] {
    sim::sim_counts counts;
    std::uint64_t done = 0;
    double virtual_seconds = 0;
    for (;;) {
      const std::uint64_t i = next.fetch_add(1);
      if (i >= stop_at.load() || (c.seconds > 0 && time.wall() > c.seconds)) break;
      const sim::sim_plan plan(c.first_seed + i);
      sim::sim_result r = sim::run_history<world>(plan, c.plant);
      ++done;
      counts.add(r.counts);
      virtual_seconds += std::chrono::duration<double>(r.virtual_time).count();
      if (r.violation) {
        const std::lock_guard lock(mutex);
        if (!all.failed || plan.seed < *all.failed) all.failed = plan.seed;
        stop_at = std::min(stop_at.load(), i);
      }
    }
    const std::lock_guard lock(mutex);
    all.counts.add(counts);
    all.done += done;
    all.virtual_seconds += virtual_seconds;
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < c.threads; ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (all.failed) all.needed = *all.failed - c.first_seed + 1;
  return all;
}

// Long runs with the seeds S, S+1, ..., on as many threads.
void soak(const campaign& c, double hours, bench::report& report) {
  const bw::duration length(static_cast<bw::duration::rep>(hours * 3600e9));
  std::vector<sim::sim_result> results(c.histories);
  std::atomic<std::size_t> next{0};
  const bench::stopwatch time;
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < results.size(); i = next.fetch_add(1)) {
      results[i] = sim::run_history<world>(sim::sim_plan::soak(c.first_seed + i, length), c.plant);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < c.threads; ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  sim::sim_counts all;
  for (std::size_t i = 0; i < results.size(); ++i) {
    sim::sim_result& r = results[i];
    const std::string which = "seed " + std::to_string(c.first_seed + i) + ": ";
    report.add(which + "simulated time", std::chrono::duration<double>(r.virtual_time).count() / 3600, "h");
    report.add(which + "steps", static_cast<double>(r.counts.steps), "");
    report.add(which + "bytes after a reclaim over the window's, worst", r.bytes_over_window, "x", 1.1);
    report.expect(!r.violation, which + "no invariant is broken" + (r.violation ? "; " + *r.violation : ""));
    report.expect(static_cast<double>(r.counts.steps) >= 100'000 * hours / 24, which + "100,000 steps a day");
    report.expect(r.bytes_over_window > 0 && r.bytes_over_window <= 1.1, which + "the bucket holds at most 1.1 times the window");
    all.add(r.counts);
  }
  report.add("wall time", time.wall(), "s");
  all.each([&](const std::string& name, std::uint64_t& v) { report.add(name, static_cast<double>(v), ""); });
}

// True when the planted bug was found.
bool find_plant(campaign c, sim::sim_plant plant, bool trace, bench::report& report) {
  c.plant = plant;
  const std::string name(sim::sim_plant_names[static_cast<std::size_t>(plant)]);
  const outcome found = run(c);
  if (!found.failed) {
    report.expect(false, "planted bug " + name + " is found within " + std::to_string(c.histories) + " histories");
    return false;
  }
  report.add("planted " + name + ": found after", static_cast<double>(found.needed), "hist.", static_cast<double>(c.histories));
  const sim::sim_shrinker<world> small(sim::sim_plan(*found.failed), plant);
  std::cout << "    seed " << *found.failed << ", shrunk to " << small.result().faults.size() << " faults: " << small.result().violation.value_or("?")
            << '\n';
  if (trace) std::cout << small.to_string();
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  bench::arguments args(argc, argv,
                        "simulate [--histories N] [--seconds S] [--seed S] [--plant NAME|all] [--threads T] [--trace] [--json FILE]\n"
                        "simulate --soak-hours H [--histories N] [--seed S] [--threads T] [--json FILE]\n"
                        "  Runs histories with the seeds S, S+1, ... and holds each against the invariants of the protocol.\n"
                        "  --seconds S  stops after S seconds    --trace  prints every event of the one history (or of the shrunk ones)\n"
                        "  --plant      looks for a planted bug; all: for each of them\n"
                        "  --soak-hours H  N runs (2) of H hours of simulated time each, with everything that a long run meets\n"
                        "  exit status: 0 clean (or every planted bug found), 1 a violation (or a planted bug not found)");
  campaign c;
  c.first_seed = args.count("seed", 1);
  const std::string plant = args.text("plant");
  const double soak_hours = args.number("soak-hours", 0);
  c.histories = args.count("histories", soak_hours > 0 ? 2 : plant.empty() ? 100'000 : 10'000);
  c.seconds = args.number("seconds", 0);
  c.threads = static_cast<unsigned>(args.count("threads", std::max(1u, std::thread::hardware_concurrency())));
  const bool trace = args.flag("trace");
  bench::report report("simulated histories", args.text("json"));
  args.done();

  if (soak_hours > 0) {
    soak(c, soak_hours, report);
    report.write();
    return report.all_kept() ? 0 : 1;
  }

  if (!plant.empty()) {
    bool all_found = true;
    for (std::size_t i = 1; i < sim::sim_plant_names.size(); ++i) {
      if (plant == "all" || plant == sim::sim_plant_names[i]) all_found = find_plant(c, static_cast<sim::sim_plant>(i), trace, report) && all_found;
    }
    if (plant != "all" && !sim::parse_sim_plant(plant)) {
      std::cerr << "no planted bug '" << plant << "'; there are:";
      for (std::size_t i = 1; i < sim::sim_plant_names.size(); ++i) std::cerr << ' ' << sim::sim_plant_names[i];
      std::cerr << '\n';
      return 2;
    }
    report.write();
    return all_found ? 0 : 1;
  }

  if (trace && c.histories == 1) {
    const sim::sim_plan plan(c.first_seed);
    const sim::sim_result r = sim::run_history<world>(plan, sim::sim_plant::none, true);
    std::cout << plan.to_string() << '\n';
    for (const std::string& line : r.trace) std::cout << line << '\n';
    std::cout << "violated: " << r.violation.value_or("nothing") << '\n';
    return r.violation ? 1 : 0;
  }

  std::cout << "seeds " << c.first_seed << " to " << c.first_seed + c.histories - 1 << " on " << c.threads << " threads" << std::endl;
  const bench::stopwatch time;
  outcome all = run(c);
  const double wall = time.wall(), cpu = time.cpu();
  report.add("histories", static_cast<double>(all.done), "");
  report.add("wall time", wall, "s");
  report.add("processor time", cpu, "s");
  report.add("histories a second and core", static_cast<double>(all.done) / cpu, "1/s");
  report.add("store operations a history", static_cast<double>(all.counts.operations) / static_cast<double>(all.done), "");
  report.add("simulated time", all.virtual_seconds / 3600, "h");
  all.counts.each([&](const std::string& name, std::uint64_t& v) { report.add(name, static_cast<double>(v), ""); });
  report.expect(!all.failed, "no history breaks an invariant");
  report.write();
  if (!all.failed) return 0;
  std::cout << "seed " << *all.failed << " fails; shrinking it\n";
  const sim::sim_shrinker<world> small(sim::sim_plan(*all.failed), sim::sim_plant::none);
  std::cout << small.to_string() << "run again: simulate --seed " << *all.failed << " --histories 1 --trace\n";
  return 1;
}
