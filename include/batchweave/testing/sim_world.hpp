// One simulated history: real producers and ranks over a simulated store, faults by plan, every step held against the reference model.
#pragma once

#include <batchweave/aio/task_group.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/testing/sim_checker.hpp>
#include <batchweave/testing/sim_plan.hpp>
#include <batchweave/testing/sim_plants.hpp>
#include <batchweave/testing/sim_policy.hpp>
#include <batchweave/testing/sim_store.hpp>

#include <boost/asio/io_context.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
};

/// Runs one plan to its end. Not thread safe; worlds on different threads are independent.
class sim_world : private sim_hooks {
 public:
  explicit sim_world(sim_plan plan, sim_plant plant = sim_plant::none, bool traced = false)
      : plan_(std::move(plan)), plant_(plant), traced_(traced), io_(1), time_(io_), bucket_(time_, plan_.seed), checker_(describe(plan_)) {
    const std::string text = manifest::encode_stream_info(checker_.stream());
    const const_bytes bytes = as_bytes(text);
    bucket_.place(manifest::stream_key(), std::vector<std::byte>(bytes.begin(), bytes.end()));
    bucket_.hooks(this).ordered(plan_.ordered);
    if (plan_.log_requests_per_second) bucket_.rate_limit("log/", *plan_.log_requests_per_second);
    random64 r = plan_.draws(1);
    for (std::size_t i = 0; i < plan_.batches.size(); ++i) {
      add_role(role::producer, "p" + std::to_string(i), static_cast<unsigned>(i), r.uniform(0, 0.5));
    }
    for (unsigned g = 0; g < plan_.groups; ++g) {
      for (unsigned k = 0; k < plan_.ranks; ++k) add_role(role::rank, "g" + std::to_string(g), k, r.uniform(0, 3));
    }
    if (plant_ == sim_plant::delete_versions) add_role(role::janitor, "janitor", 0, 1);
  }
  ~sim_world() override { stop(); }

  sim_result run() {
    while (!checker_.violation() && !finished()) {
      if (!time_.step() && !finished()) {
        checker_.violated("liveness: nothing is left to do, but the stream has not ended for everybody");
      } else if (bucket_.operations() > plan_.faulty_operations + operations_limit || time_.now() - calm_since() > time_limit) {
        checker_.violated("liveness: after " + std::to_string(bucket_.operations()) + " operations and " + seconds(time_.now()) +
                          " s, long after the last fault, the stream has not ended for everybody" + who_waits());
      }
    }
    stop();
    if (!checker_.violation()) time_.run();  // what is still on its way must do no harm either
    time_.run_ready();
    sim_result out;
    out.violation = checker_.violation();
    out.trace_hash = hash_;
    out.faults = std::move(faults_);
    out.trace = std::move(trace_);
    out.virtual_time = time_.now() - start_;
    settle_unknown();
    counts_.operations = bucket_.operations();
    counts_.steps = checker_.steps();
    counts_.versions = checker_.versions();
    counts_.rate_limited = bucket_.throttled();
    out.counts = counts_;
    return out;
  }

 private:
  static constexpr std::uint64_t operations_limit = 60'000;
  static constexpr duration time_limit = std::chrono::hours(24 * 7);

  struct role;
  struct instance {
    instance(role& r, std::uint32_t number, asio::any_io_executor ex) : of(&r), process(number), tasks(std::move(ex)) {}
    role* of;
    sim_process process;
    task_group tasks;
    bool running = true;
  };
  struct role {
    enum kind_of { producer, rank, janitor };
    kind_of kind = producer;
    std::string name;
    unsigned index = 0;     // of a producer in the plan; of a rank in its group
    unsigned number = 0;
    bool done = false;
    bool due = false;          // starts again soon
    std::uint64_t cursor = 0;  // what a rank saved
    std::uint64_t used = 0;    // steps [0, used) went into the training
    std::vector<std::unique_ptr<instance>> instances;
    bool running() const {
      for (const auto& i : instances) {
        if (i->running) return true;
      }
      return false;
    }
  };
  struct unknown_put {
    std::uint64_t number, hash;
  };

