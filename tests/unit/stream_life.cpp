// A stream that ages: zombies, buried versions, idle and retired producers, sealed segments, newcomers, everything at once.
#include "support/stream_world.hpp"

#include <batchweave/manifest/segment.hpp>
#include <batchweave/retire.hpp>

#include <algorithm>

using namespace test;

namespace {

// While closed: the first PUT of a version is held back or applied as `first` says, later ones are lost; the client learns nothing.
struct gate {
  explicit gate(action a) : first(a) {}
  action first;
  bool closed = true;
  int met = 0;
};

void guard(fault_plan plan, std::shared_ptr<gate> g, std::uint64_t from_version) {
  plan.hook([g, from_version](const bw::testing::operation& o) -> std::optional<action> {
    if (!g->closed || o.verb() != op::put) return std::nullopt;
    const auto number = m::parse_log_key(o.key());
    if (!number || *number < from_version) return std::nullopt;
    return ++g->met == 1 ? g->first : action::lose(bw::errc::first_byte_timeout);
  });
}

asio::awaitable<void> until_met(std::shared_ptr<gate> g) {
  bw::any_clock clock;
  while (g->met < 2) co_await clock.wait_for(std::chrono::milliseconds(1));
}

}  // namespace

TEST_CASE("CO-01 CO-02 a zombie that wakes after any time finds its version number taken, and loses and breaks nothing") {
  for (const bool fenced_meanwhile : {false, true}) {
    CAPTURE(fenced_meanwhile);
    test::run([](bool fenced) -> asio::awaitable<void> {
      bw::memory_store memory;
      store_t store{memory};
      co_await make_stream(store, 2);
      fault_plan plan;
      faulty stalling(memory, plan);
      producer_t w = co_await test::open_producer(store_t(stalling), "w");
      producer_t p = co_await test::open_producer(store, "p");
      auto g = std::make_shared<gate>(action::apply_later(bw::errc::first_byte_timeout));
      guard(plan, g, 3);
      bw::task_group zombie(co_await asio::this_coro::executor);
      std::optional<bw::failure> outcome;
      zombie.spawn([](producer_t& producer, std::optional<bw::failure>& why) -> asio::awaitable<void> {
        auto r = co_await bw::as_result([](producer_t& q) -> asio::awaitable<void> {
          co_await q.publish(batch_of("w0"), "w state 0");
          co_await q.flush();
        }(producer));
        if (!r) why = r.error();
      }(w, outcome));
      co_await until_met(g);  // it holds base 2 and is stalled; its PUT of version 3 is still on its way
      co_await publish(p, "p", 9);
      co_await checkpoint_at(store, "run", 8);
      std::optional<producer_t> next;
      if (fenced) next = co_await test::open_producer(store, "w");
      co_await run_reclaim(store);
      const bw::result<std::optional<bw::object_info>> version3 = co_await store.head(m::log_key(3));
      REQUIRE(version3.has_value());
      REQUIRE(version3->has_value());
      CHECK((*version3)->size() == 0);  // buried, not gone
      CHECK(plan.held() == 1);
      CHECK((co_await stalling.release_held()) == 0);  // the late PUT finds its key taken
      g->closed = false;
      co_await zombie.join();
      CHECK(outcome.has_value() == fenced);
      if (outcome) CHECK(outcome->code() == bw::errc::fenced);
      const auto now = co_await newest(store);
      const auto* entry = bw::commit::find_producer(now->summary, "w");
      REQUIRE(entry);
      CHECK(entry->next_seq == (fenced ? 0u : 1u));
      const std::vector<std::string> seen = co_await read_steps(store, 8, now->summary.next_step);
      CHECK(seen == (fenced ? std::vector<std::string>{"p8"} : std::vector<std::string>{"p8", "w0"}));
    }(fenced_meanwhile));
  }
}

