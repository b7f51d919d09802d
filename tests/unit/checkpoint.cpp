// Groups and checkpoints: completion by marks or by one call, retention, roll-back, generations, and restarts of whole runs.
#include "support/stream_world.hpp"

#include <algorithm>

using namespace test;

namespace {

using group_t = bw::checkpoints<store_t>;

asio::awaitable<group_t> join(store_t store, std::string group, std::uint32_t world_size, std::uint32_t keep = 2) {
  bw::checkpoint_options o(std::move(group));
  o.world_size(world_size).keep(keep).give_up_after(std::chrono::seconds(20)).seed(next_seed());
  co_return co_await bw::open_checkpoints(store, o);
}

bw::cursor at(const group_t& group, std::uint64_t step) { return bw::cursor(group.stream().id, step); }

std::vector<std::string> ids(const std::vector<bw::retained_checkpoint>& all) {
  std::vector<std::string> names;
  for (const auto& c : all) names.push_back(c.id());
  return names;
}
// A function: braces in an expression that awaits do not compile with g++ 12.
template <class... T>
std::vector<std::string> list(T... names) {
  std::vector<std::string> all;
  (all.emplace_back(names), ...);
  return all;
}

// A stream of `n` steps.
asio::awaitable<void> make_steps(store_t store, int n) {
  co_await make_stream(store);
  producer_t p = co_await test::open_producer(store, "p");
  co_await publish(p, "p", n);
}

template <class T>
bw::failure why(bw::result<T> r) {
  return r ? bw::failure(bw::errc::bug, "it worked") : r.error();
}

bool says(const bw::failure& f, const std::string& text) { return f.what().find(text) != std::string::npos; }

}  // namespace

TEST_CASE("A checkpoint is complete with the last mark, whoever writes it and however often") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_steps(w.store, 10);
    group_t rank0 = co_await join(w.store, "run", 3);
    group_t rank1 = co_await join(w.store, "run", 3);
    group_t rank2 = co_await join(w.store, "run", 3);
    CHECK(rank1.generation() == rank0.generation());
    bool done = co_await rank2.mark("c1", at(rank2, 4), 2);
    CHECK_FALSE(done);
    done = co_await rank2.mark("c1", at(rank2, 4), 2);
    CHECK_FALSE(done);
    done = co_await rank0.mark("c1", at(rank0, 4), 0);
    CHECK_FALSE(done);
    CHECK((co_await rank0.retained()).empty());
    done = co_await rank1.mark("c1", at(rank1, 4), 1);
    CHECK(done);
    const auto all = co_await rank0.retained();
    REQUIRE(all.size() == 1);
    CHECK(all[0].id() == "c1");
    CHECK(all[0].step() == 4);
    CHECK(all[0].cursor() == at(rank0, 4));
    done = co_await rank0.mark("c1", at(rank0, 4), 0);  // a rank that was not sure repeats it
    CHECK(done);
    const auto version = (co_await newest(w.store))->number;

    // All at once: several see the last mark, one event is committed.
    bw::task_group group(co_await asio::this_coro::executor);
    std::vector<int> saw(3, 0);
    std::vector<group_t*> ranks{&rank0, &rank1, &rank2};
    for (std::uint32_t r = 0; r < 3; ++r) {
      group.spawn([](group_t& g, std::uint32_t rank, int& out) -> asio::awaitable<void> {
        out = co_await g.mark("c2", at(g, 8), rank) ? 1 : 0;
      }(*ranks[r], r, saw[r]));
    }
    co_await group.join();
    CHECK(std::count(saw.begin(), saw.end(), 1) >= 1);
    const auto now = co_await newest(w.store);
    CHECK(now->number == version + 1);
    CHECK(ids(co_await rank2.retained()) == list("c1", "c2"));
  }());
}

TEST_CASE("One call completes a checkpoint, the newest are retained, and one that completes late and old is not") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_steps(w.store, 10);
    group_t run = co_await join(w.store, "run", 0, 2);
    co_await run.complete("c2", at(run, 2));
    co_await run.complete("c2", at(run, 2));
    co_await run.complete("c6", at(run, 6));
    CHECK(ids(co_await run.retained()) == list("c2", "c6"));
    co_await run.complete("c4", at(run, 4));
    CHECK(ids(co_await run.retained()) == list("c4", "c6"));
    co_await run.complete("c3", at(run, 3));
    CHECK(ids(co_await run.retained()) == list("c4", "c6"));
    group_t more = co_await join(w.store, "run", 0, 3);
    co_await more.complete("c8", at(more, 8));
    CHECK(ids(co_await run.retained()) == list("c4", "c6", "c8"));
    group_t one = co_await join(w.store, "run", 0, 1);
    CHECK(ids(co_await one.retained()) == list("c8"));
  }());
}