  static manifest::stream_info describe(const sim_plan& p) {
    manifest::stream_info s;
    random64 r = p.draws(2);
    s.id = id128::draw(r);
    s.slices = p.slices;
    s.producers = 0;
    for (unsigned i = 0; i < p.batches.size(); ++i) s.producers += !p.absent.contains(i);
    if (p.round_robin) s.order = manifest::order_round_robin;
    if (p.json) s.codec = "json";
    return s;
  }
  static std::string seconds(time_point t) { return std::to_string(std::chrono::duration<double>(t - start_).count()); }

  void add_role(role::kind_of kind, std::string name, unsigned index, double delay_s) {
    auto r = std::make_unique<role>();
    r->kind = kind;
    r->name = std::move(name);
    r->index = index;
    r->number = static_cast<unsigned>(roles_.size());
    role* const it = r.get();
    roles_.push_back(std::move(r));
    it->done = plan_.absent.contains(it->number);
    if (it->done) return;
    time_.after(duration(static_cast<duration::rep>(delay_s * 1e9)), [this, it] { start(*it); });
  }

  void start(role& r) {
    if (over_ || r.instances.size() >= 200) return;
    const auto number = static_cast<std::uint32_t>(r.number * 256 + r.instances.size());
    counts_.restarts += !r.instances.empty();
    r.instances.push_back(std::make_unique<instance>(r, number, io_.get_executor()));
    instance* const me = r.instances.back().get();
    note([&] { return who(*me) + " starts"; });
    me->tasks.spawn(live(this, me));
  }
  // Starts again after a while, unless somebody else does the work or nobody needs to.
  void start_later(role& r) {
    if (std::exchange(r.due, true)) return;
    random64 d = plan_.draws(0x51a7 + r.number * 1000 + r.instances.size());
    const duration pause = bucket_.operations() > plan_.faulty_operations ? std::chrono::seconds(1) : plan_.long_time(std::chrono::milliseconds(50), d);
    time_.after(pause, [this, &r] {
      r.due = false;
      if (!r.running() && !is_done(r)) start(r);
    });
  }
  // A producer that nobody runs and that has not ended gets a process: the opening of a dead one may have landed late.
  void supervise() {
    for (const auto& r : roles_) {
      if (r->kind == role::producer && !r->instances.empty() && !r->running() && !is_done(*r)) start_later(*r);
    }
  }
  bool is_done(role& r) {
    if (r.kind == role::producer) return r.done || checker_.stream_closed() || checker_.finished(r.name);
    return r.done;
  }
  bool finished() {
    if (!checker_.stream_closed()) return false;
    for (const auto& r : roles_) {
      if (r->kind == role::rank && !r->done) return false;
    }
    return true;
  }
  time_point calm_since() {
    if (bucket_.operations() > plan_.faulty_operations && calm_ == time_point()) calm_ = time_.now();
    return calm_ == time_point() ? time_.now() : calm_;
  }
  void stop() {
    over_ = true;
    for (const auto& r : roles_) {
      for (const auto& i : r->instances) kill(*i);
    }
    time_.run_ready();
  }
  void kill(instance& i) {
    if (i.process.dead()) return;
    time_.kill(i.process);
    i.tasks.cancel();
  }
  std::string who(const instance& i) const {
    return i.of->name + (i.of->kind == role::rank ? "." + std::to_string(i.of->index) : "") + "#" + std::to_string(i.process.number() & 255);
  }
  instance* find(const sim_process* p) {
    if (!p) return nullptr;
    return roles_[p->number() / 256]->instances[p->number() & 255].get();
  }
  std::string who_waits() {
    std::string text;
    for (const auto& r : roles_) {
      if (!is_done(*r)) text += "; " + r->name + "." + std::to_string(r->index) + (r->running() ? " runs" : " does not run");
    }
    return text;
  }

