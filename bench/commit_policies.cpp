// Commit policies against each other: real producers on a simulated store in virtual time, with 1 to 1024 of them, with and without a long
// history, when their number doubles and halves, in a burst, with a slow one among them, and when the busiest dies.
//
// The store takes 15 ms for a LIST or a GET and 35 ms for a PUT (medians, lognormal), so a tail read takes 30 ms. Every producer offers
// 2 TGB/s. A TGB is visible when the PUT of the version that holds it is answered, counted from the call of publish().
#include "comparison_policies.hpp"
#include "policy_chart.hpp"
#include "policy_world.hpp"
#include "support.hpp"

#include <batchweave/commit/cooperative.hpp>
#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/commit/every.hpp>
#include <batchweave/commit/fixed_interval.hpp>

#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace bw = bench::bw;
using bench::figures;
using bench::scenario;

constexpr double round_trip = 0.07;  // about: tail read and conditional PUT
/// The interval of dac among n producers.
double interval(unsigned n) { return 1.2 * n * round_trip; }

struct settings {
  double seconds = 30;  // measured, at least
  std::string only;
  std::uint64_t seed = 1;
  std::vector<unsigned> counts{1, 4, 16, 64, 256, 1024};
};

struct key {
  std::string policy;
  unsigned n;
  bool history;
  auto operator<=>(const key&) const = default;
};

class program {
 public:
  program(settings s, std::string json) : settings_(std::move(s)), out_("commit policies: real producers, simulated store, virtual time", json) {}

  void run() {
    std::printf("\n%5s  %-14s %-8s %15s %11s %8s %6s %12s %12s %6s %9s\n", "N", "policy", "history", "TGB/s", "attempts/s", "x tau", "lost",
                "visible p50", "p99", "ratio", "requests");
    for (const bool history : {false, true}) {
      for (const unsigned n : settings_.counts) {
        steady("dac", bw::commit::dac(), n, history);
        steady("cooperative", bw::commit::cooperative(), n, history);
      }
    }
    for (const unsigned n : settings_.counts) {
      if (n > 256) continue;  // they have failed long before, and cost thousands of attempts a second
      steady("eager", bw::commit::eager(), n, false);
      steady("fixed_interval", bw::commit::fixed_interval(std::chrono::seconds(1)), n, false);
      steady("every<4>", bw::commit::every<4>(), n, false);
      steady("exponential", bench::exponential_backoff(), n, false);
      steady("aimd", bench::aimd(), n, false);
    }
    std::printf("\n  x tau: attempts in one mean round trip of an attempt; requests: of any kind for each TGB\n");
    number_changes("dac", bw::commit::dac());
    number_changes("cooperative", bw::commit::cooperative());
    burst("dac", bw::commit::dac());
    burst("cooperative", bw::commit::cooperative());
    slow_one("dac", bw::commit::dac());
    slow_one("cooperative", bw::commit::cooperative());
    busiest_dies("dac", bw::commit::dac());
    busiest_dies("cooperative", bw::commit::cooperative());
    bars();
  }

  void draw(const std::string& file) const {
    bench::chart drawing("Commit policies: producers of 2 TGB/s each on one stream (LIST, GET 15 ms, PUT 35 ms)");
    using panel = bench::chart::panel;
    const auto lines = [&](auto value, bool dashed) {
      std::vector<bench::chart::line> all;
      for (const std::string& name : order_) {
        bench::chart::line l;
        l.name = name;
        l.dashed = dashed;
        for (const auto& [k, f] : seen_) {
          if (k.policy == name && !k.history) l.points.push_back({static_cast<double>(k.n), value(f)});
        }
        all.push_back(std::move(l));
      }
      return all;
    };
    panel rate;
    rate.title = "Rate reached", rate.unit = "% of the rate offered";
    rate.lowest = 0, rate.highest = 110, rate.marks = {0, 25, 50, 75, 100};
    rate.lines = lines([](const figures& f) { return 100 * f.reached / f.offered; }, false);
    panel attempts;
    attempts.title = "Commit attempts of all producers", attempts.unit = "per second";
    attempts.logarithmic = true, attempts.lowest = 1, attempts.highest = 10000, attempts.marks = {1, 10, 100, 1000, 10000};
    attempts.lines = lines([](const figures& f) { return f.attempts; }, false);
    panel lost;
    lost.title = "Attempts lost to others", lost.unit = "%";
    lost.lowest = 0, lost.highest = 100, lost.marks = {0, 25, 50, 75, 100};
    lost.lines = lines([](const figures& f) { return 100 * f.lost; }, false);
    panel visible;
    visible.title = "Visible after: p50, and p99 dashed", visible.unit = "seconds";
    visible.logarithmic = true, visible.lowest = 0.01, visible.highest = 1000, visible.marks = {0.01, 0.1, 1, 10, 100, 1000};
    visible.lines = lines([](const figures& f) { return f.p50; }, false);
    for (auto& l : lines([](const figures& f) { return f.p99; }, true)) visible.lines.push_back(std::move(l));
    for (panel* p : {&rate, &attempts, &lost, &visible}) drawing.add(std::move(*p));
    drawing.write(file);
  }

