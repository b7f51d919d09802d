// Producers and consumers over the memory store with scripted faults: what is published, what is seen, what is decided when a reply is lost.
#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/commit/eager.hpp>
#include <batchweave/commit/every.hpp>
#include <batchweave/commit/fixed_interval.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/faulty_store.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>

#include <map>
#include <set>

namespace bw = batchweave;
namespace asio = boost::asio;
using bw::testing::action;
using bw::testing::fault_plan;
using bw::testing::op;
using store_t = bw::testing::faulty_store<bw::memory_store>;

namespace {

constexpr std::uint32_t slices = 4;

bw::global_batch batch_of(const std::string& text) {
  std::vector<bw::byte_buffer> s;
  for (std::uint32_t k = 0; k < slices; ++k) s.push_back(bw::byte_buffer::copy_of(bw::as_bytes(text + "/" + std::to_string(k))));
  return bw::global_batch(std::move(s));
}

asio::awaitable<void> make_stream(store_t store, std::uint64_t producers = 1) {
  bw::stream_options options;
  options.slices(slices).producers(producers);
  co_await bw::create_stream(store, options);
}

bw::producer_options quick(std::string id) {
  bw::producer_options o(std::move(id));
  o.give_up_after(std::chrono::seconds(20)).seed(7);
  return o;
}

// Every step of the stream as rank 0 of a world of 1 sees it.
asio::awaitable<std::vector<std::string>> read_all(store_t store) {
  bw::consumer_options options("check");
  options.start_at(0).max_wait(std::chrono::seconds(20)).poll_interval(std::chrono::milliseconds(5));
  auto consumer = co_await bw::open_consumer(store, options);
  std::vector<std::string> seen;
  for (;;) {
    std::optional<bw::slice> s = co_await consumer.next();
    if (!s) break;
    CHECK(s->step() == seen.size());
    CHECK(s->parts() == slices);
    seen.emplace_back(bw::as_text(s->part(0)));
  }
  co_return seen;
}

std::vector<std::string> expected(int n, const std::string& name = "b") {
  std::vector<std::string> e;
  for (int i = 0; i < n; ++i) e.push_back(name + std::to_string(i) + "/0");
  return e;
}

asio::awaitable<void> publish_and_close(store_t store, int n) {
  auto producer = co_await bw::open_producer(store, quick("p"), bw::commit::every<1>());
  for (int i = 0; i < n; ++i) co_await producer.publish(batch_of("b" + std::to_string(i)), "state" + std::to_string(i));
  co_await producer.close();
}

// A manifest codec of the user's own: the binary one behind a mark.
struct marked {
  static constexpr std::string_view name = "marked";
  static bool recognises(bw::const_bytes b) { return !b.empty() && b[0] == std::byte{'!'}; }
  static std::vector<std::byte> encode(const bw::manifest::version& v) {
    std::vector<std::byte> out = bw::manifest::binary::encode(v);
    out.insert(out.begin(), std::byte{'!'});
    return out;
  }
  static bw::result<bw::manifest::version> decode(bw::const_bytes b) { return bw::manifest::binary::decode(b.subspan(1)); }
};

bw::errc code_of(const bw::result<void>& r) { return r ? bw::errc::bug : r.error().code(); }

}  // namespace

TEST_CASE("Every rank of every world size reads the same steps") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await make_stream(store);
    co_await publish_and_close(store, 12);
    for (std::uint32_t world : {1u, 2u, 4u}) {
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        bw::consumer_options options("run");
        options.rank(rank).world_size(world).start_at(0);
        auto consumer = co_await bw::open_consumer(store, options);
        std::uint64_t step = 0;
        for (;;) {
          std::optional<bw::slice> s = co_await consumer.next();
          if (!s) break;
          REQUIRE(s->parts() == slices / world);
          std::string want;
          for (std::uint32_t k = 0; k < slices / world; ++k) {
            want += "b" + std::to_string(step) + "/" + std::to_string(rank * (slices / world) + k);
          }
          CHECK(bw::as_text(s->bytes()) == want);
          ++step;
          CHECK(consumer.cursor().next_step() == step);
        }
        CHECK(step == 12);
        CHECK_FALSE((co_await consumer.next()).has_value());
      }
    }
  }());
}