  // ---- processes ------------------------------------------------------------------------------------------------------------------

  static asio::awaitable<void> live(sim_world* w, instance* me) {
    std::optional<failure> failed;
    try {
      switch (me->of->kind) {
        case role::producer: co_await w->produce(*me); break;
        case role::rank: co_await w->train(*me); break;
        case role::janitor: co_await w->delete_versions(*me); break;
      }
    } catch (const error& e) {
      failed = e.failure();
    } catch (const boost::system::system_error& e) {
      if (e.code() != asio::error::operation_aborted) w->checker_.violated(std::string("an exception left a role: ") + e.what());
    } catch (const std::exception& e) {
      w->checker_.violated(std::string("an exception left a role: ") + e.what());
    }
    me->running = false;
    if (w->over_) co_return;
    if (failed && !me->process.dead()) w->judge(*me, *failed);
    if (!w->is_done(*me->of)) w->start_later(*me->of);
  }

  // Failures that a role may report while its store fails; all else is a violation.
  void judge(instance& me, const failure& f) {
    note([&] { return who(me) + " stops: " + f.what(); });
    if (f.code() == errc::fenced && me.of->kind == role::producer) {
      ++counts_.fenced;
    } else if (f.code() == errc::undecided && me.of->kind == role::producer) {
      ++counts_.undecided;
    } else if (f.code() == errc::stream_closed && me.of->kind == role::producer) {
      ++counts_.stream_was_closed;
      if (!checker_.stream_closed()) checker_.violated("I9: " + who(me) + " was told that the stream has ended: " + f.what());
    } else if (f.kind() == error_kind::retry_later) {
      ++counts_.gave_up;
    } else if (f.code() == errc::reclaimed && me.of->kind == role::rank && me.of->cursor < checker_.trim_step()) {
      ++counts_.reclaimed;
      me.of->cursor = me.of->used = checker_.trim_step();
    } else {
      checker_.violated("a failure that no fault explains, of " + who(me) + ": " + f.what());
    }
  }

  asio::awaitable<void> produce(instance& me) {
    switch (plant_) {
      case sim_plant::skip_landed_check: return produce_with<planted_rules<sim_plant::skip_landed_check>, sim_policy<false>>(me);
      case sim_plant::overwrite_version: return produce_with<planted_rules<sim_plant::overwrite_version>, sim_policy<false>>(me);
      case sim_plant::early_commit: return produce_with<planted_rules<sim_plant::early_commit>, sim_policy<false>>(me);
      case sim_plant::forget_epoch: return produce_with<planted_rules<sim_plant::forget_epoch>, sim_policy<false>>(me);
      case sim_plant::open_without_epoch: return produce_with<planted_rules<sim_plant::open_without_epoch>, sim_policy<false>>(me);
      default: break;
    }
    if (plan_.shares) return produce_with<commit::rules, sim_policy<true>>(me);
    return produce_with<commit::rules, sim_policy<false>>(me);
  }

