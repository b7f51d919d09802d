// What the processes of a simulated history do: the library's own roles, used as a training run would use them.
#pragma once

#include <batchweave/checkpoint.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/reclaim.hpp>
#include <batchweave/retire.hpp>
#include <batchweave/testing/sim_policy.hpp>
#include <batchweave/testing/sim_world.hpp>

#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::testing {

/// A world of producers, ranks and reclaimers. `Known`: the planted bugs of the library that it can run, each compiled into it; wrong
/// processes (sim_plants.hpp) need no mention.
template <sim_plant... Known>
class sim_roles final : public sim_world {
 public:
  explicit sim_roles(sim_plan plan, sim_plant plant = sim_plant::none, bool traced = false) : sim_world(std::move(plan), plant, traced) {}
  // The processes refer to this object.
  ~sim_roles() override { end(); }

 private:
  asio::awaitable<void> play(instance& me) override {
    switch (me.of->kind) {
      case role::producer: return produce(me);
      case role::rank: return train(me);
      case role::reclaimer: return reclaim_now_and_then(me);
      case role::resumer: return me.of->of->leaving ? leave_stream(me) : resume(me);
      case role::retirer: return retire_last(me);
      case role::janitor: break;
    }
    return delete_versions(me);
  }

  // ---- producers ----------------------------------------------------------------------------------------------------------------

  asio::awaitable<void> produce(instance& me) {
    std::optional<asio::awaitable<void>> planted;
    static_cast<void>((plant_as_producer<Known>(me, planted) || ...));
    if (planted) return std::move(*planted);
    if (plan_.shares) return produce_with<commit::rules, sim_policy<true>>(me);
    return produce_with<commit::rules, sim_policy<false>>(me);
  }
  template <sim_plant Plant>
  bool plant_as_producer(instance& me, std::optional<asio::awaitable<void>>& out) {
    if constexpr (breaks_producers(Plant)) {
      if (plant_ == Plant) out.emplace(produce_with<planted_rules<Plant>, sim_policy<false>>(me));
    }
    return out.has_value();
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
    const bool was_retired = state.empty() && first > 0;  // it was on its way when it was given up: there is nothing to go on from
    while (!was_retired && (item < plan_.batches[me.of->index] || goes_on())) {
      checker_.publishes(name, epoch, producer.next_seq(), item, number);
      std::vector<byte_buffer> slices;
      for (std::uint32_t k = 0; k < plan_.slices; ++k) {
        const std::string text = checker_.content(name, item, number, k);
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
        co_await clock.wait_for(jittered(plan_.think, r, 0, 2));
      }
    }
    co_await producer.close();
    ++counts_.closed;
    note([&] { return who(me) + " is closed"; });
    checker_.acknowledged(name, epoch, first, producer.committed_seq());
    checker_.closed(name, epoch);
  }

  // ---- ranks --------------------------------------------------------------------------------------------------------------------

  using checkpoints_handle = checkpoints<sim_store>;

  checkpoint_options checkpoint_settings(const std::string& name, instance& me, std::uint64_t seed) {
    checkpoint_options o(name);
    o.world_size(plan_.ranks).keep(plan_.checkpoints_kept).give_up_after(plan_.patience).clock(sim_clock(time_, &me.process)).seed(seed);
    return o;
  }