TEST_CASE("CW-01 CW-02 own version applied but the reply was lost: committed once") {
  for (bw::errc lost : {bw::errc::connection_lost, bw::errc::store_unavailable, bw::errc::first_byte_timeout}) {
    test::run([](bw::errc e) -> asio::awaitable<void> {
      store_t store{bw::memory_store()};
      co_await make_stream(store);
      store.faults().on(op::put, "log/").nth(3).apply_then_fail(e);
      co_await publish_and_close(store, 6);
      CHECK((co_await read_all(store)) == expected(6));
    }(lost));
  }
}

TEST_CASE("CW-01 the reply to raising the epoch was lost: the producer is open and not fenced by itself") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await make_stream(store);
    store.faults().on(op::put, "log/").nth(1).apply_then_fail(bw::errc::connection_lost);
    co_await publish_and_close(store, 2);
    CHECK((co_await read_all(store)) == expected(2));
  }());
}

TEST_CASE("CW-05 a version that lands after its time-out is repeated at its own key, never planned anew") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await make_stream(store);
    store.faults().on(op::put, "log/").nth(3).apply_later(bw::errc::first_byte_timeout);
    co_await publish_and_close(store, 4);
    CHECK(store.faults().held() == 1);
    CHECK((co_await store.release_held()) == 0);  // its key is taken
    CHECK((co_await read_all(store)) == expected(4));
  }());
}

TEST_CASE("CW-06 an undecided conflict is retried, not taken for lost") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await make_stream(store);
    store.faults().on(op::put, "log/").nth(2).times(3).lose(bw::errc::store_unavailable);
    co_await publish_and_close(store, 3);
    CHECK((co_await read_all(store)) == expected(3));
  }());
}

TEST_CASE("CW-15 every object that the log names exists, whichever operation fails") {
  // Goal: for every N and every kind of failure of the N-th operation, the run ends and the stream is whole.
  for (int kind = 0; kind < 3; ++kind) {
    for (std::uint64_t n = 1; n < 60; ++n) {
      CAPTURE(kind, n);
      test::run([](int k, std::uint64_t at) -> asio::awaitable<void> {
        bw::memory_store memory;
        store_t clean{memory};
        co_await make_stream(clean);
        fault_plan plan;
        plan.hook([k, at](const bw::testing::operation& o) -> std::optional<action> {
          if (o.number() != at) return std::nullopt;
          if (k == 0) return action::fail_before(bw::errc::throttled);
          if (k == 1) return action::lose(bw::errc::connection_lost);
          return action::apply_then_fail(bw::errc::connection_lost);
        });
        store_t store{memory, plan};
        co_await publish_and_close(store, 3);
        CHECK((co_await read_all(clean)) == expected(3));
      }(kind, n));
    }
  }
}

