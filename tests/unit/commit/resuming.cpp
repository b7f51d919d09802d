// Cursors, passes, world sizes and restarts: what a trainer that stops and goes on must see.
#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/base/checksum.hpp>
#include <batchweave/base/prometheus.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/file.hpp>
#include <batchweave/store/instrumented.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/faulty_store.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;
using namespace std::chrono_literals;
using bw::testing::op;
using store_t = bw::testing::faulty_store<bw::memory_store>;

namespace {

constexpr std::uint32_t slices = 6;

bw::global_batch batch_of(const std::string& text, std::size_t pad = 0) {
  std::vector<bw::byte_buffer> s;
  for (std::uint32_t k = 0; k < slices; ++k) {
    const std::string slice = text + "/" + std::to_string(k) + std::string(pad, '.') + ";";
    s.push_back(bw::byte_buffer::copy_of(bw::as_bytes(slice)));
  }
  return bw::global_batch(std::move(s));
}

template <class S>
asio::awaitable<void> fill(S store, int steps, std::size_t pad = 0, bool close = true) {
  bw::stream_options stream;
  stream.slices(slices);
  co_await bw::create_stream(store, stream);
  bw::producer_options options("p");
  auto p = co_await bw::open_producer(store, options, bw::commit::eager());
  for (int i = 0; i < steps; ++i) {
    co_await p.publish(batch_of("s" + std::to_string(i), pad));
    co_await p.flush();
  }
  if (close) co_await p.close();
  else co_await p.detach();
}

bw::consumer_options rank_of(std::uint32_t rank, std::uint32_t world) {
  bw::consumer_options o("run");
  o.rank(rank).world_size(world).poll_interval(5ms).max_wait(20s);
  return o;
}

// Reads `n` steps, or to the end, with all ranks of a world, and joins their bytes step by step.
template <class S>
asio::awaitable<std::string> read_with(S store, std::uint32_t world, bw::cursor from, int n, bw::cursor& left_at) {
  std::vector<bw::consumer<S>> ranks;
  for (std::uint32_t r = 0; r < world; ++r) {
    bw::consumer_options o = rank_of(r, world);
    o.start(from);
    ranks.push_back(co_await bw::open_consumer(store, o));
  }
  std::string all;
  for (int i = 0; i < n; ++i) {
    bool over = false;
    for (auto& rank : ranks) {
      std::optional<bw::slice> s = co_await rank.next();
      if (!s) over = true;
      else all += bw::as_text(s->bytes());
    }
    if (over) break;
  }
  for (auto& rank : ranks) CHECK(rank.cursor() == ranks[0].cursor());  // one number for all ranks
  left_at = ranks[0].cursor();
  co_return all;
}

asio::awaitable<bw::cursor> beginning(store_t store) {
  const bw::manifest::stream_info info = co_await bw::open_stream(store);
  co_return bw::cursor(info.id, 0);
}

// A store that lists in no order, as S3 Express does: by a hash of the key.
class unordered_store : public bw::memory_store {
 public:
  bw::store_capabilities capabilities() const {
    bw::store_capabilities c;
    c.ordered_list = false;
    return c;
  }
  asio::awaitable<bw::result<bw::list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return shuffled(bw::memory_store(*this), std::move(prefix), std::move(after), max);
  }

 private:
  static std::uint64_t rank(const std::string& key) { return key.empty() ? 0 : bw::xxh3(bw::as_bytes(key)) | 1; }
  static asio::awaitable<bw::result<bw::list_page>> shuffled(bw::memory_store inner, std::string prefix, std::string after, std::size_t max) {
    std::vector<bw::object_info> all;
    std::string at;
    for (;;) {
      bw::result<bw::list_page> page = co_await inner.list(prefix, at, 1000);
      if (!page) co_return page.error();
      for (const auto& o : page->objects()) all.push_back(o);
      if (!page->more()) break;
      at = all.back().key();
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return rank(a.key()) < rank(b.key()); });
    bw::list_page out;
    for (const auto& o : all) {
      if (rank(o.key()) <= rank(after)) continue;
      if (out.objects().size() == max) {
        out.more(true);
        break;
      }
      out.objects().push_back(o);
    }
    co_return out;
  }
};