  template <class Rules, class Policy>
  asio::awaitable<void> produce_with(instance& me) {
    const std::string name = me.of->name;
    const std::uint32_t number = me.process.number();
    random64 r = plan_.draws(0x9d0d + number);
    producer_options options(name);
    options.clock(sim_clock(time_, &me.process)).seed(r()).give_up_after(plan_.patience).uploads_in_flight(plan_.uploads_in_flight);
    Policy policy(plan_.policy[me.of->index]);
    sim_store store(bucket_, &me.process);
    auto producer = co_await open_producer<manifest::builtin_codecs, Rules>(store, options, policy);
    const std::uint64_t epoch = producer.epoch();
    const std::uint64_t first = producer.next_seq();
    const std::string state(producer.state());
    ++counts_.opened;
    counts_.restored += !state.empty();
    note([&] { return who(me) + " is open: epoch " + std::to_string(epoch) + ", next seq " + std::to_string(first) + ", state '" + state + "'"; });
    checker_.opened(name, epoch, first, state);
    std::uint64_t item = state.empty() || plant_ == sim_plant::forget_state ? 0 : std::stoull(state);
    any_clock clock = options.clock();
    while (item < plan_.batches[me.of->index]) {
      checker_.publishes(name, epoch, producer.next_seq(), item, number);
      std::vector<byte_buffer> slices;
      for (std::uint32_t k = 0; k < plan_.slices; ++k) {
        const std::string text = sim_checker::content(name, item, number, k);
        slices.push_back(byte_buffer::copy_of(as_bytes(text)));
      }
      global_batch batch(std::move(slices));
      co_await producer.publish(std::move(batch), sim_checker::state_after(item, number));
      ++item;
      checker_.acknowledged(name, epoch, first, producer.committed_seq());
      if (r() % 4 == 0) {
        const std::uint64_t all = producer.next_seq();
        co_await producer.flush();
        if (producer.committed_seq() < all) checker_.violated("I9: flush returned before everything was committed");
        checker_.acknowledged(name, epoch, first, producer.committed_seq());
      }
      if (plan_.think > duration(0)) {
        const double factor = r.uniform(0, 2);
        co_await clock.wait_for(duration(static_cast<duration::rep>(static_cast<double>(plan_.think.count()) * factor)));
      }
    }
    co_await producer.close();
    ++counts_.closed;
    note([&] { return who(me) + " is closed"; });
    checker_.acknowledged(name, epoch, first, producer.committed_seq());
    checker_.closed(name, epoch);
  }

  asio::awaitable<void> train(instance& me) {
    role& it = *me.of;
    const std::string name = "group " + it.name + " rank " + std::to_string(it.index);
    random64 r = plan_.draws(0xc0de + me.process.number());
    std::uint64_t step = it.cursor;
    consumer_options options(it.name);
    options.rank(it.index).world_size(plan_.ranks).poll_interval(plan_.poll).give_up_after(plan_.patience);
    options.prefetch(1 + r() % 4).clock(sim_clock(time_, &me.process)).seed(r());
    if (step == 0) options.start_at(0);
    else options.start(cursor(checker_.stream().id, step));
    sim_store store(bucket_, &me.process);
    auto rank = co_await open_consumer(store, options);
    for (;;) {
      if (plant_ == sim_plant::cursor_ahead) it.cursor = step + 1;
      std::optional<slice> got = co_await rank.next();
      if (!got) break;
      checker_.delivered(name, it.index, plan_.ranks, step, *got);
      if (step > it.used) checker_.violated("a step is missing: " + name + " goes on at step " + std::to_string(step) + ", it used " + std::to_string(it.used));
      ++counts_.delivered;
      ++step;
      it.used = std::max(it.used, step);
      if (rank.cursor().next_step() != step) checker_.violated("I2: the cursor of " + name + " says " + std::to_string(rank.cursor().next_step()));
      if (r() % 2) it.cursor = step;
    }
    checker_.ended(name, step);
    it.done = true;
    note([&] { return who(me) + " has reached the end"; });
  }