  void write() const { out_.write(); }
  bool kept() const { return out_.all_kept(); }

 private:
  bool wanted(const std::string& policy) const { return settings_.only.empty() || settings_.only == policy; }
  static bool ours(const std::string& policy) { return policy == "dac" || policy == "cooperative"; }

  scenario basic(const std::string& policy, unsigned n) const {
    scenario s(n);
    s.seed = settings_.seed;
    if (policy == "dac") {
      s.warm_up = 5 + 1.5 * interval(n);
      s.seconds = std::max(settings_.seconds, 2.5 * interval(n));
    } else {
      s.warm_up = policy == "cooperative" ? 5 : 15;
      s.seconds = settings_.seconds;
      if (!ours(policy)) s.bound = std::chrono::hours(1);  // the rule itself is measured
      s.most_attempts = 60'000;
    }
    // Few TGBs a second: it takes longer until the hundredth part of them is enough to tell a p99.
    if (n <= 64 && ours(policy)) s.seconds = std::max(s.seconds, settings_.seconds * std::clamp(512.0 / n, 4.0, 40.0));
    else if (n <= 16) s.seconds = 4 * settings_.seconds;
    return s;
  }

  void note(const std::string& what, const figures& f) {
    out_.record(what + ": TGB/s reached", f.reached, "1/s", f.offered);
    out_.record(what + ": attempts", f.attempts, "1/s", f.tau > 0 ? 2 / f.tau : bench::report::nan());
    out_.record(what + ": attempts lost", 100 * f.lost, "%");
    out_.record(what + ": visible p50", f.p50, "s");
    out_.record(what + ": visible p99", f.p99, "s", f.p50);
    out_.record(what + ": requests per TGB", f.requests, "");
  }

  template <class Policy>
  void steady(const std::string& name, Policy policy, unsigned n, bool history) {
    if (!wanted(name)) return;
    scenario s = basic(name, n);
    s.history = history;
    const bench::stopwatch watch;
    bench::world<Policy> world(std::move(policy), s);
    world.run();
    const figures f = world.seen();
    const std::string rate = number(f.reached, 1) + "/" + number(f.offered, 1);
    std::printf("%5u  %-14s %-8s %15s %11.1f %8.2f %5.0f%% %10.3f s %10.3f s %6.2f %9.2f   (%.0f s in %.1f s)\n", n, name.c_str(),
                history ? "10^6" : "-", rate.c_str(), f.attempts, f.attempts * f.tau, 100 * f.lost, f.p50, f.p99, f.p99 / f.p50, f.requests,
                f.seconds, watch.cpu());
    std::fflush(stdout);
    note(std::to_string(n) + " producers, " + name + (history ? ", history of 1,000,000 steps" : ""), f);
    key k;
    k.policy = name, k.n = n, k.history = history;
    seen_[k] = f;
    if (std::find(order_.begin(), order_.end(), name) == order_.end()) order_.push_back(name);
  }

  static std::string number(double v, int digits) {
    char t[40];
    std::snprintf(t, sizeof t, "%.*f", digits, v);
    return t;
  }

  void show(const std::string& what, const figures& f) {
    std::printf("  %-52s %8.1f/%.1f TGB/s %8.1f attempts/s (x tau %.2f), visible p50 %.3f s, p99 %.3f s, at most %.3f s\n", what.c_str(),
                f.reached, f.offered, f.attempts, f.attempts * f.tau, f.p50, f.p99, f.most);
    std::fflush(stdout);
    note(what, f);
  }