// Replaces one object between the two requests of a large read.
class replacing_store : public bw::memory_store {
 public:
  replacing_store(std::string key, bw::byte_buffer with)
      : key_(std::move(key)), with_(std::make_shared<bw::byte_buffer>(std::move(with))) {}
  asio::awaitable<bw::result<bw::read_outcome>> get(std::string key, bw::byte_range range, bw::mutable_buffers into) {
    return replaced(bw::memory_store(*this), key_, with_, std::move(key), range, std::move(into));
  }

 private:
  static asio::awaitable<bw::result<bw::read_outcome>> replaced(bw::memory_store inner, std::string which, std::shared_ptr<bw::byte_buffer> with,
                                                                std::string key, bw::byte_range range, bw::mutable_buffers into) {
    bw::result<bw::read_outcome> got = co_await inner.get(key, range, std::move(into));
    if (key == which) {
      const bw::put_condition always;
      const bw::const_buffers body{with->bytes()};
      (co_await inner.put(key, body, always)).value();
    }
    co_return got;
  }
  std::string key_;
  std::shared_ptr<bw::byte_buffer> with_;
};

}  // namespace

TEST_CASE("CN-01 CN-07 a run that stops at any step and goes on with any world size reads the same bytes as one that never stopped") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await fill(store, 12);
    bw::cursor end;
    const bw::cursor from = co_await beginning(store);
    const std::string whole = co_await read_with(store, 1, from, 100, end);
    CHECK(end.next_step() == 12);
    for (std::uint32_t first : {1u, 2u, 3u, 6u}) {
      for (std::uint32_t second : {6u, 3u, 2u, 1u}) {
        for (int stop : {0, 1, 7, 12}) {
          bw::cursor middle;
          const std::string before = co_await read_with(store, first, from, stop, middle);
          const bw::cursor saved = bw::cursor::parse(middle.to_string()).value();
          CHECK(saved.next_step() == static_cast<std::uint64_t>(stop));
          const std::string after = co_await read_with(store, second, saved, 100, end);
          CHECK(before + after == whole);
        }
      }
    }
  }());
}

TEST_CASE("CN-05 CN-08 a second pass starts where it is told, and a cursor of a second pass resumes in it") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await fill(store, 6);
    bw::cursor middle, end;
    const bw::cursor from = co_await beginning(store);
    const std::string first = co_await read_with(store, 2, from, 100, end);
    CHECK(end.next_step() == 6);
    // The first pass restored from its middle and finished; the second starts fresh.
    co_await read_with(store, 2, from, 3, middle);
    co_await read_with(store, 2, middle, 100, end);
    const std::string second = co_await read_with(store, 2, from, 100, end);
    CHECK(second == first);
    // Stopped in the second pass, resumed in it: neither at its beginning nor at the end.
    const std::string head = co_await read_with(store, 2, from, 4, middle);
    const std::string tail = co_await read_with(store, 2, middle, 100, end);
    CHECK(head + tail == first);
    // After the end there is only the end.
    bw::consumer_options o = rank_of(0, 1);
    o.start(end);
    auto done = co_await bw::open_consumer(store, o);
    for (int i = 0; i < 3; ++i) {
      const std::optional<bw::slice> s = co_await done.next();
      CHECK_FALSE(s.has_value());
    }
  }());
}

TEST_CASE("CN-09 the first next() after a restore gives data or an error within its bound") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await fill(store, 4, 0, false);
    const bw::cursor from = co_await beginning(store);
    bw::consumer_options o = rank_of(0, 1);
    o.start(bw::cursor(from.stream(), 4)).max_wait(50ms);
    auto c = co_await bw::open_consumer(store, o);
    bw::result<std::optional<bw::slice>> none = co_await bw::as_result(c.next());
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().code() == bw::errc::waited_too_long);
    CHECK(c.cursor().next_step() == 4);

    store.faults().on(op::get, "").times(1000000).fail_before(bw::errc::store_unavailable);
    o.give_up_after(200ms);
    bw::result<bw::consumer<store_t>> down = co_await bw::as_result(bw::open_consumer(store, o));
    REQUIRE_FALSE(down.has_value());
    CHECK(down.error().what().find("gave up after") != std::string::npos);
  }());
}

