// The stage of one simulated history: processes that start, stall, die and start again, faults by plan, every step held against the model.
#pragma once

#include <batchweave/aio/task_group.hpp>
#include <batchweave/as_result.hpp>
#include <batchweave/testing/sim_checker.hpp>
#include <batchweave/testing/sim_plan.hpp>
#include <batchweave/testing/sim_plants.hpp>
#include <batchweave/testing/sim_result.hpp>
#include <batchweave/testing/sim_store.hpp>

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::testing {

/// Runs one plan to its end; what the processes do is up to the class that derives from it (sim_roles.hpp). Not thread safe; worlds on
/// different threads are independent.
class sim_world : protected sim_hooks {
 public:
  ~sim_world() override { end(); }

  sim_result run() {
    while (!checker_.violation() && !finished()) {
      if (!time_.step() && !finished()) {
        checker_.violated("liveness: nothing is left to do, but the stream has not ended for everybody" + who_waits());
      } else if (takes_too_long()) {
        checker_.violated("liveness: after " + std::to_string(bucket_.operations()) + " operations and " + seconds(time_.now()) +
                          " s, long after the last fault, the stream has not ended for everybody" + who_waits());
      }
    }
    stop();
    if (!checker_.violation()) time_.run();  // what is still on its way must do no harm either
    if (!checker_.violation()) finish();
    time_.run_ready();
    sim_result out;
    out.violation = checker_.violation();
    out.trace_hash = hash_;
    out.faults = std::move(faults_);
    out.trace = std::move(trace_);
    out.virtual_time = time_.now() - start_;
    out.bytes_over_window = bytes_over_window_;
    settle_unknown();
    counts_.operations = bucket_.operations();
    counts_.steps = checker_.steps();
    counts_.versions = checker_.versions();
    counts_.rate_limited = bucket_.throttled();
    checker_.add_to(counts_);
    out.counts = counts_;
    return out;
  }

 protected:
  struct group;
  struct role;
  struct instance {
    instance(role& r, std::uint32_t number, asio::any_io_executor ex) : of(&r), process(number), tasks(std::move(ex)) {}
    role* of;
    sim_process process;
    task_group tasks;
    bool running = true;
    bool superseded = false;  // its group went back without it: it is a zombie and does not know
  };
  struct role {
    enum kind_of { producer, rank, reclaimer, resumer, janitor, retirer };
    kind_of kind = producer;
    std::string name;
    unsigned index = 0;  // of a producer in the plan; of a rank in its group
    unsigned number = 0;
    group* of = nullptr;       // of a rank or a resumer
    bool done = false;
    bool due = false;          // starts again soon
    bool marked = false;       // the place that a rank saved is in a checkpoint that it marked: it must never be reclaimed
    std::uint64_t cursor = 0;  // what a rank saved
    std::uint64_t used = 0;    // steps [0, used) went into the training
    std::vector<std::unique_ptr<instance>> instances;
    bool running() const {
      for (const auto& i : instances) {
        if (i->running && !i->superseded) return true;
      }
      return false;
    }
  };
  struct group {
    std::string name;
    std::vector<role*> ranks;
    role* resumer = nullptr;
    bool going_back = false;
    bool leaving = false;
    std::uint64_t leaves_at = 0;  // step; 0: it stays
    std::optional<std::uint64_t> generation;  // in which it is since it went back
  };

  sim_world(sim_plan plan, sim_plant plant, bool traced)
      : plan_(std::move(plan)), plant_(plant), traced_(traced), io_(1), time_(io_), bucket_(time_, plan_.seed), checker_(describe(plan_), plan_.slice_bytes) {
    const std::string text = manifest::encode_stream_info(checker_.stream());
    const const_bytes bytes = as_bytes(text);
    bucket_.place(manifest::stream_key(), std::vector<std::byte>(bytes.begin(), bytes.end()));
    bucket_.hooks(this).ordered(plan_.ordered);
    if (plan_.log_requests_per_second) bucket_.rate_limit("log/", *plan_.log_requests_per_second);
    random64 r = plan_.draws(1);
    for (std::size_t i = 0; i < plan_.batches.size(); ++i) {
      begin(add_role(role::producer, "p" + std::to_string(i), static_cast<unsigned>(i)), r.uniform(0, 0.5));
    }
    for (unsigned i = 0; i < plan_.reclaimers; ++i) begin(add_role(role::reclaimer, "reclaim" + std::to_string(i), i), r.uniform(0, 2));
    for (unsigned g = 0; g < plan_.groups; ++g) {
      groups_.push_back(std::make_unique<group>());
      group& all = *groups_.back();
      all.name = "g" + std::to_string(g);
      for (unsigned k = 0; k < plan_.ranks; ++k) {
        role& rank = add_role(role::rank, all.name, k);
        rank.of = &all;
        all.ranks.push_back(&rank);
        begin(rank, r.uniform(0, 3));
      }
    }
    for (const auto& g : groups_) {
      g->resumer = &add_role(role::resumer, g->name + ".resumer", 0);
      g->resumer->of = g.get();
      g->resumer->done = true;
    }
    if (plan_.leaves_at && groups_.size() > 1) groups_.back()->leaves_at = plan_.leaves_at;
    if (plant_ == sim_plant::delete_versions) begin(add_role(role::janitor, "janitor", 0), 1);
    if (plan_.retires_after > duration(0) && checker_.stream().producers > 1 && !roles_[plan_.batches.size() - 1]->done) {
      begin(add_role(role::retirer, "retirer", static_cast<unsigned>(plan_.batches.size() - 1)), std::chrono::duration<double>(plan_.retires_after).count());
    }
  }

  /// Ends every process. A class that derives must call it in its destructor: its processes refer to it.
  void end() { stop(); }
  /// What an instance of a role does until it ends, fails or dies.
  virtual asio::awaitable<void> play(instance&) = 0;
  /// After the last role has ended and everything on its way has arrived.
  virtual void finish() {}

  static std::string seconds(time_point t) { return std::to_string(std::chrono::duration<double>(t - start_).count()); }
  std::string who(const instance& i) const {
    return i.of->name + (i.of->kind == role::rank ? "." + std::to_string(i.of->index) : "") + "#" + std::to_string(i.process.number() % most_instances_);
  }
  template <class Text>
  void note(Text text) {
    if (traced_) trace_.push_back(seconds(time_.now()) + "  " + text());
  }
  bool calm() const noexcept { return plan_.calm(bucket_.operations(), time_.now() - start_); }
  /// A soak is not over yet.
  bool goes_on() const noexcept { return time_.now() - start_ < plan_.runs_for; }

  /// The group goes back to a checkpoint: its ranks die, or, when they are stalled, become zombies; a resumer rolls it back.
  void go_back(group& g) {
    if (g.going_back) return;
    g.going_back = true;
    note([&] { return g.name + " goes back"; });
    for (role* r : g.ranks) {
      for (const auto& i : r->instances) {
        if (!i->running || i->superseded) continue;
        i->superseded = true;
        if (i->process.stalled_until() <= time_.now()) kill(*i);
      }
    }
    g.resumer->done = false;
    start_later(*g.resumer);
  }
  /// It is back, at `step`.
  void is_back(group& g, std::uint64_t step, std::uint64_t generation, bool retained) {
    g.resumer->done = true;
    g.going_back = false;
    g.generation = generation;
    for (role* r : g.ranks) {
      r->cursor = r->used = step;
      r->marked = retained;
      r->done = plan_.absent.contains(r->number);
      if (!r->done) start_later(*r);
    }
  }

  /// The group is done with the stream: its ranks end, whether they run or stall, and only then a resumer takes it off the stream.
  void leave(group& g) {
    if (over_ || g.going_back || g.leaving) return;
    g.going_back = g.leaving = true;
    note([&] { return g.name + " leaves"; });
    for (role* r : g.ranks) {
      r->done = true;
      for (const auto& i : r->instances) {
        i->superseded = true;
        kill(*i);
      }
    }
    g.resumer->done = false;
    start_later(*g.resumer);
  }

 private:
  static constexpr std::uint64_t operations_limit = 60'000;
  static constexpr duration time_limit = std::chrono::hours(24 * 7);
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

  // ---- life and death of processes ----------------------------------------------------------------------------------------------

  role& add_role(role::kind_of kind, std::string name, unsigned index) {
    auto r = std::make_unique<role>();
    r->kind = kind;
    r->name = std::move(name);
    r->index = index;
    r->number = static_cast<unsigned>(roles_.size());
    r->done = plan_.absent.contains(r->number);
    roles_.push_back(std::move(r));
    return *roles_.back();
  }
  void begin(role& r, double delay_s) {
    if (r.done) return;
    r.due = true;
    time_.after(duration(static_cast<duration::rep>(delay_s * 1e9)), [this, &r] { start_if_needed(r); });
  }
  void start(role& r) {
    if (over_ || r.instances.size() >= most_instances_) return;
    const auto number = static_cast<std::uint32_t>(r.number * most_instances_ + r.instances.size());
    counts_.restarts += !r.instances.empty();
    r.instances.push_back(std::make_unique<instance>(r, number, io_.get_executor()));
    instance* const me = r.instances.back().get();
    note([&] { return who(*me) + " starts"; });
    me->tasks.spawn(live(this, me));
  }
  void start_if_needed(role& r) {
    r.due = false;
    if (!r.running() && !is_done(r) && !held_back(r)) start(r);
  }
  // Starts again after a while, unless somebody else does the work or nobody needs to.
  void start_later(role& r) {
    if (std::exchange(r.due, true)) return;
    random64 d = plan_.draws(0x51a7 + r.number * 1000 + r.instances.size());
    const duration pause = calm() ? std::chrono::seconds(1) : plan_.long_time(std::chrono::milliseconds(50), d);
    time_.after(pause, [this, &r] { start_if_needed(r); });
  }
  // A producer that nobody runs and that has not ended gets a process: the opening of a dead one may have landed late.
  void supervise() {
    for (const auto& r : roles_) {
      if (r->kind == role::producer && !r->instances.empty() && !r->running() && !is_done(*r)) start_later(*r);
    }
  }
  static bool held_back(const role& r) { return r.kind == role::rank && r.of->going_back; }
  bool is_done(role& r) {
    if (r.kind == role::producer) return r.done || checker_.stream_closed() || checker_.finished(r.name);
    return r.done;
  }
  bool finished() {
    if (!checker_.stream_closed()) return false;
    for (const auto& r : roles_) {
      if ((r->kind == role::rank || r->kind == role::resumer) && !r->done) return false;
    }
    return true;
  }
  bool takes_too_long() {
    if (!calm()) return false;
    if (calm_ == time_point()) {
      calm_ = time_.now();
      calm_operations_ = bucket_.operations();
    }
    const duration passed = time_.now() - calm_;
    const std::uint64_t operations = bucket_.operations() - calm_operations_;
    // A pause drawn before the calm runs to its end, while others keep asking.
    return passed > time_limit || operations > 50 * operations_limit || (operations > operations_limit && passed > 2 * plan_.longest);
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
  instance* find(const sim_process* p) {
    return p ? roles_[p->number() / most_instances_]->instances[p->number() % most_instances_].get() : nullptr;
  }
  std::string who_waits() {
    std::string text;
    for (const auto& r : roles_) {
      if (!is_done(*r) && r->kind != role::reclaimer && r->kind != role::retirer) {
        text += "; " + r->name + (r->kind == role::rank ? "." + std::to_string(r->index) : "") + (r->running() ? " runs" : " does not run");
      }
    }
    return text;
  }

  static asio::awaitable<void> live(sim_world* w, instance* me) {
    std::optional<failure> failed;
    try {
      co_await w->play(*me);
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
    if (!me->superseded && !w->is_done(*me->of)) w->start_later(*me->of);
  }

  // Failures that a role may report while its store fails; all else is a violation.
  void judge(instance& me, const failure& f) {
    note([&] { return who(me) + " stops: " + f.what(); });
    const role::kind_of kind = me.of->kind;
    if (f.code() == errc::fenced && (kind == role::producer || me.superseded)) {
      ++counts_.fenced;
    } else if (f.code() == errc::undecided && kind != role::rank) {
      ++counts_.undecided;
    } else if (f.code() == errc::stream_closed && kind == role::producer) {
      ++counts_.stream_was_closed;
      if (!checker_.stream_closed()) checker_.violated("I9: " + who(me) + " was told that the stream has ended: " + f.what());
    } else if (f.kind() == error_kind::retry_later || (f.code() == errc::undecided && plan_.reclaimers)) {
      ++counts_.gave_up;
    } else if (f.code() == errc::reclaimed && kind == role::rank && (me.superseded || (me.of->cursor < checker_.trim_step() && !me.of->marked))) {
      ++counts_.reclaimed;
      if (!me.superseded) me.of->cursor = me.of->used = checker_.trim_step();
    } else {
      checker_.violated((f.code() == errc::reclaimed ? "I6: " : "") + std::string("a failure that no fault explains, of ") + who(me) + ": " + f.what());
    }
  }

  // ---- hooks of the store -----------------------------------------------------------------------------------------------------------

  sim_fault fault(const sim_request& q) override {
    instance* const me = find(q.process);
    if (!me || over_ || calm()) return sim_fault();
    random64 r = plan_.draws(sim_plan::fault_id(q, false));
    const sim_mishap m = plan_.mishap_of(q, r);
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
        if (me.of->kind != role::producer && me.of->kind != role::reclaimer) return false;
        role* const it = me.of;
        time_.after(duration(static_cast<duration::rep>(r.uniform(0, 2e8))), [this, it] {
          if (!is_done(*it)) start(*it);
        });
        return true;
      }
      case sim_mishap::wall_jump: me.process.jump_wall(duration(static_cast<duration::rep>(r.uniform(-1e13, 1e13)))); return true;
      case sim_mishap::regroup: {
        if (me.of->kind != role::rank || !plan_.reclaimers || me.superseded) return false;
        group* const g = me.of->of;
        time_.after(duration(static_cast<duration::rep>(r.uniform(0, 2e8))), [this, g] { go_back(*g); });
        return true;
      }
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
    if (q.verb == op::remove) checker_.removed(q.key, before != nullptr);
    if (is_commit(q) && done) supervise();
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
    if (me && plant_ == (conflict ? sim_plant::conflict_is_lost : sim_plant::next_key_after_unknown)) {
      me->tasks.spawn(write_next_version(this, me, q.body));
    }
    if (me && plant_ == sim_plant::clean_after_unknown && !conflict) me->tasks.spawn(remove_batches(this, me, q.body));
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
    for (const auto& e : v->events) {
      text += " !" + std::string(manifest::event_names[static_cast<std::size_t>(e.kind)]) + " " + e.producer + e.group;
      if (!e.checkpoint.empty()) text += " " + e.checkpoint;
      if (e.step) text += " step " + std::to_string(e.step);
    }
    return text;
  }

  static constexpr time_point start_{std::chrono::hours(1)};

 protected:
  sim_plan plan_;
  std::size_t most_instances_ = plan_.runs_for > duration(0) ? 65536 : 256;
  sim_plant plant_;
  bool traced_;
  asio::io_context io_;
  sim_timeline time_;
  sim_bucket bucket_;
  sim_checker checker_;
  sim_counts counts_;
  double bytes_over_window_ = 0;

 private:
  std::vector<std::unique_ptr<role>> roles_;
  std::vector<std::unique_ptr<group>> groups_;
  bool over_ = false;
  time_point calm_{};
  std::uint64_t calm_operations_ = 0;
  std::uint64_t hash_ = 0;
  std::vector<std::uint64_t> faults_;
  std::vector<std::string> trace_;
  std::vector<unknown_put> unknown_;
};

}  // namespace batchweave::testing