  // A wrong process: deletes all versions but the newest two.
  asio::awaitable<void> delete_versions(instance& me) {
    sim_store store(bucket_, &me.process);
    any_clock clock{sim_clock(time_, &me.process)};
    for (;;) {
      co_await clock.wait_for(std::chrono::seconds(1));
      const std::uint64_t newest = checker_.versions();
      std::vector<std::string> keys;
      for (std::uint64_t v = 1; v + 2 <= newest; ++v) keys.push_back(manifest::log_key(v));
      [[maybe_unused]] result<std::vector<remove_failure>> left = co_await store.remove(std::move(keys));
    }
  }
  // A wrong client: takes the same batches to the next version.
  static asio::awaitable<void> write_next_version(sim_world* w, instance* me, std::vector<std::byte> body) {
    result<manifest::version> v = manifest::decode_version(body);
    ++v->number;
    sim_store store(w->bucket_, &me->process);
    const std::vector<std::byte> bytes = manifest::encode_version(*v, w->checker_.stream().codec);
    const const_buffers pieces{const_bytes(bytes)};
    const std::string key = manifest::log_key(v->number);
    const put_condition absent = put_condition::if_absent();
    [[maybe_unused]] result<put_outcome> put = co_await store.put(key, pieces, absent);
  }
  // A wrong client: cleans up after a commit that, it thinks, failed.
  static asio::awaitable<void> remove_batches(sim_world* w, instance* me, std::vector<std::byte> body) {
    result<manifest::version> v = manifest::decode_version(body);
    std::vector<std::string> keys;
    for (const manifest::tgb_entry& e : v->entries) keys.push_back(manifest::tgb_key(e.producer, e.epoch, e.seq));
    sim_store store(w->bucket_, &me->process);
    [[maybe_unused]] result<std::vector<remove_failure>> left = co_await store.remove(std::move(keys));
  }

  // ---- hooks of the store -----------------------------------------------------------------------------------------------------------

  sim_fault fault(const sim_request& q) override {
    instance* const me = find(q.process);
    if (!me || over_) return sim_fault();
    random64 r = plan_.draws(sim_plan::fault_id(q, false));
    const sim_mishap m = plan_.mishap_of(q, bucket_.operations(), r);
    sim_fault f;
    if (m != sim_mishap::none && happens(m, *me, r, f)) {
      ++counts_.mishap[static_cast<std::size_t>(m)];
      faults_.push_back(sim_plan::fault_id(q, true));
      note([&] { return who(*me) + ": " + std::string(sim_mishap_names[static_cast<std::size_t>(m)]); });
      if (f.what != sim_fault::kind::none) return f;
    }
    const sim_trouble t = plan_.trouble_of(q, bucket_.operations(), r);
    if (t != sim_trouble::none) {
      ++counts_.trouble[static_cast<std::size_t>(t)];
      faults_.push_back(sim_plan::fault_id(q, false));
      note([&] { return who(*me) + ": the next request meets: " + std::string(sim_trouble_names[static_cast<std::size_t>(t)]); });
      f = plan_.fault_for(t, r);
    }
    return f;
  }

  bool happens(sim_mishap m, instance& me, random64& r, sim_fault& f) {
    using kind = sim_fault::kind;
    switch (m) {
      case sim_mishap::none: return false;
      case sim_mishap::crash_before: f.what = kind::crash_before; return true;
      case sim_mishap::crash_sent: f.what = kind::crash_sent; return true;
      case sim_mishap::crash_applied: f.what = kind::crash_applied; return true;
      case sim_mishap::stall: me.process.stall_until(time_.now() + plan_.long_time(std::chrono::seconds(1), r)); return true;
      case sim_mishap::twin: {
        if (me.of->kind != role::producer) return false;
        role* const it = me.of;
        time_.after(duration(static_cast<duration::rep>(r.uniform(0, 2e8))), [this, it] { start(*it); });
        return true;
      }
      case sim_mishap::wall_jump: me.process.jump_wall(duration(static_cast<duration::rep>(r.uniform(-1e13, 1e13)))); return true;
    }
    return false;
  }

  void crash(sim_process& p) override {
    instance* const me = find(&p);
    note([&] { return who(*me) + " is dead"; });
    kill(*me);
  }