TEST_CASE("RC-09 roll-back goes to any retained checkpoint and starts a generation in which nothing older counts") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_steps(w.store, 20);
    group_t old0 = co_await join(w.store, "run", 2, 3);
    group_t old1 = co_await join(w.store, "run", 2, 3);
    for (std::uint64_t step = 4; step <= 12; step += 4) {
      co_await old0.mark("c" + std::to_string(step), at(old0, step), 0);
      co_await old1.mark("c" + std::to_string(step), at(old1, step), 1);
    }
    co_await old0.mark("c16", at(old0, 16), 0);  // rank 1 crashes before its mark
    CHECK(says(why(co_await bw::as_result(old0.roll_back("c5"))), "c4, c8, c12"));
    group_t fresh0 = co_await join(w.store, "run", 2, 3);
    const bw::retained_checkpoint back = co_await fresh0.roll_back("c8");
    CHECK(back.step() == 8);
    CHECK(fresh0.generation() > old0.generation());
    CHECK(ids(co_await fresh0.retained()) == list("c4", "c8"));
    const bw::failure late = why(co_await bw::as_result(old1.mark("c16", at(old1, 16), 1)));  // it wakes up
    CHECK(late.code() == bw::errc::fenced);
    CHECK(says(late, "rolled back"));
    CHECK(why(co_await bw::as_result(old1.complete("c16", at(old1, 16)))).code() == bw::errc::fenced);
    // A process of the old run that was stalled while it opened does not join the new one, nor fence it with another world size.
    bw::checkpoint_options stalled("run");
    stalled.world_size(4).keep(3).generation(old0.generation());
    const bw::failure stale = why(co_await bw::as_result(bw::open_checkpoints(w.store, stalled)));
    CHECK(stale.code() == bw::errc::fenced);
    CHECK(says(stale, "this process belongs to generation " + std::to_string(old0.generation())));
    bw::checkpoint_options told("run");
    told.world_size(2).keep(3).generation(fresh0.generation());
    group_t invited = co_await bw::open_checkpoints(w.store, told);
    CHECK(invited.generation() == fresh0.generation());
    // The same names again: the old marks do not count.
    group_t fresh1 = co_await join(w.store, "run", 2, 3);
    CHECK(fresh1.generation() == fresh0.generation());
    const bool done = co_await fresh1.mark("c16", at(fresh1, 16), 1);
    CHECK_FALSE(done);
    CHECK(ids(co_await fresh1.retained()) == list("c4", "c8"));
    const bool both = co_await fresh0.mark("c16", at(fresh0, 16), 0);
    CHECK(both);
    CHECK(ids(co_await fresh1.retained()) == list("c4", "c8", "c16"));
    const auto resumed = co_await fresh0.resume();
    REQUIRE(resumed);
    CHECK(resumed->id() == "c16");
    group_t none = co_await join(w.store, "other", 2);
    CHECK_FALSE((co_await none.resume()).has_value());
  }());
}

TEST_CASE("A checkpoint that all ranks marked is completed by whoever looks next, when the last rank was killed before it said so") {
  // Goal: for every N the last rank is killed in its N-th operation; afterwards the checkpoint is retained if and only if all marks are there.
  for (std::uint64_t n = 1; n < 12; ++n) {
    for (const bool before : {true, false}) {
      CAPTURE(n, before);
      test::run([](std::uint64_t nth, bool crash_before) -> asio::awaitable<void> {
        world w;
        co_await make_steps(w.store, 10);
        group_t rank0 = co_await join(w.store, "run", 2);
        co_await rank0.mark("c1", at(rank0, 4), 0);
        fault_plan plan;
        store_t dying{faulty(w.memory, plan)};
        group_t rank1 = co_await join(dying, "run", 2);
        const std::uint64_t last = plan.count() + nth;
        plan.hook([last, crash_before](const bw::testing::operation& o) -> std::optional<action> {
          if (o.number() != last) return std::nullopt;
          return crash_before ? action::crash_before() : action::crash_after();
        });
        try {
          co_await rank1.mark("c1", at(rank1, 4), 1);
        } catch (const bw::testing::crashed&) {
        }
        const bool marked = (co_await objects(w.store, "ckpt/")).size() == 2;
        CHECK(marked == (nth > 1 || !crash_before));
        group_t restarted = co_await join(w.store, "run", nth % 2 ? 2 : 4);  // the run comes back, perhaps with more ranks
        const auto resumed = co_await restarted.resume();
        CHECK(resumed.has_value() == marked);
        if (resumed) CHECK(resumed->id() == "c1");
      }(n, before));
    }
  }
}

