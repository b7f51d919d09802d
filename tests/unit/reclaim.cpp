// Reclaim over the memory store with scripted faults: what goes, what must stay, and that a run may be killed anywhere.
#include "support/stream_world.hpp"

#include <batchweave/retire.hpp>
#include <batchweave/store/file.hpp>

#include <unistd.h>

#include <filesystem>

using namespace test;

namespace {

// A copy of everything in a store.
asio::awaitable<bw::memory_store> copy_of(store_t from) {
  bw::memory_store copy;
  const auto all = co_await objects(from, std::string());
  for (const auto& [key, size] : all) {
    bw::result<std::optional<bw::byte_buffer>> bytes = co_await bw::read_object(from, key, size, size);
    if (!bytes) throw bw::error(bytes.error());
    const bw::const_buffers body{(*bytes)->bytes()};
    const bw::put_condition always;
    bw::result<bw::put_outcome> put_there = co_await copy.put(key, body, always);
    if (!put_there) throw bw::error(put_there.error());
  }
  co_return copy;
}

// Keys of the TGBs that the log needs: those of all steps from trim_step on, and the last of each producer.
asio::awaitable<std::set<std::string>> needed(store_t store) {
  std::set<std::string> keys;
  const auto now = co_await newest(store);
  const m::stream_info info = co_await bw::open_stream(store);
  for (const auto& p : now->summary.producers) {
    if (!p.last_tgb.producer.empty()) keys.insert(m::tgb_key(p.last_tgb.producer, p.last_tgb.epoch, p.last_tgb.seq));
  }
  std::uint64_t step = now->summary.trim_step;
  const auto take = [&](std::uint64_t first, const std::vector<m::tgb_entry>& entries) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (first + i != step) continue;
      keys.insert(m::tgb_key(entries[i].producer, entries[i].epoch, entries[i].seq));
      ++step;
    }
  };
  for (const m::segment_ref& ref : now->summary.segments) {
    auto entries = co_await bw::commit::read_segment(store, info, ref);
    REQUIRE(entries.has_value());
    REQUIRE(entries->has_value());
    take(ref.first, **entries);
  }
  for (std::uint64_t n = now->summary.oldest_version; n <= now->number; ++n) {
    const bw::result<bw::commit::log_entry> entry = co_await bw::commit::read_version(store, info, n);
    REQUIRE(entry.has_value());
    REQUIRE(entry->what == bw::commit::log_entry::kind::present);
    take(entry->version->first_step, entry->version->entries);
  }
  CHECK(step == now->summary.next_step);
  co_return keys;
}

// I6, CW-15: whatever the log needs is there. With `nothing_else`: and no other TGB.
asio::awaitable<void> check_needed(store_t store, bool nothing_else) {
  const std::set<std::string> wanted = co_await needed(store);
  const auto there = co_await objects(store, "tgb/");
  for (const std::string& key : wanted) {
    INFO(key);
    CHECK(there.count(key) == 1);
  }
  if (nothing_else) CHECK(there.size() == wanted.size());
}

// Dead objects of every kind: trimmed batches, orphans of a fenced incarnation, a segment that lost, marks, an announcement.
asio::awaitable<void> make_litter(store_t store) {
  co_await make_stream(store);
  {
    producer_t p = co_await test::open_producer(store, "p");
    co_await publish(p, "p", 9);
  }
  producer_t p = co_await test::open_producer(store, "p");
  co_await publish(p, "p", 6);
  co_await checkpoint_at(store, "old", 3);
  const bw::reclaim_report first = co_await run_reclaim(store);
  CHECK(first.trim_step == 3);
  CHECK(first.batches.keys == 3);
  co_await put(store, m::tgb_key("p", 1, 9), "never committed");
  co_await put(store, m::tgb_key("p", 1, 10), "never committed");
  co_await put(store, m::tgb_key("p", 2, 15), "in flight");
  co_await put(store, m::inbox_key("p", 1, 9), "fenced");
  co_await put(store, m::inbox_key("p", 2, 14), "committed");
  co_await put(store, m::inbox_key("p", 2, 15), "announced");
  co_await put(store, m::seg_key(0, 2, bw::id128(7, 7)), "lost a race");
  co_await put(store, m::seg_key(3, 100, bw::id128(7, 8)), "not yet named");
  bw::checkpoint_options marking("marking");
  marking.world_size(2).seed(5);
  auto ranks = co_await bw::open_checkpoints(store, marking);
  const bw::cursor at(ranks.stream().id, 11);
  co_await ranks.mark("whole", at, 0);
  co_await ranks.mark("whole", at, 1);
  co_await ranks.mark("half", bw::cursor(ranks.stream().id, 12), 1);
  co_await put(store, m::ckpt_key("left", "c", 1, 5, 0), "a group that is gone");
  co_await checkpoint_at(store, "old", 10);
  co_await publish(p, "p", 3);  // seq 15 of epoch 2 is written over and committed
  co_await put(store, m::tgb_key("p", 2, 18), "in flight");
  co_await put(store, "tgb/not-ours", "foreign");
  co_await put(store, "notes.txt", "foreign");
}

