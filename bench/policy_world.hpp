// Producers of one policy on a simulated store in virtual time, and what can be seen of them.
#pragma once

#include "support.hpp"

#include <batchweave/commit/policy.hpp>
#include <batchweave/commit/protocol.hpp>
#include <batchweave/manifest/binary.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/sim_clock.hpp>
#include <batchweave/testing/sim_store.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bench {

namespace bw = batchweave;
namespace asio = boost::asio;

/// What happens in one run. Times are virtual seconds since every one of the first producers was open.
class scenario {
 public:
  explicit scenario(unsigned n) : producers(n) {}
  unsigned producers;
  double rate = 2;          ///< TGB/s of each
  bool history = false;     ///< a million steps were committed before
  double warm_up = 10, seconds = 30;
  std::uint64_t most_attempts = 1'000'000'000;  ///< ends the measurement early: the rates stay rates
  std::uint64_t seed = 1;
  unsigned more = 0;        ///< producers that open at `join`, all at once, and die at `die`
  double join = 0, die = 1e9;
  unsigned burst = 0;       ///< TGBs that every producer publishes at one moment, at `burst_at`
  double burst_at = 0;
  double leader_dies = 0;   ///< at this moment whoever committed last dies; 0: nobody
  bool slow = false;        ///< every request of the first producer takes ten times as long
  bw::duration bound = std::chrono::seconds(10);  ///< max_visibility_delay
};

/// What was seen between two moments.
struct figures {
  double seconds = 0;
  double offered = 0, reached = 0;  // TGB/s published, and committed
  double attempts = 0;              // conditional PUTs of versions, per second
  double lost = 0;                  // share of them
  double p50 = 0, p99 = 0, most = 0;  // seconds from publish() to the commit
  double tau = 0;                   // mean round trip of an attempt, seconds
  double requests = 0;              // of any kind, for each TGB
};

/// Told of finished attempts.
class attempt_watcher {
 public:
  virtual ~attempt_watcher() = default;
  virtual void attempted(unsigned who, const bw::commit::observation&) = 0;
};

/// Forwards to a policy and tells the watcher.
template <class Policy>
class watched {
 public:
  static constexpr bool carries_others = bw::commit::is_cooperative_v<Policy>;
  watched(Policy p, attempt_watcher* w, unsigned producer) : policy_(std::move(p)), watcher_(w), producer_(producer) {}
  bw::duration delay_before_commit(const bw::commit::backlog& b) { return policy_.delay_before_commit(b); }
  bw::duration delay_before_retry(const bw::commit::observation& o) { return policy_.delay_before_retry(o); }
  bw::duration soonest() const { return bw::commit::soonest_attempt(policy_); }
  void observe(const bw::commit::observation& o) {
    policy_.observe(o);
    if (o.attempted) watcher_->attempted(producer_, o);
  }
  void seed(std::uint64_t s) { policy_.seed(s); }

 private:
  Policy policy_;
  attempt_watcher* watcher_;
  unsigned producer_;
};

/// Nobody reads the TGBs here, so each producer's uploads overwrite one object: memory does not grow with virtual time.
class one_object_store {
 public:
  explicit one_object_store(bw::testing::sim_store s) : inner_(s) {}
  auto get(std::string key, bw::byte_range range, bw::mutable_buffers into) { return inner_.get(std::move(key), range, std::move(into)); }
  auto put(std::string key, bw::const_buffers body, bw::put_condition condition) {
    if (key.starts_with("tgb/")) key.erase(key.rfind('/'));
    return inner_.put(std::move(key), std::move(body), std::move(condition));
  }
  auto head(std::string key) { return inner_.head(std::move(key)); }
  auto list(std::string prefix, std::string after, std::size_t max) { return inner_.list(std::move(prefix), std::move(after), max); }
  auto remove(std::vector<std::string> keys) { return inner_.remove(std::move(keys)); }
  bw::store_capabilities capabilities() const { return inner_.capabilities(); }
  std::string name() const { return inner_.name(); }

 private:
  bw::testing::sim_store inner_;
};

template <class Policy>
class world : bw::testing::sim_hooks, attempt_watcher {
  using producer = bw::basic_producer<one_object_store, watched<Policy>>;