  void asked(const sim_request& q) override {
    note([&] { return name_of(q) + " asks: " + to_string(q.verb) + " " + readable(q); });
    if (is_commit(q)) ++counts_.commits_tried;
    if (q.verb == op::put && q.key.starts_with("inbox/")) ++counts_.announced;
    checker_.asked(q);
  }
  void reached(const sim_request& q, const std::vector<std::byte>* before, bool done) override {
    mix(static_cast<std::uint64_t>(q.verb) << 1 | static_cast<std::uint64_t>(done));
    mix(static_cast<std::uint64_t>(time_.now().time_since_epoch().count()));
    mix(xxh3(as_bytes(q.key)));
    if (q.verb != op::put && q.verb != op::remove) return;
    note([&] { return name_of(q) + (done ? " took effect: " : " did nothing: ") + to_string(q.verb) + " " + readable(q); });
    if (q.verb == op::put && done) checker_.written(q, before);
    if (is_commit(q) && done) supervise();
    if (q.verb == op::remove) checker_.removed(q.key, before != nullptr);
  }
  void answered(const sim_request& q, const sim_fault& f, bool success, bool applied) override {
    note([&] {
      return name_of(q) + " is told: " + to_string(q.verb) + " " + readable(q) +
             (!success ? ": failed, " + std::string(make_error_code(f.code).message()) : q.verb == op::put && !applied ? ": condition failed" : "");
    });
    if (q.verb == op::put && success && applied) checker_.acknowledged_put(q.key);
    if (!is_commit(q)) return;
    if (success) {
      ++(applied ? counts_.commits_won : counts_.commits_lost);
      return;
    }
    if (f.outcome != fate::unknown) return;
    unknown_put u;
    u.number = manifest::parse_log_key(q.key).value_or(0);
    u.hash = xxh3(q.body);
    unknown_.push_back(u);
    instance* const me = find(q.process);
    const bool conflict = f.status == 409;
    if (plant_ == (conflict ? sim_plant::conflict_is_lost : sim_plant::next_key_after_unknown)) {
      me->tasks.spawn(write_next_version(this, me, q.body));
    }
    if (plant_ == sim_plant::clean_after_unknown && !conflict) me->tasks.spawn(remove_batches(this, me, q.body));
  }

  static bool is_commit(const sim_request& q) { return q.verb == op::put && !q.body.empty() && q.key.starts_with("log/"); }
  void settle_unknown() {
    for (const unknown_put& u : unknown_) {
      const std::uint64_t there = checker_.version_hash(u.number);
      ++counts_.unknown;
      ++(there == u.hash ? counts_.unknown_ours : there ? counts_.unknown_others : counts_.unknown_nothing);
    }
  }

  void mix(std::uint64_t v) {
    hash_ ^= v + 0x9e3779b97f4a7c15u + (hash_ << 6) + (hash_ >> 2);
    hash_ *= 0xff51afd7ed558ccdu;
    hash_ ^= hash_ >> 33;
  }
  template <class Text>
  void note(Text text) {
    if (traced_) trace_.push_back(seconds(time_.now()) + "  " + text());
  }
  std::string name_of(const sim_request& q) {
    const instance* const me = find(q.process);
    return (me ? who(*me) : std::string("world")) + " op " + std::to_string(q.number);
  }
  static std::string readable(const sim_request& q) {
    const auto version = manifest::parse_log_key(q.key);
    std::string text = version ? "version " + std::to_string(*version) : q.key;
    if (q.verb != op::put || !version) return text;
    if (q.body.empty()) return text + " (a tombstone)";
    result<manifest::version> v = manifest::decode_version(q.body);
    if (!v) return text + " (does not decode)";
    for (const auto& e : v->entries) text += " +" + e.producer + "/" + std::to_string(e.epoch) + "/" + std::to_string(e.seq);
    for (const auto& e : v->events) text += " !" + std::string(manifest::event_names[static_cast<std::size_t>(e.kind)]) + " " + e.producer + e.group;
    return text;
  }

  static constexpr time_point start_{std::chrono::hours(1)};
  sim_plan plan_;
  sim_plant plant_;
  bool traced_;
  asio::io_context io_;
  sim_timeline time_;
  sim_bucket bucket_;
  sim_checker checker_;
  std::vector<std::unique_ptr<role>> roles_;
  bool over_ = false;
  time_point calm_{};
  std::uint64_t hash_ = 0;
  std::vector<std::uint64_t> faults_;
  std::vector<std::string> trace_;
  std::vector<unknown_put> unknown_;
  sim_counts counts_;
};

}  // namespace batchweave::testing