asio::awaitable<void> check_litter_is_gone(store_t store) {
  const auto all = co_await objects(store, std::string());
  CHECK(all.count(m::tgb_key("p", 1, 9)) == 0);
  CHECK(all.count(m::tgb_key("p", 1, 10)) == 0);
  CHECK(all.count(m::tgb_key("p", 2, 18)) == 1);
  CHECK(all.count(m::inbox_key("p", 1, 9)) == 0);
  CHECK(all.count(m::inbox_key("p", 2, 14)) == 0);
  CHECK(all.count(m::seg_key(0, 2, bw::id128(7, 7))) == 0);
  CHECK(all.count(m::seg_key(3, 100, bw::id128(7, 8))) == 1);
  CHECK(all.count(m::ckpt_key("left", "c", 1, 5, 0)) == 0);
  CHECK(all.count("tgb/not-ours") == 1);
  CHECK(all.count("notes.txt") == 1);
  const auto marks = co_await objects(store, "ckpt/");
  CHECK(marks.size() == 1);  // the half one
  const auto now = co_await newest(store);
  CHECK(now->summary.trim_step == 10);
  const auto log = co_await objects(store, "log/");
  CHECK(log.size() == now->number);  // no number was given back
  for (const auto& [key, size] : log) {
    INFO(key);
    CHECK((size == 0) == (*m::parse_log_key(key) < now->summary.oldest_version));
  }
  std::set<std::string> batches = co_await needed(store);
  batches.insert(m::tgb_key("p", 2, 18));
  batches.insert("tgb/not-ours");
  CHECK((co_await objects(store, "tgb/")).size() == batches.size());
  co_await check_whole(store);
}

}  // namespace

TEST_CASE("Without a group nothing is trimmed; with one, what it retains stays and the rest goes") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_stream(w.store);
    producer_t p = co_await test::open_producer(w.store, "p");
    co_await publish(p, "p", 20);
    bw::reclaim_report r = co_await run_reclaim(w.store);
    CHECK(r.batches.keys == 0);
    CHECK(r.trim_step == 0);
    CHECK(r.sealed_step == 20);
    CHECK(r.versions.keys == 21);
    co_await check_whole(w.store);

    co_await checkpoint_at(w.store, "run", 12);
    r = co_await run_reclaim(w.store);
    CHECK(r.trim_step == 12);
    CHECK(r.held_by == "run");
    CHECK(r.batches.keys == 12);
    CHECK(r.batches.bytes > 12 * 16);
    CHECK(r.failed_keys == 0);
    CHECK((co_await objects(w.store, "tgb/")).size() == 8);
    co_await check_whole(w.store);
    r = co_await run_reclaim(w.store);
    CHECK(r.keys() == 0);

    co_await publish(p, "p", 5);
    co_await p.close();
    CHECK((co_await read_steps(w.store, 12, 100)) == expected(12, 25));
  }());
}