  // 64 producers become 128 and 64 again. Absorbed: three intervals later the figures are those of producers that were always as many.
  template <class Policy>
  void number_changes(const std::string& name, Policy policy) {
    if (!wanted(name)) return;
    constexpr unsigned n = 64;
    const double few = interval(n), many = interval(2 * n);
    scenario always = basic(name, 2 * n);
    always.warm_up = 3 * many, always.seconds = 8 * many;
    bench::world<Policy> large(policy, always);
    large.run();
    scenario s = basic(name, n);
    s.more = n;
    s.join = 3 * few + 8 * many;
    s.die = s.join + 3 * many + 8 * many;
    s.warm_up = 0;
    s.seconds = s.die + 3 * many + 8 * many;
    bench::world<Policy> world(std::move(policy), s);
    world.run();
    std::printf("\n%s: 64 producers become 128 (all at once) and 64 again (64 die)\n", name.c_str());
    const figures before = world.between(3 * few, s.join), steady = large.seen();
    const figures joining = world.between(s.join, s.join + 3 * many), doubled = world.between(s.join + 3 * many, s.die);
    const figures dying = world.between(s.die, s.die + 3 * many), halved = world.between(s.die + 3 * many, s.seconds);
    show(name + ", 64", before);
    show(name + ", always 128", steady);
    show(name + ", 64 to 128, first 3 intervals", joining);
    show(name + ", 64 to 128, then", doubled);
    show(name + ", 128 to 64, first 3 intervals", dying);
    show(name + ", 128 to 64, then", halved);
    const auto near = [](double a, double b) { return std::abs(a - b) <= 0.15 * b; };
    out_.expect(near(doubled.p50, steady.p50) && near(doubled.p99, steady.p99) && doubled.reached >= 0.98 * doubled.offered,
                name + ": 3 intervals after doubling the figures are those of 128, within 15 %");
    out_.expect(near(halved.p50, before.p50) && near(halved.p99, before.p99) && halved.reached >= 0.98 * halved.offered,
                name + ": 3 intervals after halving the figures are those of 64, within 15 %");
  }

  // 64 producers publish 20 TGBs each at one moment.
  template <class Policy>
  void burst(const std::string& name, Policy policy) {
    if (!wanted(name)) return;
    constexpr unsigned n = 64;
    scenario s = basic(name, n);
    s.warm_up = 4 * interval(n);
    s.burst = 20;
    s.burst_at = s.warm_up;
    s.seconds = 6 * interval(n);
    bench::world<Policy> world(std::move(policy), s);
    world.run();
    const double took = world.all_visible_before(s.burst_at + 1e-3) - s.burst_at;
    std::printf("\n%s: a burst of 20 TGBs from each of 64 producers is visible after %.2f s\n", name.c_str(), took);
    out_.record(name + ": burst of 20 TGBs from each of 64 producers, visible after", took, "s", 3 * interval(n));
    out_.expect(took <= 3 * interval(n), name + ": a burst is absorbed within 3 intervals (" + number(3 * interval(n), 1) + " s)");
  }

  // One of 16 producers is behind a link that makes each of its requests ten times as long.
  template <class Policy>
  void slow_one(const std::string& name, Policy policy) {
    if (!wanted(name)) return;
    constexpr unsigned n = 16;
    scenario s = basic(name, n);
    s.slow = true;
    s.warm_up = 30, s.seconds = std::max(120.0, settings_.seconds);
    bench::world<Policy> world(std::move(policy), s);
    world.run();
    std::printf("\n%s: one of 16 producers is ten times slower\n", name.c_str());
    const figures all = world.seen(), one = world.first();
    show(name + ", 16 of which one is slow", all);
    if (one.reached > 0) std::printf("  the slow one: %.2f TGB/s, visible p50 %.3f s, p99 %.3f s, at most %.3f s\n", one.reached, one.p50, one.p99, one.most);
    else std::printf("  the slow one: nothing of it became visible\n");
    out_.record(name + ": the slow one of 16, TGB/s reached", one.reached, "1/s", 2);
    out_.record(name + ": the slow one of 16, visible p50", one.p50, "s");
    out_.record(name + ": the slow one of 16, visible p99", one.p99, "s");
    // An attempt that takes ten round trips of the others loses to them nearly always: only those who are carried do not depend on it.
    if (bw::commit::is_cooperative_v<Policy>) out_.expect(one.reached >= 0.9 * s.rate, name + ": the slow one is not starved");
    const auto usual = seen_.find(key{name, n, false});
    if (usual != seen_.end()) {
      out_.expect(all.reached - one.reached >= 0.98 * (all.offered - s.rate) && all.p50 <= 1.25 * usual->second.p50,
                  name + ": the others do not wait for it");
    }
  }