TEST_CASE("A producer killed at any operation restarts with exactly the committed state") {
  for (std::uint64_t n = 1; n < 40; ++n) {
    CAPTURE(n);
    test::run([](std::uint64_t at) -> asio::awaitable<void> {
      bw::memory_store memory;
      store_t clean{memory};
      co_await make_stream(clean);
      {
        fault_plan plan;
        plan.crash_after(at);
        store_t store{memory, plan};
        try {
          co_await publish_and_close(store, 5);
        } catch (const std::exception&) {
        }
      }
      auto producer = bw::basic_producer<store_t, bw::commit::every<1>>();
      const bw::result<void> opened = co_await [](store_t s, auto& p) -> asio::awaitable<bw::result<void>> {
        auto r = co_await bw::as_result(bw::open_producer(s, quick("p"), bw::commit::every<1>()));
        if (!r) co_return r.error();
        p = std::move(*r);
        co_return bw::result<void>();
      }(clean, producer);
      if (opened) {
        const std::uint64_t next = producer.next_seq();
        CHECK(producer.state() == (next ? "state" + std::to_string(next - 1) : std::string()));
        for (std::uint64_t i = next; i < 5; ++i) {
          co_await producer.publish(batch_of("b" + std::to_string(i)), "state" + std::to_string(i));
        }
        co_await producer.close();
      } else {
        CHECK(code_of(opened) == bw::errc::stream_closed);
      }
      CHECK((co_await read_all(clean)) == expected(5));
    }(n));
  }
}

TEST_CASE("I4 a newer incarnation fences the older one, which says who took over") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await make_stream(store);
    auto older = co_await bw::open_producer(store, quick("p"), bw::commit::every<1>());
    co_await older.publish(batch_of("b0"), "state0");
    co_await older.flush();
    bw::producer_options again = quick("p");
    again.seed(8);
    auto newer = co_await bw::open_producer(store, again, bw::commit::every<1>());
    CHECK(newer.epoch() == older.epoch() + 1);
    CHECK(newer.state() == "state0");
    const bw::result<void> late = co_await bw::as_result([](auto& p) -> asio::awaitable<void> {
      co_await p.publish(batch_of("zombie"), "z");
      co_await p.flush();
    }(older));
    CHECK(code_of(late) == bw::errc::fenced);
    CHECK(late.error().what().find("epoch 2") != std::string::npos);
    co_await newer.publish(batch_of("b1"), "state1");
    co_await newer.close();
    CHECK((co_await read_all(store)) == expected(2));
  }());
}

TEST_CASE("CO-08 a lost race uploads nothing again; several producers lose and double nothing") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    constexpr int producers = 4;
    constexpr int each = 10;
    co_await make_stream(store, producers);
    bw::task_group group(co_await asio::this_coro::executor);
    for (int p = 0; p < producers; ++p) {
      group.spawn([](store_t s, int who) -> asio::awaitable<void> {
        bw::producer_options o("p" + std::to_string(who));
        o.seed(static_cast<std::uint64_t>(who) + 1);
        auto producer = co_await bw::open_producer(s, o, bw::commit::eager());
        for (int i = 0; i < each; ++i) co_await producer.publish(batch_of("p" + std::to_string(who) + "b" + std::to_string(i)));
        co_await producer.close();
      }(store, p));
    }
    co_await group.join();
    const std::vector<std::string> seen = co_await read_all(store);
    CHECK(seen.size() == producers * each);
    std::map<char, int> next;
    for (const std::string& s : seen) CHECK(s == "p" + std::string(1, s[1]) + "b" + std::to_string(next[s[1]]++) + "/0");
    CHECK(store.faults().count(op::put, "tgb/") == producers * each);
  }());
}

TEST_CASE("PR-05 after a failed upload nothing later is published") {
  test::run([]() -> asio::awaitable<void> {
    bw::memory_store memory;
    store_t clean{memory};
    co_await make_stream(clean);
    fault_plan plan;
    plan.on(op::put, "tgb/").nth(3).fail_before(bw::errc::access_denied);
    store_t store{memory, plan};
    bw::producer_options o = quick("p");
    o.uploads_in_flight(8);
    auto producer = co_await bw::open_producer(store, o, bw::commit::every<1>());
    const bw::result<void> r = co_await bw::as_result([](auto& p) -> asio::awaitable<void> {
      for (int i = 0; i < 6; ++i) co_await p.publish(batch_of("b" + std::to_string(i)));
      co_await p.flush();
    }(producer));
    CHECK(code_of(r) == bw::errc::access_denied);
    auto next = co_await bw::open_producer(clean, quick("p"), bw::commit::every<1>());
    CHECK(next.next_seq() <= 2);
    co_await next.close();
    CHECK((co_await read_all(clean)) == expected(static_cast<int>(next.next_seq())));
  }());
}