TEST_CASE("A stream without a version, without a batch, or closed and read to its end is reclaimed without harm") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_stream(w.store);
    bw::reclaim_report r = co_await run_reclaim(w.store);
    CHECK(r.keys() == 0);
    producer_t p = co_await test::open_producer(w.store, "p");
    r = co_await run_reclaim(w.store);
    CHECK(r.keys() == 0);
    co_await publish(p, "p", 6);
    co_await p.close();
    co_await checkpoint_at(w.store, "run", 6);  // at the very end
    r = co_await run_reclaim(w.store);
    CHECK(r.trim_step == 6);
    CHECK(r.batches.keys == 5);  // the last holds the state
    auto reader = co_await consume_from(w.store, 6);
    CHECK_FALSE((co_await reader.next()).has_value());
    auto none = co_await bw::as_result(consume_from(w.store, 5));
    REQUIRE(none.has_error());
    CHECK(none.error().code() == bw::errc::reclaimed);
    bw::memory_store empty;
    auto missing = co_await bw::as_result(run_reclaim(empty));
    REQUIRE(missing.has_error());
    CHECK(missing.error().code() == bw::errc::stream_missing);
  }());
}

TEST_CASE("RC-12 a run that is killed after any operation is finished by the next, and the stream is whole in between") {
  // Goal: for every N and each way to fail, everything needed is there after the N-th operation, and one clean run ends in the same place.
  bw::memory_store litter;
  test::run([](bw::memory_store s) -> asio::awaitable<void> { co_await make_litter(s); }(litter));
  std::uint64_t operations = 0;
  test::run([](bw::memory_store from, std::uint64_t& n) -> asio::awaitable<void> {
    fault_plan count;
    store_t store{faulty(co_await copy_of(from), count)};
    const bw::reclaim_report r = co_await run_reclaim(store);
    CHECK(r.batches.keys == 8);  // seqs 3 to 9, and what epoch 1 left under seq 9
    CHECK(r.orphans.keys == 1);
    CHECK(r.segments.keys == 1);
    CHECK(r.marks.keys == 3);
    CHECK(r.announcements.keys == 3);  // seq 15 was committed since
    CHECK(r.unknown_keys == 1);
    CHECK(r.failed_keys == 0);
    n = count.count();
    co_await check_litter_is_gone(store);
  }(litter, operations));
  REQUIRE(operations > 20);
  for (int kind = 0; kind < 4; ++kind) {
    for (std::uint64_t n = 1; n <= operations; ++n) {
      CAPTURE(kind, n);
      test::run([](bw::memory_store from, int k, std::uint64_t at) -> asio::awaitable<void> {
        const bw::memory_store memory = co_await copy_of(from);
        fault_plan plan;
        plan.hook([k, at](const bw::testing::operation& o) -> std::optional<action> {
          if (o.number() != at) return std::nullopt;
          if (k == 0) return action::crash_after();
          if (k == 1) return action::crash_before();
          if (k == 2) return action::apply_then_fail(bw::errc::connection_lost);
          return action::lose(bw::errc::throttled);
        });
        try {
          co_await run_reclaim(store_t(faulty(memory, plan)));
        } catch (const bw::testing::crashed&) {
        }
        store_t clean{memory};
        co_await check_needed(clean, false);
        co_await run_reclaim(clean);
        co_await check_litter_is_gone(clean);
      }(litter, kind, n));
    }
  }
}

TEST_CASE("A dry run says what a run would do and changes nothing") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_litter(w.store);
    const auto before = co_await objects(w.store, std::string());
    bw::reclaim_options o = quick_reclaim();
    o.dry_run(true);
    const bw::reclaim_report said = co_await bw::reclaim(w.store, o);
    CHECK(said.dry_run);
    CHECK((co_await objects(w.store, std::string())) == before);
    const bw::reclaim_report did = co_await run_reclaim(w.store);
    CHECK(said.batches == did.batches);
    CHECK(said.orphans == did.orphans);
    CHECK(said.trim_step == did.trim_step);
    CHECK(said.marks == did.marks);
    CHECK(said.announcements == did.announcements);
  }());
}