 public:
  world(Policy policy, scenario s)
      : policy_(std::move(policy)), scenario_(s), time_(context_), bucket_(time_, s.seed) {
    bucket_.hooks(this);
    for (unsigned i = 0; i < s.producers + s.more; ++i) {
      processes_.push_back(std::make_unique<bw::testing::sim_process>(i));
      producers_.emplace_back();
      won_.emplace_back();
    }
  }
  ~world() override {
    for (auto& p : processes_) time_.kill(*p);
    time_.run_ready();
    producers_.clear();
    time_.run_ready();
  }

  /// Runs from the opening to the end of the measurement, or a little less (see most_attempts).
  void run() {
    spawn(prepare(this));
    finish(!time_.run_until([&] { return opened_ == scenario_.producers || failed_; }));
    origin_ = time_.now();
    for (unsigned i = 0; i < scenario_.producers; ++i) spawn(publish(this, i));
    for (unsigned i = scenario_.producers; i < processes_.size(); ++i) spawn(join_later(this, i));
    if (scenario_.more) {
      time_.at(origin_ + span(scenario_.die), [this] {
        for (std::size_t i = scenario_.producers; i < processes_.size(); ++i) time_.kill(*processes_[i]);
      });
    }
    if (scenario_.leader_dies > 0) {
      time_.at(origin_ + span(scenario_.leader_dies), [this] { time_.kill(*processes_[last_winner_]); });
    }
    const double end = scenario_.warm_up + scenario_.seconds;
    std::size_t before = 0;
    time_.at(origin_ + span(scenario_.warm_up), [this, &before] { before = attempts_.size(); });
    time_.run_until([&] { return now() >= end || failed_ || (before && attempts_.size() - before >= scenario_.most_attempts); });
    finish(false);
  }

  /// Virtual seconds since the start.
  double now() const { return seconds_of(time_.now()); }
  figures seen() const { return between(scenario_.warm_up, now()); }
  figures between(double from, double to) const {
    figures f;
    f.seconds = to - from;
    std::vector<double> visible;
    for (const auto& [at, waited] : visible_) {
      if (at >= from && at < to) visible.push_back(waited);
    }
    double attempts = 0, won = 0, published = 0;
    for (const auto& [at, ok] : attempts_) {
      if (at < from || at >= to) continue;
      ++attempts;
      won += ok;
    }
    for (const float at : published_) published += at >= from && at < to;
    f.offered = published / f.seconds;
    f.reached = static_cast<double>(visible.size()) / f.seconds;
    f.attempts = attempts / f.seconds;
    f.lost = attempts > 0 ? 1 - won / attempts : 0;
    f.p50 = percentile(visible, 0.5);
    f.p99 = percentile(visible, 0.99);
    f.most = percentile(visible, 1);
    double trips = 0, n = 0;
    for (const auto& [at, trip] : round_trips_) {
      if (at >= from && at < to) trips += trip, ++n;
    }
    f.tau = n > 0 ? trips / n : 0;
    f.requests = visible.empty() ? 0 : static_cast<double>(requests_) / static_cast<double>(visible_.size());
    return f;
  }
  /// How the first producer's TGBs fared in the measurement.
  figures first() const {
    figures f;
    std::vector<double> visible;
    for (const auto& [at, waited] : by_first_) {
      if (at >= scenario_.warm_up) visible.push_back(waited);
    }
    f.seconds = now() - scenario_.warm_up;
    f.most = percentile(visible, 1);
    f.reached = static_cast<double>(visible.size()) / f.seconds;
    f.p50 = percentile(visible, 0.5);
    f.p99 = percentile(visible, 0.99);
    return f;
  }
  /// When the last TGB that was published before `t` became visible.
  double all_visible_before(double t) const {
    double last = 0;
    for (const auto& [at, waited] : visible_) {
      if (at - waited <= t) last = std::max(last, static_cast<double>(at));
    }
    return last;
  }

 private:
  static bw::duration span(double seconds) { return bw::duration(static_cast<bw::duration::rep>(seconds * 1e9)); }
  double seconds_of(bw::time_point t) const { return std::chrono::duration<double>(t - origin_).count(); }