TEST_CASE("CN-10 every rank stops at the same step, whenever it looks") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await fill(store, 3, 0, false);
    const bw::cursor from = co_await beginning(store);
    std::vector<bw::consumer<store_t>> ranks;
    for (std::uint32_t r = 0; r < 3; ++r) {
      bw::consumer_options o = rank_of(r, 3);
      o.start(from);
      ranks.push_back(co_await bw::open_consumer(store, o));
    }
    // Rank 0 has caught up before the end is known, rank 1 has read one step, rank 2 none.
    for (int i = 0; i < 3; ++i) co_await ranks[0].next();
    co_await ranks[1].next();
    {
      bw::producer_options options("p");
      auto p = co_await bw::open_producer(store, options, bw::commit::eager());
      co_await p.publish(batch_of("s3"));
      co_await p.publish(batch_of("s4"));
      co_await p.close();
    }
    for (auto& rank : ranks) {
      while (co_await rank.next()) {
      }
      CHECK(rank.cursor().next_step() == 5);
    }
    bw::consumer_options o = rank_of(0, 1);
    o.start(bw::cursor(from.stream(), 6));
    bw::result<bw::consumer<store_t>> beyond = co_await bw::as_result(bw::open_consumer(store, o));
    REQUIRE_FALSE(beyond.has_value());
    CHECK(beyond.error().code() == bw::errc::beyond_end);
  }());
}

TEST_CASE("CN-13 CN-14 256 open readers stay inside one budget, which is free again when they are idle") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await fill(store, 4, 1000);
    const bw::cursor from = co_await beginning(store);
    const std::size_t unit = slices * (1000 + 64);
    bw::memory_budget budget(20 * unit);
    {
      std::vector<bw::consumer<store_t>> readers;
      for (int i = 0; i < 256; ++i) {
        bw::consumer_options o = rank_of(0, 1);
        o.start(from).budget(budget).prefetch(8);
        readers.push_back(co_await bw::open_consumer(store, o));
      }
      for (int step = 0; step < 4; ++step) {
        for (auto& r : readers) {
          const std::optional<bw::slice> s = co_await r.next();
          REQUIRE(s.has_value());
        }
      }
      CHECK(budget.peak() <= budget.total());
      CHECK(budget.peak() > 0);
    }
    CHECK(budget.used() == 0);

    bw::consumer_options o = rank_of(0, 1);
    o.start(from).budget(bw::memory_budget(unit / 2));
    auto tight = co_await bw::open_consumer(store, o);
    bw::result<std::optional<bw::slice>> refused = co_await bw::as_result(tight.next());
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code() == bw::errc::budget_too_small);
  }());
}

TEST_CASE("CN-16 CN-17 opening lists no data, and a cursor costs no request") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await fill(store, 200);
    const bw::cursor from = co_await beginning(store);
    const std::size_t before = store.faults().operations().size();
    bw::consumer_options o = rank_of(0, 1);
    o.start(bw::cursor(from.stream(), 100));
    auto c = co_await bw::open_consumer(store, o);
    const std::size_t opened = store.faults().operations().size();
    CHECK(opened - before <= 20);
    const std::vector<bw::testing::operation> operations = store.faults().operations();
    for (std::size_t i = before; i < opened; ++i) CHECK((operations[i].verb() != op::list || operations[i].key() == "log/"));
    while (co_await c.next()) {
    }
    const std::size_t read = store.faults().operations().size();
    for (int i = 0; i < 1000; ++i) CHECK(c.cursor().next_step() == 200);
    CHECK(store.faults().operations().size() == read);
  }());
}