TEST_CASE("RC-01 RC-02 RC-03 what a producer uploads is left alone until it commits or is fenced, whatever its age and whenever it commits") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_stream(w.store);
    producer_t p = co_await test::open_producer(w.store, "p");
    co_await publish(p, "p", 3);
    // Uploaded, not committed: the commit hangs while reclaim runs.
    bool hang = true;
    w.faults.hook([&hang](const bw::testing::operation& o) -> std::optional<action> {
      if (hang && o.verb() == op::put && o.key().starts_with("log/")) return action::lose(bw::errc::store_unavailable);
      return std::nullopt;
    });
    co_await p.publish(batch_of("p3"), "p state 3");
    store_t reclaimer{w.memory};
    co_await checkpoint_at(reclaimer, "run", 3);
    for (int i = 0; i < 3; ++i) {
      const bw::reclaim_report r = co_await run_reclaim(reclaimer);
      CHECK(r.orphans.keys == 0);
    }
    hang = false;
    co_await p.flush();
    CHECK((co_await read_steps(w.store, 3, 4)) == expected(3, 4));

    // Publishing between the listing and each removal.
    int published = 0;
    bw::task_group publishing(co_await asio::this_coro::executor);
    for (int i = 0; i < 20; ++i) {
      publishing.spawn([](producer_t& producer, int& n) -> asio::awaitable<void> {
        co_await publish(producer, "p", 1);
        ++n;
      }(p, published));
      co_await checkpoint_at(reclaimer, "run", static_cast<std::uint64_t>(3 + i / 2));
      co_await run_reclaim(reclaimer);
      co_await check_needed(reclaimer, false);
      co_await publishing.join();
    }
    CHECK(published == 20);
    co_await check_whole(w.store);
  }());
}

TEST_CASE("RC-04 RC-06 clocks that differ, step back or leap ahead decide nothing") {
  // A wall clock that jumps by a decade at every look; intervals come from a steady one.
  struct wild_clock {
    bw::real_clock real;
    int looks = 0;
    bw::time_point now() { return real.now(); }
    bw::wall_time wall_now() { return real.wall_now() + std::chrono::hours(24 * 3650) * (++looks % 2 ? 1 : -1); }
    asio::awaitable<void> wait_until(bw::time_point t) { return real.wait_until(t); }
  };
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_litter(w.store);
    bw::reclaim_options o = quick_reclaim();
    o.clock(bw::any_clock(wild_clock()));
    co_await bw::reclaim(w.store, o);
    co_await check_litter_is_gone(w.store);
  }());
}

TEST_CASE("RC-08 CN-19 a rank below the trim step is told so at once, at open and in mid-run") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_stream(w.store);
    producer_t p = co_await test::open_producer(w.store, "p");
    co_await publish(p, "p", 12);
    bw::consumer_options slow("run");
    slow.start_at(2).prefetch(1);
    auto lagging = co_await bw::open_consumer(w.store, slow);
    const std::optional<bw::slice> first = co_await lagging.next();
    REQUIRE(first);
    CHECK(first->step() == 2);
    co_await checkpoint_at(w.store, "run", 9);
    co_await run_reclaim(w.store);
    std::optional<bw::failure> why;
    for (int i = 0; i < 3 && !why; ++i) {  // what was fetched ahead is still good
      auto r = co_await bw::as_result(lagging.next());
      if (!r) why = r.error();
    }
    REQUIRE(why);
    CHECK(why->code() == bw::errc::reclaimed);
    CHECK(why->what().find("oldest step left is 9") != std::string::npos);
    CHECK(lagging.cursor().next_step() < 9);

    bw::consumer_options from_cursor("run");
    from_cursor.start(lagging.cursor());
    auto r = co_await bw::as_result(bw::open_consumer(w.store, from_cursor));
    REQUIRE(r.has_error());
    CHECK(r.error().code() == bw::errc::reclaimed);
    CHECK(r.error().what().find("step " + std::to_string(lagging.cursor().next_step()) + " was reclaimed") != std::string::npos);
    CHECK(r.error().what().find("oldest step left is 9") != std::string::npos);
  }());
}

