// Many producers on one simulated store in virtual time: what their policies promise together.
#include "support/catch.hpp"

#include <batchweave/commit/cooperative.hpp>
#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/commit/fixed_interval.hpp>
#include <batchweave/manifest/binary.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/sim_clock.hpp>
#include <batchweave/testing/sim_store.hpp>

#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;
using namespace std::chrono_literals;
using bw::testing::op;

namespace {

// One type for the policies that do not share, so that the producer is compiled once for all of them.
class any_policy {
 public:
  template <class P>
  any_policy(P p) : held_(std::move(p)) {}
  bw::duration delay_before_commit(const bw::commit::backlog& b) { return std::visit([&](auto& p) { return p.delay_before_commit(b); }, held_); }
  bw::duration delay_before_retry(const bw::commit::observation& o) { return std::visit([&](auto& p) { return p.delay_before_retry(o); }, held_); }
  bw::duration soonest() const { return std::visit([](const auto& p) { return bw::commit::soonest_attempt(p); }, held_); }
  void observe(const bw::commit::observation& o) { std::visit([&](auto& p) { p.observe(o); }, held_); }
  void seed(std::uint64_t s) { std::visit([&](auto& p) { p.seed(s); }, held_); }

 private:
  std::variant<bw::commit::dac, bw::commit::eager, bw::commit::fixed_interval> held_;
};

struct seen {
  double at, waited;  // seconds
  std::string producer;
};

template <class Policy>
class world : bw::testing::sim_hooks {
  using store_t = bw::testing::sim_store;
  using producer = bw::basic_producer<store_t, Policy>;

 public:
  world(Policy policy, unsigned n, double per_second) : policy_(std::move(policy)), time_(context_), bucket_(time_, 1), rate_(per_second) {
    bw::testing::sim_latency latency;
    latency.median(op::put, 30ms);
    bucket_.latency(latency).hooks(this);
    for (unsigned i = 0; i < n; ++i) {
      processes_.push_back(std::make_unique<bw::testing::sim_process>(i));
      producers_.emplace_back();
    }
  }
  ~world() override {
    for (auto& p : processes_) time_.kill(*p);
    time_.run_ready();
    producers_.clear();
    time_.run_ready();
  }

  bw::duration bound = 10s;
  int slow = -1;  // every request of this producer takes 300 ms longer

  void open() {
    spawn(open_all(this));
    REQUIRE(time_.run_until([&] { return opened_ == producers_.size(); }));
    origin_ = time_.now();
  }
  void publish_for_ever() {
    for (unsigned i = 0; i < producers_.size(); ++i) spawn(publish(this, i, 1'000'000));
  }
  void publish_one(unsigned i) { spawn(publish(this, i, 1)); }
  void run_to(double t) {
    time_.run_until([&] { return now() >= t; });
    CHECK(failures == 0);
  }
  double now() const { return std::chrono::duration<double>(time_.now() - origin_).count(); }
  void kill(unsigned i) { time_.kill(*processes_[i]); }
  bw::producer_stats stats(unsigned i) const { return producers_[i].stats(); }
  unsigned last_winner() const { return last_winner_; }

  std::vector<seen> visible;
  std::uint64_t attempts = 0, wins = 0;
  int failures = 0;

 private:
  void spawn(asio::awaitable<void> work) {
    asio::co_spawn(context_, std::move(work), [this](std::exception_ptr e) {
      if (!e) return;
      try {
        std::rethrow_exception(e);
      } catch (const std::exception& x) {
        if (!bw::is_cancellation(x)) ++failures;
      }
    });
  }
  static asio::awaitable<void> open_all(world* w) {
    store_t store(w->bucket_, w->processes_[0].get());
    bw::stream_options options;
    options.producers(1000).random(bw::random64(1));
    co_await bw::create_stream(store, options);
    for (unsigned i = 0; i < w->producers_.size(); ++i) {
      bw::producer_options po("p" + std::to_string(100 + i));
      const bw::testing::sim_clock clock(w->time_, w->processes_[i].get());
      po.clock(clock).seed(100 + i).max_visibility_delay(w->bound).uploads_in_flight(64);
      store_t mine(w->bucket_, w->processes_[i].get());
      Policy policy = w->policy_;
      producer opened = co_await bw::open_producer(mine, std::move(po), std::move(policy));
      w->producers_[i] = std::move(opened);
      ++w->opened_;
    }
  }
  static asio::awaitable<void> publish(world* w, unsigned i, int n) {
    bw::testing::sim_clock clock(w->time_, w->processes_[i].get());
    bw::random64 random(i);
    for (int k = 0; k < n; ++k) {
      std::vector<bw::byte_buffer> slices;
      slices.push_back(bw::byte_buffer::copy_of(bw::as_bytes("slice")));
      bw::global_batch batch(std::move(slices));
      std::string state;
      (void)co_await w->producers_[i].publish(std::move(batch), std::move(state));
      const double pause = random.uniform(0.5, 1.5) / w->rate_;
      co_await clock.wait_for(bw::duration(static_cast<bw::duration::rep>(pause * 1e9)));
    }
  }

  bw::testing::sim_fault fault(const bw::testing::sim_request& r) override {
    if (slow < 0 || opened_ < producers_.size() || !r.process || r.process->number() != static_cast<unsigned>(slow)) return bw::testing::sim_fault();
    return bw::testing::sim_fault(bw::testing::sim_fault::kind::slow, bw::errc::bug, bw::fate::unknown, 300ms);
  }
  void reached(const bw::testing::sim_request& r, const std::vector<std::byte>*, bool done) override {
    if (r.verb != op::put || !r.key.starts_with("log/") || opened_ < producers_.size()) return;
    ++attempts;
    if (!done) return;
    ++wins;
    last_winner_ = r.process->number();
    const auto v = bw::manifest::decode_version(bw::const_bytes(r.body.data(), r.body.size()));
    const std::int64_t wall = time_.wall_now().time_since_epoch().count();
    for (const auto& e : v->entries) visible.push_back({now(), static_cast<double>(wall - e.unix_ns) * 1e-9, e.producer});
  }