  void spawn(asio::awaitable<void> work) {
    asio::co_spawn(context_, std::move(work), [this](std::exception_ptr e) {
      if (!e || failed_) return;
      try {
        std::rethrow_exception(e);
      } catch (const std::exception& x) {
        if (!bw::is_cancellation(x)) failed_ = e;
      }
    });
  }
  void finish(bool stuck) {
    if (failed_) std::rethrow_exception(failed_);
    if (stuck) throw std::runtime_error("the producers did not open");
  }

  one_object_store store_of(unsigned i) { return one_object_store(bw::testing::sim_store(bucket_, processes_[i].get())); }

  static asio::awaitable<void> prepare(world* w) {
    one_object_store store = w->store_of(0);
    bw::stream_options options;
    options.producers(1'000'000).random(bw::random64(w->scenario_.seed));
    const bw::manifest::stream_info stream = co_await bw::create_stream(store, options);
    if (w->scenario_.history) w->place_history(stream);
    for (unsigned i = 0; i < w->scenario_.producers; ++i) co_await open(w, i);
  }

  static asio::awaitable<void> open(world* w, unsigned i) {
    const bw::testing::sim_clock clock(w->time_, w->processes_[i].get());
    bw::producer_options options("p" + std::to_string(10000 + i));
    options.clock(clock).seed(w->scenario_.seed * 1'000'003 + i).max_visibility_delay(w->scenario_.bound).uploads_in_flight(64);
    one_object_store store = w->store_of(i);
    watched<Policy> policy(w->policy_, w, i);
    producer opened = co_await bw::open_producer(store, std::move(options), std::move(policy));
    w->producers_[i] = std::move(opened);
    ++w->opened_;
  }