TEST_CASE("RC-09 the floor is the oldest checkpoint that any group retains, and a group without one holds everything") {
  test::run([]() -> asio::awaitable<void> {
    world w;
    co_await make_stream(w.store);
    producer_t p = co_await test::open_producer(w.store, "p");
    co_await publish(p, "p", 20);
    co_await checkpoint_at(w.store, "a", 5, 2);
    co_await checkpoint_at(w.store, "a", 15, 2);
    co_await checkpoint_at(w.store, "b", 18);
    bw::reclaim_report r = co_await run_reclaim(w.store);
    CHECK(r.trim_step == 5);  // "a" may still go back to it
    CHECK(r.held_by == "a");
    bw::checkpoint_options fresh("newcomer");
    fresh.seed(3);
    auto newcomer = co_await bw::open_checkpoints(w.store, fresh);
    co_await checkpoint_at(w.store, "a", 19, 2);
    r = co_await run_reclaim(w.store);
    CHECK(r.trim_step == 5);
    CHECK(r.held_by == "newcomer");
    co_await newcomer.leave();
    r = co_await run_reclaim(w.store);
    CHECK(r.trim_step == 15);
    co_await check_needed(w.store, true);
    co_await check_whole(w.store);
  }());
}

TEST_CASE("RC-10 S3-08 removals go in batches of at most 1000 and no faster than asked; a store that throttles is waited for") {
  test::run([]() -> asio::awaitable<void> {
    struct batches_seen {
      std::vector<std::size_t> sizes;
    };
    auto seen = std::make_shared<batches_seen>();
    struct counting_store : bw::memory_store {
      std::shared_ptr<batches_seen> counted;
      asio::awaitable<bw::result<std::vector<bw::remove_failure>>> remove(std::vector<std::string> keys) {
        counted->sizes.push_back(keys.size());
        return bw::memory_store::remove(std::move(keys));
      }
    };
    counting_store memory;
    memory.counted = seen;
    store_t store{memory};
    co_await make_stream(store);
    {
      producer_t p = co_await test::open_producer(store, "p");
      co_await publish(p, "p", 2);
    }
    for (std::uint64_t i = 2; i < 2503; ++i) co_await put(store, m::tgb_key("p", 1, i), "orphan");
    producer_t p = co_await test::open_producer(store, "p");
    seen->sizes.clear();
    bw::reclaim_report r = co_await run_reclaim(store);
    CHECK(r.orphans.keys == 2501);
    CHECK(seen->sizes == std::vector<std::size_t>{1000, 1000, 501});

    for (std::uint64_t i = 2; i < 42; ++i) co_await put(store, m::tgb_key("p", 1, i), "orphan");
    bw::any_clock clock;
    const bw::time_point begun = clock.now();
    bw::reclaim_options slow = quick_reclaim();
    slow.keys_per_second(200);
    fault_plan throttles;
    throttles.on(op::remove).times(2).fail_before(bw::errc::throttled);
    bw::testing::faulty_store<counting_store> throttled(memory, throttles);
    r = co_await bw::reclaim(throttled, slow);
    CHECK(r.orphans.keys == 40);
    CHECK(clock.now() - begun >= std::chrono::milliseconds(50));  // two waits of at least 25 ms
    CHECK(throttles.count(op::remove) == 3);

    for (std::uint64_t i = 2; i < 62; ++i) co_await put(store, m::tgb_key("p", 1, i), "orphan");
    bw::reclaim_options paced = quick_reclaim();
    paced.keys_per_second(19);
    const bw::time_point paced_from = clock.now();
    r = co_await bw::reclaim(store, paced);
    CHECK(r.orphans.keys == 60);
    CHECK(clock.now() - paced_from >= std::chrono::milliseconds(2000));  // 20 at once, then 19 a second
  }());
}

TEST_CASE("RC-11 in a folder, reclaim removes only what the log gives up, and leaves foreign files alone") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("batchweave-reclaim-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  test::run([](std::filesystem::path root) -> asio::awaitable<void> {
    store_t store{bw::file_store(root)};
    co_await make_litter(store);
    co_await run_reclaim(store);
    co_await check_litter_is_gone(store);
    CHECK((co_await run_reclaim(store)).keys() == 0);
  }(folder));
  std::filesystem::remove_all(folder);
}