  Policy policy_;
  asio::io_context context_{1};
  bw::testing::sim_timeline time_;
  bw::testing::sim_bucket bucket_;
  double rate_;
  std::vector<std::unique_ptr<bw::testing::sim_process>> processes_;
  std::vector<producer> producers_;
  std::size_t opened_ = 0;
  unsigned last_winner_ = 0;
  bw::time_point origin_{};
};

std::map<std::string, std::size_t> by_producer(const std::vector<seen>& all, double from) {
  std::map<std::string, std::size_t> n;
  for (const seen& s : all) n[s.producer] += s.at >= from;
  return n;
}
double longest(const std::vector<seen>& all, double from) {
  double most = 0;
  for (const seen& s : all) {
    if (s.at >= from) most = std::max(most, s.waited);
  }
  return most;
}

}  // namespace

TEST_CASE("CO-06 64 producers: everybody commits within a bound, few tries a commit with dac, a herd with a fixed back-off") {
  world<any_policy> dac(bw::commit::dac(), 64, 2);
  dac.open();
  dac.publish_for_ever();
  dac.run_to(40);
  const auto n = by_producer(dac.visible, 10);
  CHECK(n.size() == 64);
  for (const auto& [who, batches] : n) {
    INFO(who);
    CHECK(batches >= 30);  // 60 were published in that time
  }
  CHECK(longest(dac.visible, 10) < 20);
  CHECK(static_cast<double>(dac.attempts) / static_cast<double>(dac.wins) < 3);

  world<any_policy> herd(bw::commit::fixed_interval(0ms), 64, 2);  // at once, and again at once
  herd.open();
  herd.publish_for_ever();
  herd.run_to(10);
  CHECK(static_cast<double>(herd.attempts) / static_cast<double>(herd.wins) > 10);
}

TEST_CASE("max_visibility_delay: a batch is attempted when it has waited so long, whatever the policy says") {
  world<any_policy> w(bw::commit::fixed_interval(1h), 2, 2);
  w.bound = 3s;
  w.open();
  w.publish_for_ever();
  w.run_to(30);
  CHECK(w.visible.size() > 90);  // 120 were published
  CHECK(longest(w.visible, 0) >= 3);
  CHECK(longest(w.visible, 0) < 4);
}

TEST_CASE("max_visibility_delay: a bound that the log has no room for does not flood it") {
  world<any_policy> w(bw::commit::dac(), 48, 2);
  w.bound = 100ms;
  w.open();
  w.publish_for_ever();
  w.run_to(20);
  CHECK(w.attempts < 20 * 40);  // about 25 a second; all of them at every moment would be hundreds
  CHECK(by_producer(w.visible, 10).size() == 48);
}

TEST_CASE("cooperative: visible soon with many producers, in few attempts, and nobody is left out") {
  world<bw::commit::cooperative> w(bw::commit::cooperative(), 48, 2);
  w.open();
  w.publish_for_ever();
  w.run_to(30);
  const auto n = by_producer(w.visible, 10);
  CHECK(n.size() == 48);
  for (const auto& [who, batches] : n) CHECK(batches >= 30);  // 40 were published
  CHECK(longest(w.visible, 5) < 1);
  CHECK(w.attempts < 30 * 20);
  // Their producers learn of it at the latest when max_visibility_delay makes them look.
  for (unsigned i = 0; i < 48; ++i) CHECK(w.stats(i).batches() >= 30);
}

TEST_CASE("cooperative: when the one that carries everybody dies another goes on") {
  world<bw::commit::cooperative> w(bw::commit::cooperative(), 32, 2);
  w.open();
  w.publish_for_ever();
  for (double t = 10; t <= 40; t += 10) {
    w.run_to(t);
    w.kill(w.last_winner());
  }
  w.run_to(60);
  CHECK(longest(w.visible, 10) < 8);
  CHECK(by_producer(w.visible, 50).size() == 32);
  std::size_t alive = 0;
  for (const auto& [who, batches] : by_producer(w.visible, 50)) alive += batches > 0;
  CHECK(alive == 28);
}

TEST_CASE("cooperative: a producer whose requests take ten times as long is carried like the others") {
  world<bw::commit::cooperative> w(bw::commit::cooperative(), 16, 2);
  w.slow = 0;  // it opened alone, so its first batches may not be announced when they are uploaded
  w.open();
  w.publish_for_ever();
  w.run_to(60);
  CHECK(by_producer(w.visible, 20)["p100"] >= 40);  // 0.3 s for each upload: about 1.2 a second
  CHECK(longest(w.visible, 20) < 2);
}

TEST_CASE("cooperative: a batch after a long silence does not wait for the spares") {
  world<bw::commit::cooperative> w(bw::commit::cooperative(), 16, 2);
  w.open();
  w.publish_for_ever();
  w.run_to(5);
  const std::size_t before = w.visible.size();
  CHECK(before > 0);

  world<bw::commit::cooperative> quiet(bw::commit::cooperative(), 16, 2);
  quiet.open();
  for (unsigned i = 0; i < 16; ++i) quiet.publish_one(i);
  quiet.run_to(60);
  CHECK(quiet.visible.size() == 16);
  const std::uint64_t attempts = quiet.attempts;
  quiet.publish_one(3);
  quiet.run_to(65);
  CHECK(quiet.visible.size() == 17);
  CHECK(quiet.visible.back().waited < 2);
  CHECK(quiet.attempts <= attempts + 2);
}