  static asio::awaitable<void> publish(world* w, unsigned i) {
    bw::testing::sim_clock clock(w->time_, w->processes_[i].get());
    bw::random64 random(w->scenario_.seed * 7'919 + i);
    const double mean = 1 / w->scenario_.rate;
    double next = w->now() + mean * random.uniform();
    double burst = w->scenario_.burst ? w->scenario_.burst_at : 1e18;
    for (;;) {
      const double at = std::min(next, burst);
      co_await clock.wait_until(w->origin_ + span(at));
      const unsigned n = at == burst ? w->scenario_.burst : 1;
      if (at == burst) burst = 1e18;
      else next += mean * random.uniform(0.5, 1.5);
      for (unsigned k = 0; k < n; ++k) {
        std::vector<bw::byte_buffer> slices;
        slices.emplace_back(16);
        std::memset(slices[0].data(), 1, 16);
        bw::global_batch batch(std::move(slices));
        std::string state;
        w->published_.push_back(static_cast<float>(w->now()));
        [[maybe_unused]] const std::uint64_t seq = co_await w->producers_[i].publish(std::move(batch), std::move(state));
      }
    }
  }

  static asio::awaitable<void> join_later(world* w, unsigned i) {
    bw::testing::sim_clock clock(w->time_, w->processes_[i].get());
    co_await clock.wait_until(w->origin_ + span(w->scenario_.join));
    co_await open(w, i);
    co_await publish(w, i);
  }

  // The summary of a stream with a million committed steps: five producers that are gone, sealed segments, a training run's checkpoints.
  void place_history(const bw::manifest::stream_info& stream) {
    constexpr std::uint64_t steps = 1'000'000, versions = 250'000;
    bw::random64 random(scenario_.seed);
    bw::manifest::version v = bw::commit::genesis(stream);
    for (int i = 0; i < 5; ++i) {
      v = bw::commit::propose_open(v, stream, "past" + std::to_string(i), bw::id128::draw(random), 1).value();
    }
    v.number = versions;
    v.events.clear();
    v.first_step = v.summary.next_step = steps;
    v.summary.trim_step = steps - 200'000;
    v.summary.oldest_version = versions - 50'000;
    v.summary.sealed_step = steps - 1000;
    for (int i = 0; i < 5; ++i) {
      bw::manifest::producer_entry& p = v.summary.producers[static_cast<std::size_t>(i)];
      p.next_seq = steps / 5;
      p.last_version = versions - 1000;
      p.last_tgb.producer = p.id;
      p.last_tgb.epoch = p.epoch;
      p.last_tgb.seq = p.next_seq - 1;
      p.last_tgb.bytes = 1u << 20;
      p.last_tgb.footer_offset = (1u << 20) - 200;
    }
    bw::manifest::group_entry group;
    group.name = "run-1";
    group.keep = 3;
    for (std::uint64_t i = 0; i < 3; ++i) {
      bw::manifest::checkpoint_entry c;
      c.id = "step-" + std::to_string(i);
      c.step = v.summary.trim_step + i * 50'000;
      group.retained.push_back(std::move(c));
    }
    v.summary.groups.push_back(std::move(group));
    std::uint64_t first = v.summary.trim_step;
    while (first < v.summary.sealed_step) {  // merged: each about half of what is left
      bw::manifest::segment_ref s;
      s.first = first;
      s.end = first = std::max(first + 1000, first + (v.summary.sealed_step - first) / 2);
      if (s.end > v.summary.sealed_step) s.end = first = v.summary.sealed_step;
      s.nonce = bw::id128::draw(random);
      v.summary.segments.push_back(s);
    }
    bw::manifest::validate(v).value();
    bucket_.place(bw::manifest::log_key(v.number), bw::manifest::encode_version(v));
    first_version_ = v.number;
  }

  // ---- what the store sees ------------------------------------------------------------------------------------------

  void asked(const bw::testing::sim_request&) override { ++requests_; }
  bw::testing::sim_fault fault(const bw::testing::sim_request& r) override {
    if (!scenario_.slow || !r.process || r.process->number() != 0 || opened_ < scenario_.producers) return bw::testing::sim_fault();
    const int usual = r.verb == bw::testing::op::put ? 35 : 15;
    return bw::testing::sim_fault(bw::testing::sim_fault::kind::slow, bw::errc::bug, bw::fate::unknown, std::chrono::milliseconds(9 * usual));
  }
  void reached(const bw::testing::sim_request& r, const std::vector<std::byte>*, bool done) override {
    if (r.verb != bw::testing::op::put || !r.key.starts_with("log/") || opened_ < scenario_.producers) return;
    const auto at = static_cast<float>(now());
    attempts_.emplace_back(at, done);
    if (!done) return;
    const bw::manifest::version v = bw::manifest::decode_version(bw::const_bytes(r.body.data(), r.body.size())).value();
    last_winner_ = r.process->number();
    std::vector<placed>& mine = won_[last_winner_];
    mine.clear();
    for (const bw::manifest::tgb_entry& e : v.entries) mine.emplace_back(e.unix_ns, e.producer == "p10000");
    // Old versions become tombstones, as reclaim makes them.
    constexpr std::uint64_t kept = 256;
    if (v.number > first_version_ + kept) bucket_.place(bw::manifest::log_key(v.number - kept), {});
  }

  // A commit counts as visible when its PUT is answered, as producer_stats counts it; readers may have seen it some milliseconds before.
  void attempted(unsigned who, const bw::commit::observation& o) override {
    if (opened_ < scenario_.producers) return;
    const auto at = static_cast<float>(now());
    round_trips_.emplace_back(at, static_cast<float>(std::chrono::duration<double>(o.round_trip).count()));
    if (!o.won) return;
    const std::int64_t wall = time_.wall_now().time_since_epoch().count();
    for (const auto& [published, of_first] : won_[who]) {
      const auto waited = static_cast<float>(static_cast<double>(wall - published) * 1e-9);
      visible_.emplace_back(at, waited);
      if (of_first) by_first_.emplace_back(at, waited);
    }
    won_[who].clear();
  }

  using placed = std::pair<std::int64_t, bool>;  // when a TGB of a version was published, and whether the first producer did
  Policy policy_;
  scenario scenario_;
  asio::io_context context_{1};
  bw::testing::sim_timeline time_;
  bw::testing::sim_bucket bucket_;
  std::vector<std::unique_ptr<bw::testing::sim_process>> processes_;
  std::vector<producer> producers_;
  unsigned opened_ = 0;
  bw::time_point origin_{};
  std::exception_ptr failed_;
  std::uint64_t first_version_ = 0;
  std::uint64_t requests_ = 0;
  std::uint32_t last_winner_ = 0;
  std::vector<std::vector<placed>> won_;  // by producer: the version that was put and is not answered yet
  std::vector<std::pair<float, bool>> attempts_;
  std::vector<std::pair<float, float>> round_trips_;
  std::vector<std::pair<float, float>> visible_, by_first_;
  std::vector<float> published_;
};

}  // namespace bench