TEST_CASE("S3-10 a key that cannot be removed is reported, not counted, and found again by the next run") {
  test::run([]() -> asio::awaitable<void> {
    struct stubborn_store : bw::memory_store {
      std::shared_ptr<std::string> refuses = std::make_shared<std::string>();
      asio::awaitable<bw::result<std::vector<bw::remove_failure>>> remove(std::vector<std::string> keys) {
        return remove_in(*this, std::move(keys));
      }
      static asio::awaitable<bw::result<std::vector<bw::remove_failure>>> remove_in(stubborn_store s, std::vector<std::string> keys) {
        std::vector<bw::remove_failure> failed;
        if (std::erase(keys, *s.refuses) != 0) failed.emplace_back(*s.refuses, bw::failure(bw::errc::access_denied, "AccessDenied"));
        const bw::result<std::vector<bw::remove_failure>> rest = co_await static_cast<bw::memory_store&>(s).remove(std::move(keys));
        if (!rest) co_return rest.error();
        co_return failed;
      }
    };
    stubborn_store memory;
    store_t store{memory};
    co_await make_stream(store);
    producer_t p = co_await test::open_producer(store, "p");
    co_await publish(p, "p", 6);
    co_await checkpoint_at(store, "run", 5);
    *memory.refuses = m::tgb_key("p", 1, 2);
    bw::reclaim_report r = co_await run_reclaim(store);
    CHECK(r.batches.keys == 4);
    REQUIRE(r.failed_keys == 1);
    CHECK(r.failures.front().key() == *memory.refuses);
    CHECK(r.failures.front().why().code() == bw::errc::access_denied);
    memory.refuses->clear();
    r = co_await run_reclaim(store);
    CHECK(r.batches.keys == 1);
    CHECK(r.failed_keys == 0);
  }());
}

TEST_CASE("RC-12 while a dead version cannot be buried, those far above it stay, so that a later run finds it without reading all tombstones") {
  const bool ordered = GENERATE(true, false);
  CAPTURE(ordered);
  test::run([](bool listed_in_order) -> asio::awaitable<void> {
    struct stubborn_store : bw::memory_store {
      explicit stubborn_store(bool o) : in_order(o) {}
      bool in_order;
      std::shared_ptr<std::string> refuses = std::make_shared<std::string>();
      bw::store_capabilities capabilities() const noexcept {
        bw::store_capabilities c;
        c.ordered_list = in_order;
        return c;
      }
      asio::awaitable<bw::result<bw::put_outcome>> put(std::string key, bw::const_buffers body, bw::put_condition condition) {
        return put_in(*this, std::move(key), std::move(body), std::move(condition));
      }
      static asio::awaitable<bw::result<bw::put_outcome>> put_in(stubborn_store s, std::string key, bw::const_buffers body,
                                                                 bw::put_condition condition) {
        if (key != *s.refuses || bw::total_size(body) > 0) co_return co_await static_cast<bw::memory_store&>(s).put(key, body, condition);
        // The answer takes its time; whoever does not wait for it gets far.
        for (int i = 0; i < 5000; ++i) co_await asio::post(asio::use_awaitable);
        co_return bw::failure(bw::errc::access_denied, "AccessDenied").with_fate(bw::fate::did_not_happen);
      }
    };
    stubborn_store memory(listed_in_order);
    store_t store{memory};
    co_await make_stream(store);
    producer_t p = co_await test::open_producer(store, "p");
    co_await publish(p, "p", 200);
    *memory.refuses = m::log_key(20);
    for (int i = 0; i < 3; ++i) {
      const bw::reclaim_report r = co_await run_reclaim(store);
      CHECK(r.failed_keys == 1);
      const auto log = co_await objects(store, "log/");
      for (const auto& [key, size] : log) {
        const std::uint64_t number = *m::parse_log_key(key);
        INFO(number);
        CHECK((size == 0) == (number < 32 && number != 20));
      }
    }
    memory.refuses->clear();
    const bw::reclaim_report r = co_await run_reclaim(store);
    CHECK(r.failed_keys == 0);
    const auto now = co_await newest(store);
    const auto log = co_await objects(store, "log/");
    CHECK(log.size() == now->number);
    for (const auto& [key, size] : log) {
      INFO(key);
      CHECK((size == 0) == (*m::parse_log_key(key) < now->summary.oldest_version));
    }
    co_await check_whole(store);
  }(ordered));
}