TEST_CASE("CW-04 an ambiguous version that was buried before its committer looked is decided by the state carried forward") {
  test::run([]() -> asio::awaitable<void> {
    bw::memory_store memory;
    store_t store{memory};
    co_await make_stream(store, 2);
    fault_plan plan;
    producer_t a = co_await test::open_producer(store_t(faulty(memory, plan)), "a");
    producer_t p = co_await test::open_producer(store, "p");
    auto g = std::make_shared<gate>(action::apply_then_fail(bw::errc::connection_lost));
    guard(plan, g, 3);
    bw::task_group group(co_await asio::this_coro::executor);
    group.spawn([](producer_t& producer) -> asio::awaitable<void> {
      co_await producer.publish(batch_of("a0"), "a state 0");
      co_await producer.flush();
    }(a));
    co_await until_met(g);  // version 3 was applied and the reply lost
    co_await publish(p, "p", 9);
    co_await checkpoint_at(store, "run", 0);
    co_await run_reclaim(store);
    const bw::result<std::optional<bw::object_info>> buried = co_await store.head(m::log_key(3));
    REQUIRE(buried.has_value());
    CHECK((*buried)->size() == 0);
    g->closed = false;
    co_await group.join();
    CHECK(a.committed_seq() == 1);
    co_await publish(a, "a", 1);
    const auto now = co_await newest(store);
    const std::vector<std::string> seen = co_await read_steps(store, 0, now->summary.next_step);
    CHECK(seen == std::vector<std::string>{"a0", "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "a1"});
  }());
}

TEST_CASE("PR-01 CN-20 an idle producer finds its state after all its steps are gone, and the newest version is never buried") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_stream(w.store, 2);
    {
      producer_t idle = co_await test::open_producer(w.store, "idle");
      co_await publish(idle, "idle", 4);
    }
    producer_t p = co_await test::open_producer(w.store, "p");
    co_await publish(p, "p", 12);
    co_await checkpoint_at(w.store, "run", 16);
    for (int i = 0; i < 3; ++i) co_await run_reclaim(w.store);
    CHECK((co_await objects(w.store, "tgb/")).size() == 2);  // the last of each
    const auto now = co_await newest(w.store);
    CHECK(now->summary.trim_step == 16);
    auto reader = co_await consume_from(w.store, 16);
    producer_t idle = co_await test::open_producer(w.store, "idle");
    CHECK(idle.next_seq() == 4);
    CHECK(idle.state() == "idle state 3");
    co_await publish(idle, "idle", 1);
    const std::optional<bw::slice> s = co_await reader.next();
    REQUIRE(s);
    CHECK(bw::as_text(s->part(0)) == "idle4/0");
  }());
}

TEST_CASE("A retired producer is fenced, gives up its state, and no longer keeps the stream open") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_stream(w.store, 2);
    producer_t dead = co_await test::open_producer(w.store, "dead");
    co_await publish(dead, "dead", 3);
    bw::retire_options retiring("dead");
    retiring.seed(1);
    co_await bw::retire(w.store, retiring);
    co_await bw::retire(w.store, retiring);
    CHECK((co_await newest(w.store))->summary.producers.front().epoch == 2);
    auto late = co_await bw::as_result(publish(dead, "dead", 1));
    REQUIRE(late.has_error());
    CHECK(late.error().code() == bw::errc::fenced);
    producer_t again = co_await test::open_producer(w.store, "dead");
    CHECK(again.next_seq() == 3);
    CHECK(again.state().empty());
    CHECK(again.epoch() == 3);
    co_await publish(again, "dead", 1);
    co_await bw::retire(w.store, retiring);
    producer_t p = co_await test::open_producer(w.store, "p");
    co_await publish(p, "p", 2);
    co_await p.close();
    auto reader = co_await consume_from(w.store, 0);
    int steps = 0;
    for (;;) {
      const std::optional<bw::slice> s = co_await reader.next();
      if (!s) break;
      ++steps;
    }
    CHECK(steps == 6);
    bw::retire_options nobody("nobody");
    auto unknown = co_await bw::as_result(bw::retire(w.store, nobody));
    REQUIRE(unknown.has_error());
    CHECK(unknown.error().code() == bw::errc::invalid_argument);
  }());
}

TEST_CASE("S3-07 uploads that a fenced incarnation left open are aborted, those of a current one are not") {
  struct upload_store : bw::memory_store {
    std::shared_ptr<std::vector<bw::open_upload>> uploads = std::make_shared<std::vector<bw::open_upload>>();
    asio::awaitable<bw::result<std::vector<bw::open_upload>>> list_uploads(std::string) { return list_in(uploads); }
    asio::awaitable<bw::result<void>> abort_upload(bw::open_upload u) { return abort_in(uploads, std::move(u)); }
    static asio::awaitable<bw::result<std::vector<bw::open_upload>>> list_in(std::shared_ptr<std::vector<bw::open_upload>> all) {
      co_return *all;
    }
    static asio::awaitable<bw::result<void>> abort_in(std::shared_ptr<std::vector<bw::open_upload>> all, bw::open_upload u) {
      std::erase_if(*all, [&](const bw::open_upload& o) { return o.id == u.id; });
      co_return bw::result<void>();
    }
  };
  static_assert(bw::lists_uploads<upload_store> && !bw::lists_uploads<bw::memory_store>);
  test::run([]() -> asio::awaitable<void> {
    upload_store store;
    co_await make_stream(store);
    producer_t first = co_await test::open_producer(store, "p");
    producer_t second = co_await test::open_producer(store, "p");
    store.uploads->emplace_back(m::tgb_key("p", 1, 0), "fenced");
    store.uploads->emplace_back(m::tgb_key("p", 2, 0), "current");
    store.uploads->emplace_back(m::tgb_key("q", 1, 0), "not yet opened");
    store.uploads->emplace_back("tgb/else", "foreign");
    bw::reclaim_options o = quick_reclaim();
    const bw::reclaim_report r = co_await bw::reclaim(store, o);
    CHECK(r.uploads == 1);
    std::set<std::string> left;
    for (const auto& u : *store.uploads) left.insert(u.id);
    CHECK(left == std::set<std::string>{"current", "foreign", "not yet opened"});
  }());
}