TEST_CASE("CN-21 a rank killed between fetch and delivery loses no step and sees none twice") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await fill(store, 20);
    const bw::cursor from = co_await beginning(store);
    bw::cursor end;
    const std::string whole = co_await read_with(store, 1, from, 100, end);
    std::string seen;
    bw::cursor at = from;
    bw::any_clock clock;
    for (int life = 0; life < 8; ++life) {
      bw::consumer_options o = rank_of(0, 1);
      o.start(at).prefetch(6);
      auto c = co_await bw::open_consumer(store, o);
      for (int i = 0; i < life; ++i) {
        std::optional<bw::slice> s = co_await c.next();
        if (!s) break;
        seen += bw::as_text(s->bytes());
        at = c.cursor();
      }
      co_await clock.wait_for(2ms);  // more is fetched, and lost with the rank
    }
    CHECK(seen == whole);
  }());
}

TEST_CASE("CN-15 FS-05 what a killed process leaves behind in the folder hinders nobody") {
  test::run([]() -> asio::awaitable<void> {
    const std::filesystem::path root = std::filesystem::temp_directory_path() / ("batchweave-resuming-" + std::to_string(bw::random64()()));
    std::filesystem::create_directories(root);
    bw::file_store store(root.string());
    co_await fill(store, 3);
    std::filesystem::create_directories(root / ".tmp");
    std::ofstream(root / ".tmp" / "half-written.12345") << "half a ver";
    std::ofstream(root / "log" / ".nfs0000001") << "junk";
    const bw::manifest::stream_info info = co_await bw::open_stream(store);
    bw::cursor end;
    const bw::cursor from(info.id, 0);
    const std::string all = co_await read_with(store, 2, from, 100, end);
    CHECK(end.next_step() == 3);
    std::filesystem::remove_all(root);
  }());
}

TEST_CASE("CO-10 a version larger than one read that changes in between is refused, never mixed") {
  test::run([]() -> asio::awaitable<void> {
    const std::string key = "log/big";
    replacing_store store(key, bw::byte_buffer::copy_of(bw::as_bytes(std::string(5000, 'b'))));
    const std::string old(5000, 'a');
    const bw::put_condition always;
    const bw::const_buffers body{bw::as_bytes(old)};
    (co_await store.put(key, body, always)).value();
    bw::result<std::optional<bw::byte_buffer>> read = co_await bw::read_object(store, key, 1000, 10000);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code() == bw::errc::object_changed);
    CHECK(read.error().what().find(key) != std::string::npos);
  }());
}

TEST_CASE("CO-12 on a store that lists in no order the tail is found all the same") {
  test::run([]() -> asio::awaitable<void> {
    bw::instrumented_store<unordered_store> store{unordered_store()};
    co_await fill(store, 70, 0, false);
    bw::producer_options options("q");
    auto q = co_await bw::open_producer(store, options, bw::commit::eager());
    for (int i = 0; i < 5; ++i) co_await q.publish(batch_of("q" + std::to_string(i)));
    co_await q.close();
    bw::producer_options again("p");
    auto p = co_await bw::open_producer(store, again, bw::commit::eager());
    CHECK(p.next_seq() == 70);
    co_await p.close();
    const bw::manifest::stream_info info = co_await bw::open_stream(store);
    const std::uint64_t before = store.counters().head.requests();
    bw::result<bw::commit::tail_view> tail = co_await bw::commit::find_tail(store, info, 0);
    CHECK(tail.value().version->summary.next_step == 75);
    CHECK(store.counters().head.requests() - before <= 16);  // O(log versions)
    bw::cursor end;
    const bw::cursor from(info.id, 0);
    co_await read_with(store, 1, from, 100, end);
    CHECK(end.next_step() == 75);
  }());
}