  // With checkpoints a rank goes on where it marked last, else where it last saved its cursor.
  asio::awaitable<void> train(instance& me) {
    role& it = *me.of;
    const std::string name = "group " + it.name + " rank " + std::to_string(it.index);
    random64 r = plan_.draws(0xc0de + me.process.number());
    const bool marks = plan_.reclaimers > 0;
    std::uint64_t step = it.cursor;
    sim_store store(bucket_, &me.process);
    checkpoints_handle checkpoints;
    if (marks) {
      checkpoint_options settings = checkpoint_settings(it.of->name, me, r());
      if (it.of->generation) settings.generation(*it.of->generation);
      checkpoints = co_await open_checkpoints(store, settings);
      if (me.superseded) co_return;  // it does not pass the barrier of the run that went on without it
      if (it.marked) co_await mark(me, checkpoints, step);  // the process may have died before the mark was there
    }
    consumer_options options(it.name);
    options.rank(it.index).world_size(plan_.ranks).poll_interval(plan_.poll).give_up_after(plan_.patience);
    options.prefetch(1 + r() % 4).clock(sim_clock(time_, &me.process)).seed(r());
    if (step == 0) options.start_at(0);
    else options.start(cursor(checker_.stream().id, step));
    auto rank = co_await open_consumer(store, options);
    for (;;) {
      if (plant_ == sim_plant::cursor_ahead) it.cursor = step + 1;
      std::optional<slice> got = co_await rank.next();
      if (!got) break;
      checker_.delivered(name, it.index, plan_.ranks, step, *got);
      ++counts_.delivered;
      if (!me.superseded && step > it.used) {
        checker_.violated("a step is missing: " + name + " goes on at step " + std::to_string(step) + ", it used " + std::to_string(it.used));
      }
      ++step;
      if (rank.cursor().next_step() != step) checker_.violated("I2: the cursor of " + name + " says " + std::to_string(rank.cursor().next_step()));
      if (!me.superseded) it.used = std::max(it.used, step);
      if (it.of->leaves_at && step >= it.of->leaves_at && !me.superseded) {
        time_.after(duration(0), [this, g = it.of] { leave(*g); });
      }
      if (!marks && r() % 2) it.cursor = step;
      if (marks && step % plan_.checkpoint_every == 0) {
        if (!me.superseded) {
          it.cursor = step;  // the shard of the model is durable before the mark says so
          it.marked = true;
        }
        co_await mark(me, checkpoints, step);
      }
    }
    checker_.ended(name, step);
    note([&] { return who(me) + " has reached the end"; });
    if (!me.superseded) it.done = true;
  }

  asio::awaitable<void> mark(instance& me, checkpoints_handle& handle, std::uint64_t step) {
    const std::string id = "c" + std::to_string(step);
    const cursor at(checker_.stream().id, step);
    checker_.marks(me.of->of->name, handle.generation(), id, step, me.of->index);
    ++counts_.marks;
    const bool complete = co_await handle.mark(id, at, me.of->index);
    if (complete) checker_.completed(me.of->of->name, handle.generation(), id, step);
  }

  // One process for the whole group: back to the newest retained checkpoint, or to one before it.
  asio::awaitable<void> resume(instance& me) {
    group& g = *me.of->of;
    random64 r = plan_.draws(0xbac0 + me.process.number());
    sim_store store(bucket_, &me.process);
    checkpoint_options settings = checkpoint_settings(g.name, me, r());
    auto handle = co_await open_checkpoints(store, settings);
    std::optional<retained_checkpoint> at;
    const std::vector<retained_checkpoint> there = co_await handle.retained();
    if (there.size() > 1 && r() % 2) {
      const std::string id = there.front().id();
      result<retained_checkpoint> back = co_await as_result(handle.roll_back(id));
      if (!back && back.error().code() != errc::invalid_argument) throw error(back.error());
      if (!back) co_return;  // pushed out meanwhile by zombies: once more
      at = *back;
    } else {
      at = co_await handle.resume();
    }
    ++counts_.roll_backs;
    checker_.resumed(g.name, handle.generation(), at ? std::optional<std::uint64_t>(at->step()) : std::nullopt);
    const std::uint64_t step = at ? at->step() : checker_.trim_step();
    note([&] { return g.name + " is back at step " + std::to_string(step); });
    is_back(g, step, handle.generation(), at.has_value());
  }

  asio::awaitable<void> leave_stream(instance& me) {
    group& g = *me.of->of;
    random64 r = plan_.draws(0xbac0 + me.process.number());
    sim_store store(bucket_, &me.process);
    checkpoint_options settings = checkpoint_settings(g.name, me, r());
    auto handle = co_await open_checkpoints(store, settings);
    co_await handle.leave();
    ++counts_.left;
    note([&] { return g.name + " has left"; });
    me.of->done = true;
  }