TEST_CASE("Producers, ranks, checkpoints, sealers and reclaimers at once: no rank misses a step, nothing needed is gone") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    constexpr int producers = 3;
    constexpr int each = 40;
    co_await make_stream(w.store, producers);
    bw::task_group group(co_await asio::this_coro::executor);
    bool over = false;
    std::uint64_t steps[2] = {0, 0};
    for (int p = 0; p < producers; ++p) {
      group.spawn([](store_t s, std::string id) -> asio::awaitable<void> {
        producer_t producer = co_await test::open_producer(s, id);
        co_await publish(producer, id, each);
        co_await producer.close();
      }(w.store, "p" + std::to_string(p)));
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      group.spawn([](store_t s, std::uint32_t me, std::uint64_t& n, bool& done) -> asio::awaitable<void> {
        bw::checkpoint_options marking("run");
        marking.world_size(2).keep(2).seed(next_seed());
        auto checkpoints = co_await bw::open_checkpoints(s, marking);
        bw::consumer_options o("run");
        o.rank(me).world_size(2).start_at(0).poll_interval(std::chrono::milliseconds(2)).max_wait(std::chrono::seconds(60));
        auto consumer = co_await bw::open_consumer(s, o);
        for (;;) {
          std::optional<bw::slice> got = co_await consumer.next();
          if (!got) break;
          CHECK(got->step() == n);
          ++n;
          if (n % 10 == 0) co_await checkpoints.mark("step-" + std::to_string(n), consumer.cursor(), me);
        }
        if (me == 0) done = true;
      }(w.store, rank, steps[rank], over));
    }
    for (int i = 0; i < 3; ++i) {
      group.spawn([](store_t s, bool& done) -> asio::awaitable<void> {
        bw::any_clock clock;
        while (!done) {
          co_await run_reclaim(s);
          co_await clock.wait_for(std::chrono::milliseconds(3));
        }
      }(w.store, over));
    }
    co_await group.join();
    CHECK(steps[0] == producers * each);
    CHECK(steps[1] == producers * each);
    co_await run_reclaim(w.store);
    const auto now = co_await newest(w.store);
    CHECK(now->summary.trim_step == 110);  // the two last are retained
    CHECK(m::check(*now).empty());
    CHECK((co_await objects(w.store, "tgb/")).size() <= 10 + producers);
    CHECK((co_await objects(w.store, "ckpt/")).empty());
  }());
}

// ---- segments ----------------------------------------------------------------------------------------------------