  // Whoever committed last dies; with cooperative that is the one that carries everybody.
  template <class Policy>
  void busiest_dies(const std::string& name, Policy policy) {
    if (!wanted(name)) return;
    constexpr unsigned n = 64;
    scenario s = basic(name, n);
    s.warm_up = 4 * interval(n);
    s.leader_dies = s.warm_up + 1;
    s.seconds = 6 * interval(n);
    bench::world<Policy> world(std::move(policy), s);
    world.run();
    const figures f = world.between(s.leader_dies, s.leader_dies + 3 * interval(n));
    std::printf("\n%s: whoever committed last of 64 producers dies\n", name.c_str());
    show(name + ", the 16 s after that", f);
    out_.expect(f.most <= 3 * interval(n), name + ": nobody waits longer than 3 intervals for that");
  }

  const figures* find(const std::string& policy, unsigned n, bool history) const {
    key k;
    k.policy = policy, k.n = n, k.history = history;
    const auto at = seen_.find(k);
    return at == seen_.end() ? nullptr : &at->second;
  }

  void bars() {
    std::printf("\nbars\n");
    for (const std::string policy : {"dac", "cooperative"}) {
      for (const unsigned n : settings_.counts) {
        const figures* f = find(policy, n, false);
        if (!f) continue;
        const std::string who = policy + ", N = " + std::to_string(n);
        out_.expect(f->reached >= 0.98 * f->offered, who + ": reaches " + number(100 * f->reached / f->offered, 1) + " % of the offered rate, at least 98");
        out_.expect(f->attempts <= 2 / f->tau, who + ": " + number(f->attempts, 1) + " attempts/s, at most 2/tau = " + number(2 / f->tau, 1));
        out_.expect(f->p99 <= 3.5 * f->p50, who + ": p99/p50 = " + number(f->p99 / f->p50, 2) + ", at most 3.5");
        const figures* h = find(policy, n, true);
        if (!h) continue;
        const auto moved = [](double a, double b) { return b > 0 ? 100 * std::abs(a / b - 1) : 100 * std::abs(a - b); };
        const double most = std::max({moved(h->reached / h->offered, f->reached / f->offered), moved(h->attempts, f->attempts), moved(h->p50, f->p50),
                                      moved(h->p99, f->p99)});
        out_.expect(most <= 10, who + ": a history of 1,000,000 steps moves rate, attempts, p50 and p99 by at most " + number(most, 1) + " %, 10 allowed");
      }
    }
    const figures* one = find("cooperative", 1, false);
    const figures* many = find("cooperative", 256, false);
    if (one && many) {
      out_.expect(many->p50 <= 2 * one->p50, "cooperative: visible p50 of N = 256 is " + number(many->p50 / one->p50, 2) + " times that of N = 1, at most 2");
    }
  }

  settings settings_;
  bench::report out_;
  std::map<key, figures> seen_;
  std::vector<std::string> order_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::arguments args(argc, argv,
                        "commit_policies [--json FILE] [--svg FILE] [--check] [--seconds VIRTUAL] [--seed S] [--producers 1,4,16,64,256,1024]\n"
                        "  [--only dac|cooperative|eager|fixed_interval|every<4>|exponential|aimd]");
  settings s;
  const std::string json = args.text("json"), svg = args.text("svg");
  s.seconds = args.number("seconds", s.seconds);
  s.only = args.text("only");
  s.seed = args.count("seed", 1);
  const std::string counts = args.text("producers");
  const bool check = args.flag("check");
  args.done();
  if (!counts.empty()) {
    s.counts.clear();
    std::istringstream list(counts);
    for (std::string n; std::getline(list, n, ',');) s.counts.push_back(static_cast<unsigned>(std::strtoul(n.c_str(), nullptr, 10)));
  }
  try {
    program p(std::move(s), json);
    p.run();
    if (!svg.empty()) p.draw(svg);
    p.write();
    if (check && !p.kept()) return 3;
  } catch (const std::exception& e) {
    std::cerr << "commit_policies: " << e.what() << '\n';
    return 1;
  }
}