TEST_CASE("CW-08 a store that ignores If-None-Match is refused by name") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    store.faults().on(op::put).ignore_condition();
    const bw::result<void> r = co_await bw::as_result(make_stream(store));
    CHECK(code_of(r) == bw::errc::store_unsafe);
    CHECK(r.error().what().find(store.name()) != std::string::npos);
  }());
}

TEST_CASE("CN-02 CN-06 CN-07 the cursor moves on delivery, must be there, and its refusals name the reason") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await make_stream(store);
    co_await publish_and_close(store, 10);
    bw::consumer_options options("run");
    options.start_at(0).prefetch(8);
    auto consumer = co_await bw::open_consumer(store, options);
    for (int i = 0; i < 3; ++i) co_await consumer.next();
    const bw::cursor saved = bw::cursor::parse(consumer.cursor().to_string()).value();
    CHECK(saved.next_step() == 3);
    bw::consumer_options resumed("run");
    resumed.start(saved).rank(1).world_size(2);
    auto again = co_await bw::open_consumer(store, resumed);
    std::optional<bw::slice> s = co_await again.next();
    REQUIRE(s);
    CHECK(s->step() == 3);

    const auto refused = [](store_t st, bw::consumer_options o) -> asio::awaitable<bw::failure> {
      auto r = co_await bw::as_result(bw::open_consumer(st, std::move(o)));
      if (r) co_return bw::failure(bw::errc::bug, "was opened");
      co_return r.error();
    };
    bw::consumer_options nowhere("run");
    const bw::failure no_start = co_await refused(store, nowhere);
    CHECK(no_start.code() == bw::errc::invalid_argument);
    bw::consumer_options empty("run");
    empty.start(bw::cursor());
    const bw::failure empty_cursor = co_await refused(store, empty);
    CHECK(empty_cursor.code() == bw::errc::invalid_argument);
    bw::consumer_options three("run");
    three.start_at(0).world_size(3);
    const bw::failure divides = co_await refused(store, three);
    CHECK(divides.code() == bw::errc::invalid_argument);
    CHECK(divides.what().find("1, 2, 4") != std::string::npos);
    bw::consumer_options other("run");
    other.start(bw::cursor(bw::id128(1, 2), 0));
    const bw::failure mismatch = co_await refused(store, other);
    CHECK(mismatch.code() == bw::errc::stream_mismatch);
    bw::consumer_options beyond("run");
    beyond.start_at(11);
    const bw::failure past = co_await refused(store, beyond);
    CHECK(past.code() == bw::errc::beyond_end);
    for (std::uint64_t start = 0; start <= 10; ++start) {
      bw::consumer_options at("run");
      at.start_at(start);
      auto c = co_await bw::open_consumer(store, at);
      std::optional<bw::slice> first = co_await c.next();
      CHECK(first.has_value() == (start < 10));
      if (first) CHECK(first->step() == start);
    }
  }());
}