TEST_CASE("Whichever request fails, and however, a mark counts once and a checkpoint completes once") {
  for (int kind = 0; kind < 3; ++kind) {
    for (std::uint64_t n = 1; n < 24; ++n) {
      CAPTURE(kind, n);
      test::run([](int k, std::uint64_t nth) -> asio::awaitable<void> {
        world w;
        co_await make_steps(w.store, 6);
        w.faults.hook([k, last = w.faults.count() + nth](const bw::testing::operation& o) -> std::optional<action> {
          if (o.number() != last) return std::nullopt;
          if (k == 0) return action::fail_before(bw::errc::throttled);
          if (k == 1) return action::lose(bw::errc::connection_lost);
          return action::apply_then_fail(bw::errc::connection_lost);
        });
        group_t rank0 = co_await join(w.store, "run", 2);
        group_t rank1 = co_await join(w.store, "run", 2);
        co_await rank0.mark("c1", at(rank0, 4), 0);
        const bool done = co_await rank1.mark("c1", at(rank1, 4), 1);
        CHECK(done);
        const bw::retained_checkpoint back = co_await rank0.roll_back("c1");
        CHECK(back.step() == 4);
        const auto now = co_await newest(w.store);
        REQUIRE(now->summary.groups.size() == 1);
        const auto& g = now->summary.groups.front();
        CHECK(g.retained.size() == 1);
        CHECK(g.generation == rank0.generation());
        CHECK(now->number == 7 + 3);  // joined, completed, rolled back: each once
      }(kind, n));
    }
  }
}

TEST_CASE("What cannot be a checkpoint is refused with the reason") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_steps(w.store, 10);
    group_t rank0 = co_await join(w.store, "run", 2);
    group_t rank1 = co_await join(w.store, "run", 2);
    co_await rank0.mark("c1", at(rank0, 4), 0);
    const bw::failure apart = why(co_await bw::as_result(rank1.mark("c1", at(rank1, 5), 1)));
    CHECK(apart.code() == bw::errc::invalid_argument);
    CHECK(says(apart, "rank 1 is at step 5"));
    CHECK(says(apart, "rank 0 marked it at step 4"));
    CHECK(why(co_await bw::as_result(rank0.mark("c2", at(rank0, 4), 2))).code() == bw::errc::invalid_argument);
    CHECK(why(co_await bw::as_result(rank0.mark("a/b", at(rank0, 4), 0))).code() == bw::errc::invalid_argument);
    CHECK(why(co_await bw::as_result(rank0.mark("c2", bw::cursor(bw::id128(1, 1), 4), 0))).code() == bw::errc::stream_mismatch);
    CHECK(why(co_await bw::as_result(rank0.complete("c2", bw::cursor()))).code() == bw::errc::stream_mismatch);
    CHECK(why(co_await bw::as_result(rank0.complete("c2", at(rank0, 11)))).code() == bw::errc::beyond_end);
    co_await rank0.complete("c3", at(rank0, 6));
    CHECK(says(why(co_await bw::as_result(rank0.complete("c3", at(rank0, 7)))), "retains a checkpoint c3 at step 6"));
    group_t trainer = co_await join(w.store, "trainer", 0);
    CHECK(says(why(co_await bw::as_result(trainer.mark("c1", at(trainer, 4), 0))), "no world size"));
    co_await trainer.leave();
    co_await run_reclaim(w.store);
    CHECK(why(co_await bw::as_result(rank0.complete("c5", at(rank0, 5)))).code() == bw::errc::reclaimed);
    CHECK(why(co_await bw::as_result(trainer.complete("c1", at(trainer, 8)))).code() == bw::errc::fenced);
    CHECK(why(co_await bw::as_result(trainer.retained())).code() == bw::errc::fenced);
    CHECK(why(co_await bw::as_result(join(w.store, "a b", 1))).code() == bw::errc::invalid_argument);
  }());
}