namespace {

// A log of `versions` versions with `each` entries, as producers would have written it; batches exist for none of them.
asio::awaitable<void> write_log(bw::memory_store store, int versions, std::uint64_t each, bool seal_as_it_grows) {
  const m::stream_info info = co_await bw::open_stream(store);
  bw::result<bw::commit::tail_view> tail = co_await bw::commit::find_tail(store, info, 0);
  m::version v = *tail->version;
  bw::commit::incarnation me("p", 1, bw::id128(1, 1));
  bw::result<m::version> next = bw::commit::propose_open(v, info, "p", me.owner, 0);
  for (int i = 0; i <= versions; ++i) {
    const auto bytes = m::encode_version(*next);
    const bw::const_buffers body{bw::const_bytes(bytes)};
    const bw::put_condition absent = bw::put_condition::if_absent();
    bw::result<bw::put_outcome> put_there = co_await store.put(m::log_key(next->number), body, absent);
    if (!put_there || !put_there->applied()) throw std::runtime_error("a version was there");
    v = std::move(*next);
    if (seal_as_it_grows && i % 64 == 63) {
      bw::seal_options o;
      o.seed(next_seed());
      co_await bw::seal(store, o);
      tail = co_await bw::commit::find_tail(store, info, 0);
      v = *tail->version;
    }
    std::vector<m::tgb_entry> entries;
    for (std::uint64_t k = 0; k < each; ++k) {
      m::tgb_entry e;
      e.producer = "p";
      e.epoch = 1;
      e.seq = v.summary.next_step + k;
      e.layout.count = 2;
      e.layout.alignment = 8;
      e.layout.fixed_size = 64;
      e.footer_offset = e.layout.data_end();
      e.bytes = e.footer_offset + 100;
      entries.push_back(std::move(e));
    }
    bw::commit::commit_request request;
    request.batches(entries).nonce(bw::id128(2, static_cast<std::uint64_t>(i)));
    next = bw::commit::propose_commit(v, info, me, request);
    if (!next) throw bw::error(next.error());
  }
}

// What the index says about every step.
asio::awaitable<std::vector<m::tgb_entry>> all_entries(bw::memory_store s) {
  const auto now = co_await newest(s);
  const m::stream_info info = co_await bw::open_stream(s);
  std::vector<m::tgb_entry> all;
  for (const m::segment_ref& ref : now->summary.segments) {
    const auto entries = co_await bw::commit::read_segment(s, info, ref);
    REQUIRE(entries.has_value());
    REQUIRE(entries->has_value());
    CHECK(ref.first == all.size());
    all.insert(all.end(), (*entries)->begin(), (*entries)->end());
  }
  CHECK(now->summary.sealed_step == all.size());
  for (std::uint64_t n = now->summary.oldest_version; n <= now->number; ++n) {
    const bw::result<bw::commit::log_entry> entry = co_await bw::commit::read_version(s, info, n);
    REQUIRE(entry->version);
    all.insert(all.end(), entry->version->entries.begin(), entry->version->entries.end());
  }
  co_return all;
}

}  // namespace

TEST_CASE("CN-17 a newcomer at any step of a long stream needs at most 6 requests before its first slice, none of them a list of data") {
  test::run([]() -> asio::awaitable<void> {
    bw::memory_store memory;
    co_await make_stream(memory);
    constexpr std::uint64_t each = 50;
    co_await write_log(memory, 2000, each, true);
    const auto now = co_await newest(memory);
    REQUIRE(now->summary.next_step == 2000 * each);
    CHECK(now->summary.segments.size() <= 6);  // 64 versions a seal, doubling
    CHECK(now->summary.sealed_step + 70 * each >= now->summary.next_step);
    const m::stream_info info = co_await bw::open_stream(memory);
    CHECK(m::encode_version(*now, info.codec).size() < 5000);
    std::map<std::uint64_t, std::uint64_t> end_of;  // of the versions that are not sealed
    for (std::uint64_t n = now->summary.oldest_version; n <= now->number; ++n) {
      const bw::result<bw::commit::log_entry> entry = co_await bw::commit::read_version(memory, info, n);
      end_of[n] = entry->version->summary.next_step;
    }
    bw::random64 random(7);
    std::uint64_t most = 0;
    for (int i = 0; i < 150; ++i) {
      std::uint64_t step = random() % now->summary.next_step;
      if (i % 3 == 0) step = now->summary.next_step - 1 - random() % (70 * each);  // among the versions that are not sealed
      CAPTURE(step);
      fault_plan plan;
      bw::consumer_options o("new");
      o.start_at(step).prefetch(1).give_up_after(std::chrono::milliseconds(1));
      auto consumer = co_await bw::open_consumer(store_t(faulty(memory, plan)), o);
      auto r = co_await bw::as_result(consumer.next());
      REQUIRE(r.has_error());
      CHECK(r.error().code() == bw::errc::object_missing);  // the log here has no batches
      std::uint64_t before = 0;
      std::string asked;
      for (const auto& a : plan.operations()) {
        if (a.key().starts_with("tgb/")) {
          CHECK(a.key() == m::tgb_key("p", 1, step));
          break;
        }
        CHECK((a.verb() != op::list || a.key() == "log/"));
        // What follows the version of the step is read ahead, at the same time as the slice.
        const auto number = m::parse_log_key(a.key());
        const auto before_it = number ? end_of.find(*number - 1) : end_of.end();
        if (number && *number != now->number && before_it != end_of.end() && before_it->second > step) continue;
        asked += std::string(to_string(a.verb())) + " " + a.key() + "\n";
        ++before;
      }
      INFO(asked);
      CHECK(before <= 6);
      most = std::max(most, before);
    }
    CHECK(most >= 4);
  }());
}