TEST_CASE("S3-25 TR-03 wrong or missing bytes never reach the trainer") {
  test::run([]() -> asio::awaitable<void> {
    bw::memory_store memory;
    store_t clean{memory};
    co_await make_stream(clean);
    co_await publish_and_close(clean, 2);
    const auto read_first = [](store_t s) -> asio::awaitable<bw::result<std::optional<bw::slice>>> {
      bw::consumer_options o("run");
      o.start_at(0).prefetch(1).give_up_after(std::chrono::milliseconds(1));
      auto c = co_await bw::open_consumer(s, o);
      co_return co_await bw::as_result(c.next());
    };
    {
      fault_plan once;
      once.on(op::get, "tgb/").nth(1).flip(3);
      auto r = co_await read_first(store_t(memory, once));
      REQUIRE(r.has_value());
      CHECK(bw::as_text((*r)->part(0)) == "b0/0");
    }
    for (std::size_t at = 0; at < 40; at += 7) {
      fault_plan always;
      always.on(op::get, "tgb/").flip(at);
      auto r = co_await read_first(store_t(memory, always));
      const bool padding = r.has_value();  // a flipped padding byte is no byte of a slice
      if (padding) CHECK(bw::as_text((*r)->part(0)) == "b0/0");
      else {
        CHECK(r.error().code() == bw::errc::damaged);
        CHECK(r.error().what().find("step 0") != std::string::npos);
        CHECK(r.error().what().find("tgb/p/") != std::string::npos);
        CHECK(r.error().what().find("rank 0") != std::string::npos);
      }
    }
    fault_plan cut;
    cut.on(op::get, "tgb/").cut(5);
    auto r = co_await read_first(store_t(memory, cut));
    REQUIRE(r.has_error());
    CHECK(r.error().code() == bw::errc::damaged);
  }());
}

TEST_CASE("CN-12 a budget smaller than one unit is an error at once; CN-11 a wait has a reason and a bound") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    co_await make_stream(store);
    auto producer = co_await bw::open_producer(store, quick("p"), bw::commit::every<1>());
    co_await producer.publish(batch_of("b0"));
    co_await producer.flush();
    bw::consumer_options small("run");
    small.start_at(0).budget(bw::memory_budget(4));
    auto c = co_await bw::open_consumer(store, small);
    auto r = co_await bw::as_result(c.next());
    REQUIRE(r.has_error());
    CHECK(r.error().code() == bw::errc::budget_too_small);
    bw::consumer_options waits("run");
    waits.start_at(1).max_wait(std::chrono::milliseconds(20));
    auto w = co_await bw::open_consumer(store, waits);
    auto late = co_await bw::as_result(w.next());
    REQUIRE(late.has_error());
    CHECK(late.error().code() == bw::errc::waited_too_long);
    CHECK(late.error().what().find("waiting for step 1") != std::string::npos);
    co_await producer.publish(batch_of("b1"));
    co_await producer.flush();
    bw::consumer_options patient("run");
    patient.start(w.cursor());
    w = co_await bw::open_consumer(store, patient);
    auto now = co_await w.next();
    REQUIRE(now);
    CHECK(now->step() == 1);
  }());
}

TEST_CASE("CW-14 a cancelled flush loses and doubles nothing") {
  asio::io_context context;
  store_t store{bw::memory_store()};
  store.faults().on(op::put, "log/").nth(2).delay(std::chrono::milliseconds(20));
  bw::basic_producer<store_t> producer;
  test::run(context, [](store_t s, auto& p) -> asio::awaitable<void> {
    co_await make_stream(s);
    p = co_await bw::open_producer(s, quick("p"));
    co_await p.publish(batch_of("b0"), "state0");
  }(store, producer));
  asio::cancellation_signal cancel;
  std::exception_ptr seen;
  asio::co_spawn(context, producer.flush(), asio::bind_cancellation_slot(cancel.slot(), [&](std::exception_ptr e) { seen = e; }));
  asio::post(context, [&] { cancel.emit(asio::cancellation_type::terminal); });
  test::run(context, [](store_t s, auto& p) -> asio::awaitable<void> {
    co_await p.publish(batch_of("b1"), "state1");
    co_await p.close();
    p = bw::basic_producer<store_t>();
    CHECK((co_await read_all(s)) == expected(2));
  }(store, producer));
  CHECK(seen);
}