TEST_CASE("Groups hold the stream independently, a resized one fences its old ranks, a forgotten checkpoint stays forgotten") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_steps(w.store, 20);
    group_t eval = co_await join(w.store, "eval", 0, 1);
    group_t two = co_await join(w.store, "run", 2, 4);
    for (std::uint64_t step = 5; step <= 15; step += 5) {
      co_await two.mark("c" + std::to_string(step), at(two, step), 0);
      co_await two.mark("c" + std::to_string(step), at(two, step), 1);
    }
    CHECK((co_await run_reclaim(w.store)).trim_step == 0);  // "eval" has no checkpoint yet
    co_await eval.complete("e", at(eval, 7));
    CHECK((co_await run_reclaim(w.store)).trim_step == 5);
    co_await two.forget("c5");
    co_await two.forget("c5");
    CHECK(ids(co_await two.retained()) == list("c10", "c15"));
    co_await two.forget("c15");  // its marks lie there no more, or looking would complete it again
    CHECK(ids(co_await two.retained()) == list("c10"));
    CHECK((co_await run_reclaim(w.store)).trim_step == 7);
    CHECK((co_await run_reclaim(w.store)).held_by == "eval");
    co_await eval.leave();
    co_await eval.leave();
    CHECK((co_await run_reclaim(w.store)).trim_step == 10);

    group_t four = co_await join(w.store, "run", 4, 4);
    CHECK(why(co_await bw::as_result(two.complete("late", at(two, 16)))).code() == bw::errc::fenced);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      const bool done = co_await four.mark("c18", at(four, 18), rank);
      CHECK(done == (rank == 3));
    }
    CHECK(ids(co_await four.retained()) == list("c10", "c18"));
  }());
}

TEST_CASE("CN-01 CN-07 CN-21 runs that are killed and resized between checkpoints see what one uninterrupted rank sees") {
  // Goal: six lives of a run with world sizes 1 and 2, each killed somewhere between fetch, delivery and checkpoint; what the model took
  // in, undone by each roll-back, is in the end the whole stream, bit for bit, while reclaim runs behind it.
  test::run([]() -> asio::awaitable<void> {
    world w;
    constexpr std::uint64_t steps = 60;
    co_await make_stream(w.store);
    producer_t p = co_await test::open_producer(w.store, "p");
    co_await publish(p, "p", static_cast<int>(steps));
    co_await p.close();
    std::vector<std::string> whole;
    for (std::uint64_t i = 0; i < steps; ++i) whole.push_back("p" + std::to_string(i) + "/0" + "p" + std::to_string(i) + "/1");

    std::vector<std::string> model;  // what was learnt, one entry a step
    const std::vector<std::uint64_t> killed_at{9, 17, 25, 31, 48, steps + 1};
    for (int life = 0; life < 6; ++life) {
      const std::uint32_t world_size = life % 2 ? 2 : 1;
      std::vector<group_t> groups;
      for (std::uint32_t r = 0; r < world_size; ++r) groups.push_back(co_await join(w.store, "run", world_size, 2));
      const std::optional<bw::retained_checkpoint> from = co_await groups[0].resume();
      for (std::uint32_t r = 1; r < world_size; ++r) groups[r] = co_await join(w.store, "run", world_size, 2);  // behind the barrier
      const std::uint64_t start = from ? from->step() : 0;
      CHECK(from.has_value() == (life > 0));
      REQUIRE(model.size() >= start);
      model.resize(start);  // the model goes back as well
      std::vector<bw::consumer<store_t>> ranks;
      for (std::uint32_t r = 0; r < world_size; ++r) {
        bw::consumer_options o("run");
        o.rank(r).world_size(world_size).prefetch(5).max_wait(std::chrono::seconds(20));
        if (from) o.start(from->cursor());
        else o.start_at(0);
        ranks.push_back(co_await bw::open_consumer(w.store, o));
      }
      for (std::uint64_t step = start; step < killed_at[life]; ++step) {
        std::string bytes;
        std::uint32_t got = 0;
        for (std::uint32_t r = 0; r < world_size; ++r) {
          const std::optional<bw::slice> s = co_await ranks[r].next();
          got += s.has_value();
          if (s) bytes += std::string(bw::as_text(s->bytes()));
        }
        if (got == 0) break;
        CHECK(got == world_size);  // the stream ends at one step for all
        model.push_back(bytes);
        if ((step + 1) % 4 != 0) continue;
        for (std::uint32_t r = 0; r < world_size; ++r) co_await groups[r].mark("c" + std::to_string(step + 1), ranks[r].cursor(), r);
        if ((step + 1) % 8 == 0) co_await run_reclaim(w.store);
      }
    }
    CHECK(model == whole);
    CHECK((co_await newest(w.store))->summary.trim_step == 52);  // reclaim ran last behind step 56
  }());
}