TEST_CASE("PR-02 PR-03 a producer outlasts a store that is down, and one that gave up goes on from what is committed") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    bw::stream_options stream;
    stream.slices(slices);
    co_await bw::create_stream(store, stream);
    bw::producer_options options("p");
    options.give_up_after(2s);
    {
      auto p = co_await bw::open_producer(store, options, bw::commit::eager());
      store.faults().on(op::put, "tgb/").times(3).fail_before(bw::errc::store_unavailable);
      store.faults().on(op::put, "log/").times(2).fail_before(bw::errc::throttled);
      co_await p.publish(batch_of("b0"), "after b0");
      co_await p.flush();  // down for a moment: it recovers by itself
      store.faults().on(op::put, "log/").times(1).apply_then_fail(bw::errc::connection_lost);
      store.faults().on(op::put, "log/").times(1000000).lose(bw::errc::connection_lost);
      co_await p.publish(batch_of("b1"), "after b1");
      bw::result<void> gave_up = co_await bw::as_result(p.flush());
      REQUIRE_FALSE(gave_up.has_value());
      CHECK(gave_up.error().code() == bw::errc::undecided);
      CHECK(gave_up.error().what().find("re-open") != std::string::npos);
      bw::result<std::uint64_t> after = co_await bw::as_result(p.publish(batch_of("b2"), "after b2"));
      CHECK_FALSE(after.has_value());
    }
    store.faults().clear_rules();
    auto p = co_await bw::open_producer(store, options, bw::commit::eager());
    CHECK(p.state() == "after b1");
    CHECK(p.next_seq() == 2);
    co_await p.publish(batch_of("b2"), "after b2");
    co_await p.close();
    bw::cursor end;
    const bw::cursor from = co_await beginning(store);
    const std::string all = co_await read_with(store, 6, from, 100, end);
    CHECK(end.next_step() == 3);
    CHECK(all.find("b1/0;b1/1;b1/2;b1/3;b1/4;b1/5;b2/0;") != std::string::npos);
  }());
}

TEST_CASE("PR-07 PR-08 many batches at once through a small budget make progress; one that can never fit is refused at once") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    bw::stream_options stream;
    stream.slices(slices);
    co_await bw::create_stream(store, stream);
    bw::memory_budget budget(30000);
    bw::producer_options options("p");
    options.budget(budget);
    auto p = co_await bw::open_producer(store, options, bw::commit::eager());
    auto ex = co_await asio::this_coro::executor;
    bw::task_group tasks(ex);
    auto one = [](decltype(p)& producer, int i) -> asio::awaitable<void> { co_await producer.publish(batch_of(std::to_string(i), 1000)); };
    for (int i = 0; i < 64; ++i) tasks.spawn(one(p, i));
    co_await tasks.join();
    bw::result<std::uint64_t> huge = co_await bw::as_result(p.publish(batch_of("huge", 10000)));
    REQUIRE_FALSE(huge.has_value());
    CHECK(huge.error().code() == bw::errc::budget_too_small);
    co_await p.close();
    CHECK(p.committed_seq() == 64);
    CHECK(budget.peak() <= budget.total());
    CHECK(budget.used() == 0);
  }());
}

TEST_CASE("CW-17 a lost race is a count and never a failure") {
  test::run([]() -> asio::awaitable<void> {
    bw::prometheus_metrics sink;
    store_t inner{bw::memory_store()};
    bw::instrumented_store<store_t> store(inner, sink);
    bw::stream_options stream;
    stream.slices(slices).producers(2);
    co_await bw::create_stream(store, stream);
    auto failures = std::make_shared<int>(0);
    bw::producer_options a_options("a"), b_options("b");
    for (bw::producer_options* o : {&a_options, &b_options}) o->metrics(sink).on_wait([failures](const bw::wait_state&) { ++*failures; });
    auto a = co_await bw::open_producer(store, a_options, bw::commit::eager());
    auto b = co_await bw::open_producer(store, b_options, bw::commit::eager());
    auto ex = co_await asio::this_coro::executor;
    bw::task_group tasks(ex);
    auto publish = [](decltype(a)& p) -> asio::awaitable<void> {
      for (int i = 0; i < 30; ++i) {
        co_await p.publish(batch_of("x"));
        co_await p.flush();
      }
    };
    inner.faults().on(op::put, "log/").probability(0.3).condition_fails();
    tasks.spawn(publish(a));
    tasks.spawn(publish(b));
    co_await tasks.join();
    CHECK(a.stats().conflicts() + b.stats().conflicts() > 0);
    CHECK(*failures == 0);
    CHECK(store.counters().put.failures() == 0);
    CHECK(sink.render().find("batchweave_commit_conflicts_total") != std::string::npos);
    inner.faults().clear_rules();
    co_await a.close();
    co_await b.close();
  }());
}