TEST_CASE("Sealing concurrently, killed anywhere, and merged: the entries of every step stay what they were") {
  bw::memory_store log;
  test::run([](bw::memory_store s) -> asio::awaitable<void> {
    co_await make_stream(s);
    co_await write_log(s, 40, 3, false);
  }(log));
  std::vector<m::tgb_entry> wanted;
  test::run([](bw::memory_store s, std::vector<m::tgb_entry>& out) -> asio::awaitable<void> {
    out = co_await all_entries(s);
  }(log, wanted));
  REQUIRE(wanted.size() == 120);
  for (std::uint64_t n = 1; n < 60; ++n) {
    CAPTURE(n);
    test::run([](bw::memory_store from, std::uint64_t at, const std::vector<m::tgb_entry>& same) -> asio::awaitable<void> {
      bw::memory_store memory;
      const auto all = co_await objects(from, std::string());
      for (const auto& [key, size] : all) {
        bw::result<std::optional<bw::byte_buffer>> bytes = co_await bw::read_object(from, key, size, size);
        co_await put(memory, key, std::string(bw::as_text((*bytes)->bytes())));
      }
      fault_plan plan;
      plan.crash_after(at);
      bw::seal_options o;
      o.after_versions(1).seed(next_seed());
      bw::task_group sealers(co_await asio::this_coro::executor);
      for (int i = 0; i < 3; ++i) {
        sealers.spawn([](store_t s, bw::seal_options mine) -> asio::awaitable<void> {
          try {
            co_await bw::seal(s, mine);
          } catch (const bw::testing::crashed&) {
          }
        }(i == 0 ? store_t(faulty(memory, plan)) : store_t(memory), o));
      }
      co_await sealers.join();
      const std::vector<m::tgb_entry> now = co_await all_entries(memory);
      CHECK(now == same);
      co_await bw::seal(memory, o);
      co_await run_reclaim(memory);
      const std::vector<m::tgb_entry> later = co_await all_entries(memory);
      CHECK(later == same);
      const auto newest_version = co_await newest(memory);
      CHECK((co_await objects(memory, "seg/")).size() == newest_version->summary.segments.size());
    }(log, n, wanted));
  }
}

TEST_CASE("A segment that a trim cut through is merged into the next, and sealing goes on") {
  test::run([]() -> asio::awaitable<void> {
    bw::memory_store memory;
    store_t store{memory};
    co_await make_stream(store);
    producer_t p = co_await test::open_producer(store, "p");
    const auto seal_now = [&]() -> asio::awaitable<void> {
      bw::seal_options o;
      o.after_versions(1).seed(next_seed());
      co_await bw::seal(store, o);
    };
    co_await publish(p, "p", 8);
    co_await seal_now();
    co_await publish(p, "p", 4);
    co_await seal_now();
    auto now = co_await newest(store);
    REQUIRE(now->summary.segments.size() == 2);
    co_await checkpoint_at(store, "run", 5);
    bw::reclaim_options only_trim = quick_reclaim();
    only_trim.seal_after(1000);
    co_await bw::reclaim(store, only_trim);
    co_await publish(p, "p", 12);
    const auto before = co_await objects(store, "seg/");
    co_await seal_now();
    now = co_await newest(store);
    CHECK(now->summary.trim_step == 5);
    CHECK(now->summary.sealed_step == 24);
    REQUIRE(now->summary.segments.size() == 1);
    CHECK(now->summary.segments.front().first == 5);
    CHECK(now->summary.segments.front().end == 24);
    CHECK((co_await objects(store, "seg/")).size() == before.size() + 1);  // one try
    co_await check_whole(store);
    co_await run_reclaim(store);
    CHECK((co_await objects(store, "seg/")).size() == 1);
    co_await check_whole(store);
  }());
}

TEST_CASE("A consumer walks from segments into the versions and stays right while both are merged and buried under it") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_stream(w.store);
    producer_t p = co_await test::open_producer(w.store, "p");
    co_await publish(p, "p", 30);
    co_await run_reclaim(w.store);
    bw::consumer_options o("run");
    o.start_at(0).prefetch(1).max_wait(std::chrono::seconds(20)).poll_interval(std::chrono::milliseconds(2));
    auto consumer = co_await bw::open_consumer(w.store, o);
    std::vector<std::string> seen;
    for (std::uint64_t step = 0; step < 60; ++step) {
      if (step < 30) co_await publish(p, "p", 1);
      if (step % 3 == 0) co_await run_reclaim(w.store);
      const std::optional<bw::slice> s = co_await consumer.next();
      REQUIRE(s);
      const std::string text(bw::as_text(s->part(0)));
      seen.push_back(text.substr(0, text.find('/')));
    }
    CHECK(seen == expected(0, 60));
  }());
}