TEST_CASE("A context that is destroyed under open roles frees every coroutine") {
  // Goal: a program that stops early leaks nothing (seen by the leak checker) and touches nothing that is gone.
  store_t store{bw::memory_store()};
  bw::basic_producer<store_t> producer;
  bw::consumer<store_t> consumer;
  {
    asio::io_context context;
    test::run(context, [](store_t s, auto& p, auto& c) -> asio::awaitable<void> {
      co_await make_stream(s);
      p = co_await bw::open_producer(s, quick("p"));
      bw::consumer_options o("run");
      o.start_at(0);
      c = co_await bw::open_consumer(s, o);
      co_await p.publish(batch_of("b0"));
    }(store, producer, consumer));
    bool ended = false;
    asio::co_spawn(context, [](auto& c) -> asio::awaitable<void> {
      while (co_await c.next()) {
      }
    }(consumer), [&ended](std::exception_ptr) { ended = true; });
    context.restart();
    for (int i = 0; i < 200; ++i) context.poll_one();
    CHECK_FALSE(ended);
    producer = bw::basic_producer<store_t>();
    consumer = bw::consumer<store_t>();
  }
  SUCCEED("the context is gone");
}

TEST_CASE("A manifest codec of the user's own carries a stream, and roles without it refuse by name") {
  test::run([]() -> asio::awaitable<void> {
    using codecs = bw::manifest::codec_set<marked, bw::manifest::binary>;
    store_t store{bw::memory_store()};
    bw::stream_options options;
    options.slices(slices).codec("marked");
    co_await bw::create_stream<codecs>(store, options);
    auto producer = co_await bw::open_producer<codecs>(store, quick("p"));
    co_await producer.publish(batch_of("b0"), "state0");
    co_await producer.close();
    bw::consumer_options o("run");
    o.start_at(0);
    auto consumer = co_await bw::open_consumer<codecs>(store, o);
    std::optional<bw::slice> s = co_await consumer.next();
    REQUIRE(s);
    CHECK(bw::as_text(s->part(0)) == "b0/0");
    CHECK_FALSE((co_await consumer.next()).has_value());
    auto refused = co_await bw::as_result(bw::open_consumer(store, o));
    REQUIRE(refused.has_error());
    CHECK(refused.error().code() == bw::errc::not_supported);
    CHECK(refused.error().what().find("marked") != std::string::npos);
  }());
}

TEST_CASE("JSON manifests carry a stream") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    bw::stream_options options;
    options.slices(slices).codec("json");
    co_await bw::create_stream(store, options);
    co_await publish_and_close(store, 5);
    CHECK((co_await read_all(store)) == expected(5));
  }());
}

TEST_CASE("A damaged or deleted log is told from an empty one, by key") {
  test::run([]() -> asio::awaitable<void> {
    bw::memory_store memory;
    store_t store{memory};
    co_await make_stream(store);
    co_await publish_and_close(store, 3);
    const auto opens = [](store_t s) -> asio::awaitable<bw::failure> {
      bw::consumer_options o("run");
      o.start_at(0);
      auto r = co_await bw::as_result(bw::open_consumer(s, o));
      if (r) co_return bw::failure(bw::errc::bug, "was opened");
      co_return r.error();
    };
    const bw::result<bw::list_page> page = co_await memory.list(std::string("log/"), std::string(), 1);
    const std::string newest = page->objects().front().key();
    fault_plan flips;
    flips.on(op::get, "log/").flip(20);
    const bw::failure damaged = co_await opens(store_t(memory, flips));
    CHECK(damaged.code() == bw::errc::damaged);
    CHECK(damaged.what().find(newest) != std::string::npos);
    const std::string junk = "not a manifest";
    const bw::const_buffers body{bw::as_bytes(junk)};
    const bw::put_condition always;
    bw::result<bw::put_outcome> put = co_await memory.put(newest, body, always);
    REQUIRE(put.has_value());
    CHECK((co_await opens(store)).code() == bw::errc::damaged);
    put = co_await memory.put(std::string("stream"), body, always);
    REQUIRE(put.has_value());
    CHECK((co_await opens(store)).code() == bw::errc::damaged);
  }());
}