  // ---- an operator ----------------------------------------------------------------------------------------------------------------

  asio::awaitable<void> retire_last(instance& me) {
    any_clock clock{sim_clock(time_, &me.process)};
    retire_options options("p" + std::to_string(me.of->index));
    options.clock(clock).seed(plan_.seed ^ me.process.number()).give_up_after(plan_.patience);
    for (;;) {
      sim_store store(bucket_, &me.process);
      const auto done = co_await as_result(retire(store, options));
      if (done) break;
      if (done.error().code() != errc::invalid_argument) throw error(done.error());
      co_await clock.wait_for(std::chrono::seconds(1));  // it has not opened yet
    }
    ++counts_.retired;
    note([&] { return options.producer() + " is given up"; });
    me.of->done = true;
  }

  // ---- reclaim ------------------------------------------------------------------------------------------------------------------

  asio::awaitable<void> reclaim_now_and_then(instance& me) {
    random64 r = plan_.draws(0x6c + me.process.number());
    any_clock clock{sim_clock(time_, &me.process)};
    duration pause = std::chrono::milliseconds(500);
    for (;;) {
      co_await clock.wait_for(jittered(pause, r, 0, 2));
      pause = std::min(plan_.longest / 8, pause + pause / 2);
      reclaim_options options;
      options.seal_after(plan_.seal_after).give_up_after(plan_.patience).clock(sim_clock(time_, &me.process)).seed(r()).batch(1 + r() % 8);
      sim_store store(bucket_, &me.process);
      const reclaim_report report = co_await reclaim_planted(store, options);
      ++counts_.reclaims;
      if (plan_.runs_for > duration(0) && report.failed_keys == 0) measure(report);
      note([&] { return who(me) + " has reclaimed"; });
    }
  }
  // The bytes in the bucket over those of the steps from `trim_step` on; a window of a few steps says nothing.
  void measure(const reclaim_report& report) {
    const std::uint64_t window = checker_.steps() - report.trim_step;
    if (window < plan_.checkpoint_every || calm()) return;
    const std::uint64_t bytes = bucket_.bytes() - checker_.in_flight(bucket_.objects());
    const double needed = static_cast<double>(window * plan_.slices * plan_.slice_bytes);
    bytes_over_window_ = std::max(bytes_over_window_, static_cast<double>(bytes) / needed);
  }
  asio::awaitable<reclaim_report> reclaim_planted(sim_store store, reclaim_options options) {
    std::optional<asio::awaitable<reclaim_report>> planted;
    static_cast<void>((plant_as_reclaim<Known>(store, options, planted) || ...));
    if (planted) return std::move(*planted);
    return reclaim(std::move(store), std::move(options));
  }
  template <sim_plant Plant>
  bool plant_as_reclaim(sim_store& store, reclaim_options& options, std::optional<asio::awaitable<reclaim_report>>& out) {
    if constexpr (breaks_reclaim(Plant)) {
      if (plant_ == Plant) out.emplace(reclaim<manifest::builtin_codecs, planted_rules<Plant>>(store, options));
    }
    return out.has_value();
  }

  // Once everybody is gone, one undisturbed reclaim leaves nothing that it could have removed.
  void finish() override {
    if (plan_.reclaimers == 0) return;
    std::exception_ptr thrown;
    reclaim_options options;
    options.seal_after(1).clock(sim_clock(time_)).seed(plan_.seed);
    asio::co_spawn(io_, reclaim_planted(sim_store(bucket_), options), [&thrown](std::exception_ptr e, reclaim_report) { thrown = e; });
    time_.run();
    try {
      if (thrown) std::rethrow_exception(thrown);
      for (const auto& [key, object] : bucket_.objects()) checker_.left_over(key, object.body->size());
    } catch (const std::exception& e) {
      checker_.violated(std::string("the last reclaim failed: ") + e.what());
    }
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
};

}  // namespace batchweave::testing
