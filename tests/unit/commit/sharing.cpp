// What producers share: the inbox, the turns of round_robin, and the lead over the slowest group.
#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/commit/eager.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/manifest/announcement.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/faulty_store.hpp>
#include <batchweave/testing/sim_clock.hpp>

#include <memory>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;
using bw::testing::op;
using store_t = bw::testing::faulty_store<bw::memory_store>;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t slices = 2;

bw::global_batch batch_of(const std::string& text) {
  std::vector<bw::byte_buffer> s;
  for (std::uint32_t k = 0; k < slices; ++k) s.push_back(bw::byte_buffer::copy_of(bw::as_bytes(text)));
  return bw::global_batch(std::move(s));
}

bw::producer_options quick(std::string id, std::uint64_t seed) {
  bw::producer_options o(std::move(id));
  o.give_up_after(20s).seed(seed);
  return o;
}

// Publishes what others announced, or waits for others to publish what is its own.
class carrier {
 public:
  static constexpr bool carries_others = true;
  explicit carrier(bool commits) : commits_(commits) {}
  bw::duration delay_before_commit(const bw::commit::backlog&) { return commits_ ? bw::duration(0) : bw::commit::not_yet; }
  bw::duration delay_before_retry(const bw::commit::observation&) { return 1ms; }
  void observe(const bw::commit::observation&) {}
  void seed(std::uint64_t) {}

 private:
  bool commits_;
};
static_assert(bw::commit::is_cooperative_v<carrier>);
static_assert(!bw::commit::is_cooperative_v<bw::commit::eager>);

asio::awaitable<std::vector<std::string>> read_all(store_t store) {
  bw::consumer_options options("check");
  options.start_at(0).max_wait(20s).poll_interval(5ms);
  auto consumer = co_await bw::open_consumer(store, options);
  std::vector<std::string> seen;
  for (;;) {
    std::optional<bw::slice> s = co_await consumer.next();
    if (!s) break;
    seen.emplace_back(bw::as_text(s->part(0)));
  }
  co_return seen;
}

asio::awaitable<std::vector<std::string>> keys_under(store_t store, std::string prefix) {
  const std::string after;
  bw::result<bw::list_page> page = co_await store.list(prefix, after, 1000);
  std::vector<std::string> keys;
  for (const auto& o : page.value().objects()) keys.push_back(o.key());
  co_return keys;
}

// One producer of a round_robin stream from open to close, with pauses of its own.
asio::awaitable<void> take_turns(store_t store, std::string id, int n, std::uint64_t seed, std::shared_ptr<int> left) {
  bw::random64 random(seed);
  auto producer = co_await bw::open_producer(store, quick(id, seed), bw::commit::eager());
  for (int i = 0; i < n; ++i) {
    bw::any_clock clock;
    co_await clock.wait_for(bw::duration(static_cast<std::int64_t>(random.uniform(0, 3e6))));
    co_await producer.publish(batch_of(id + std::to_string(i)));
  }
  co_await producer.close();
  --*left;
}

asio::awaitable<void> until_none(std::shared_ptr<int> left) {
  bw::any_clock clock;
  while (*left > 0) co_await clock.wait_for(2ms);
}

// The order that turns give, whatever the timing.
std::vector<std::string> in_turns(const std::vector<std::pair<std::string, int>>& producers) {
  std::vector<std::string> order;
  for (int round = 0;; ++round) {
    const std::size_t before = order.size();
    for (const auto& [id, n] : producers) {
      if (round < n) order.push_back(id + std::to_string(round));
    }
    if (order.size() == before) return order;
  }
}

}  // namespace

TEST_CASE("A durable batch is published by whoever commits next, and its owner commits nothing") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    bw::stream_options options;
    options.slices(slices).producers(2);
    co_await bw::create_stream(store, options);
    bw::producer_options patient = quick("b", 2);
    patient.max_visibility_delay(1h);
    auto a = co_await bw::open_producer(store, quick("a", 1), carrier(true));
    auto b = co_await bw::open_producer(store, patient, carrier(false));
    for (int i = 0; i < 5; ++i) co_await b.publish(batch_of("b" + std::to_string(i)), "state" + std::to_string(i));
    bw::any_clock clock;
    while ((co_await keys_under(store, "inbox/b/")).size() < 5) co_await clock.wait_for(1ms);
    co_await a.publish(batch_of("a0"));
    co_await a.flush();
    CHECK(a.stats().carried() == 5);
    CHECK(b.committed_seq() == 0);  // it has not looked
    co_await b.flush();
    CHECK(b.committed_seq() == 5);
    CHECK(b.stats().batches() == 5);
    CHECK(b.stats().attempts() == 0);
    while (!(co_await keys_under(store, "inbox/")).empty()) co_await clock.wait_for(1ms);
    co_await a.close();
    co_await b.detach();
    auto again = co_await bw::open_producer(store, quick("b", 3), carrier(true));
    CHECK(again.state() == "state4");
    CHECK(again.next_seq() == 5);
    co_await again.close();
    const std::vector<std::string> want{"a0", "b0", "b1", "b2", "b3", "b4"};
    const std::vector<std::string> seen = co_await read_all(store);
    CHECK(seen == want);
  }());
}

TEST_CASE("I3 I4 an announcement of another epoch, out of order or damaged, is never committed") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    bw::stream_options options;
    options.slices(slices).producers(2);
    co_await bw::create_stream(store, options);
    {
      auto old = co_await bw::open_producer(store, quick("b", 2), carrier(false));
      co_await old.detach();
    }
    auto b = co_await bw::open_producer(store, quick("b", 3), carrier(false));
    REQUIRE(b.epoch() == 2);
    auto announce = [&](std::uint64_t epoch, std::uint64_t seq) -> asio::awaitable<void> {
      bw::manifest::tgb_entry e;
      e.producer = "b";
      e.epoch = epoch;
      e.seq = seq;
      e.bytes = 300;
      e.footer_offset = 100;
      e.layout.count = slices;
      e.layout.fixed_size = 8;
      (co_await bw::commit::announce(store, e)).value();
    };
    co_await announce(1, 0);  // of an epoch that is over
    co_await announce(2, 3);  // ahead of what is committed
    co_await announce(3, 0);  // of an epoch that is not there yet
    const bw::put_condition always;
    const bw::const_buffers nothing;
    for (const char* junk : {"inbox/b/x", "inbox/b/00000000000000000002/00000000000000000000.zz", "inbox/b/00000000000000000002/00000000000000000000",
                             "inbox/c/00000000000000000001/00000000000000000000.0102030405"}) {
      const std::string key = junk;
      (co_await store.put(key, nothing, always)).value();
    }
    auto a = co_await bw::open_producer(store, quick("a", 1), carrier(true));
    co_await a.publish(batch_of("a0"));
    co_await a.flush();
    CHECK(a.stats().carried() == 0);
    bw::any_clock clock;
    const std::string stale = bw::manifest::inbox_key("b", 1, 0);
    for (;;) {  // what can never matter again is removed, the rest stays
      bool there = false;
      for (const std::string& k : co_await keys_under(store, "inbox/")) there = there || k.substr(0, stale.size()) == stale;
      if (!there) break;
      co_await clock.wait_for(1ms);
    }
    const std::vector<std::string> rest = co_await keys_under(store, "inbox/");
    CHECK(rest.size() == 6);
    co_await a.close();
    co_await b.close();
    const std::vector<std::string> want{"a0"};
    const std::vector<std::string> seen = co_await read_all(store);
    CHECK(seen == want);
  }());
}

TEST_CASE("An announcement says all of its TGB, in the key when it fits and in the body when not") {
  for (std::uint32_t count : {1u, 8u, 500u}) {
    bw::manifest::tgb_entry e;
    e.producer = "node.7";
    e.epoch = 3;
    e.seq = 41;
    e.layout.count = count;
    e.layout.alignment = 8;
    for (std::uint32_t i = 0; count == 500 && i < count; ++i) e.layout.sizes.push_back(1000 + i);
    if (count != 500) e.layout.fixed_size = 4096;
    e.footer_offset = e.layout.data_end();
    e.bytes = e.footer_offset + 123;
    e.samples = 77;
    e.tag = "wiki";
    e.unix_ns = 1234567890123456789;
    const bw::manifest::announcement a(e);
    CHECK(a.key.size() < 255);
    const auto name = bw::manifest::parse_inbox_key(a.key);
    REQUIRE(name.has_value());
    CHECK(name->producer == "node.7");
    CHECK(name->epoch == 3);
    CHECK(name->seq == 41);
    const auto in_key = bw::manifest::parse_announcement(a.key);
    CHECK(in_key.has_value() == (count != 500));
    if (in_key) CHECK(*in_key == e);
    else CHECK(bw::manifest::decode_announcement(*name, {a.body.data(), a.body.size()}).value() == e);
    std::string wrong = a.key;
    if (in_key) {
      wrong[wrong.size() - 10] = wrong[wrong.size() - 10] == '0' ? '1' : '0';
      CHECK_FALSE(bw::manifest::parse_announcement(wrong).has_value());
    }
  }
}

TEST_CASE("round_robin: the order is that of the turns, whatever the timing and the lost replies") {
  const std::vector<std::pair<std::string, int>> producers{{"a", 5}, {"b", 2}, {"c", 7}};
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    INFO("seed " << seed);
    test::run([](std::uint64_t s, std::vector<std::pair<std::string, int>> who) -> asio::awaitable<void> {
      bw::testing::fault_plan plan(s);
      store_t store{bw::memory_store(), plan};
      bw::stream_options options;
      options.slices(slices).producers(who.size()).order(bw::stream_order::round_robin);
      co_await bw::create_stream(store, options);
      plan.on(op::put, "log/").probability(0.2).apply_then_fail(bw::errc::connection_lost);
      plan.on(op::put, "inbox/").probability(0.3).lose(bw::errc::connection_lost);
      plan.on(op::list, "inbox/").probability(0.3).fail_before(bw::errc::store_unavailable);
      auto left = std::make_shared<int>(static_cast<int>(who.size()));
      auto ex = co_await asio::this_coro::executor;
      bw::task_group tasks(ex);
      for (std::size_t i = 0; i < who.size(); ++i) tasks.spawn(take_turns(store, who[i].first, who[i].second, s * 100 + i, left));
      co_await until_none(left);
      co_await tasks.join();
      const std::vector<std::string> seen = co_await read_all(store);
      CHECK(seen == in_turns(who));
    }(seed, producers));
  }
}

TEST_CASE("round_robin: nothing is visible before all have opened, a wait has a reason, one producer too many is refused") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    bw::stream_options options;
    options.slices(slices).producers(2).order(bw::stream_order::round_robin);
    const bw::manifest::stream_info info = co_await bw::create_stream(store, options);
    auto b = co_await bw::open_producer(store, quick("b", 1), bw::commit::eager());
    co_await b.publish(batch_of("b0"));
    bw::any_clock clock;
    while (b.wait().reason() != bw::wait_reason::turn_of_another) co_await clock.wait_for(1ms);
    CHECK(b.waiting_for() == "round_robin: 1 of 2 producers have opened");
    CHECK(b.committed_seq() == 0);
    auto a = co_await bw::open_producer(store, quick("a", 2), bw::commit::eager());
    while (b.waiting_for() != "round_robin: the next step is batch 0 of producer a") co_await clock.wait_for(1ms);
    bw::result<bw::basic_producer<store_t, bw::commit::eager>> third =
        co_await bw::as_result(bw::open_producer(store, quick("c", 3), bw::commit::eager()));
    REQUIRE_FALSE(third.has_value());
    CHECK(third.error().code() == bw::errc::invalid_argument);
    CHECK(third.error().what().find("is for 2 producers and has them: a, b") != std::string::npos);
    co_await a.publish(batch_of("a0"));
    co_await b.flush();
    CHECK(b.waiting_for().empty());
    co_await a.close();  // from here on every turn is that of b
    co_await b.publish(batch_of("b1"));
    co_await b.publish(batch_of("b2"));
    co_await b.close();
    const std::vector<std::string> want{"a0", "b0", "b1", "b2"};
    const std::vector<std::string> seen = co_await read_all(store);
    CHECK(seen == want);

    bw::stream_options other;
    other.slices(slices).producers(2);
    bw::result<bw::manifest::stream_info> differs = co_await bw::as_result(bw::create_stream(store, other));
    REQUIRE_FALSE(differs.has_value());
    CHECK(differs.error().what().find("order round_robin (asked for commit)") != std::string::npos);
  }());
}

TEST_CASE("Back-pressure: publish waits at max_lead_steps and max_lead_bytes, says why, and goes on with the slowest group") {
  for (bool by_bytes : {false, true}) {
    INFO("by bytes " << by_bytes);
    test::run([](bool bytes) -> asio::awaitable<void> {
      store_t store{bw::memory_store()};
      bw::stream_options options;
      options.slices(slices);
      const bw::manifest::stream_info info = co_await bw::create_stream(store, options);
      bw::producer_options limited = quick("p", 1);
      if (!bytes) limited.max_lead_steps(4);
      auto sizes = co_await bw::open_producer(store, quick("sizes", 2), bw::commit::eager());
      if (bytes) {
        co_await sizes.publish(batch_of("x"));
        co_await sizes.flush();
        limited.max_lead_bytes(4 * sizes.stats().bytes() + 10);
      }
      co_await sizes.detach();
      auto p = co_await bw::open_producer(store, limited, bw::commit::eager());
      auto published = std::make_shared<int>(0);
      auto ex = co_await asio::this_coro::executor;
      bw::task_group tasks(ex);
      auto work = [](decltype(p)& producer, std::shared_ptr<int> n) -> asio::awaitable<void> {
        for (int i = 0; i < 10; ++i) {
          co_await producer.publish(batch_of("x"));
          ++*n;
        }
      };
      tasks.spawn(work(p, published));
      bw::any_clock clock;
      while (p.wait().reason() != bw::wait_reason::back_pressure) co_await clock.wait_for(1ms);
      const int before = *published;
      CHECK((before == 4 || (bytes && before == 3)));
      CHECK(p.waiting_for().find("no group has a checkpoint") != std::string::npos);
      CHECK(p.waiting_for().find(bytes ? "max_lead_bytes" : "max_lead_steps is 4") != std::string::npos);
      co_await p.flush();
      co_await clock.wait_for(100ms);
      CHECK(*published == before);

      // Two groups: the slower one counts.
      bw::result<bw::commit::tail_view> tail = co_await bw::commit::find_tail(store, info, 0);
      bw::manifest::version v = *tail.value().version;
      ++v.number;
      v.first_step = v.summary.next_step;
      v.entries.clear();
      v.events.clear();
      for (auto [name, step] : {std::pair<const char*, std::uint64_t>{"fast", 4}, {"slow", 2}}) {
        bw::manifest::group_entry g;
        g.name = name;
        bw::manifest::checkpoint_entry c;
        c.id = "one";
        c.step = step;
        g.retained.push_back(c);
        v.summary.groups.push_back(g);
      }
      const auto encoded = bw::manifest::encode_version(v);
      const std::string key = bw::manifest::log_key(v.number);
      const bw::const_buffers body{bw::const_bytes(encoded)};
      const bw::put_condition absent = bw::put_condition::if_absent();
      bw::result<bw::put_outcome> put = co_await store.put(key, body, absent);
      REQUIRE(put.value().applied());
      while (*published < before + 2) co_await clock.wait_for(1ms);
      while (p.waiting_for().find("group slow is at step 2") == std::string::npos) co_await clock.wait_for(1ms);
      CHECK(*published == before + 2);
      tasks.cancel();
      co_await tasks.join();
      co_await p.close();  // what was accepted is committed all the same
      CHECK(p.committed_seq() == static_cast<std::uint64_t>(before + 2));
    }(by_bytes));
  }
}

TEST_CASE("Back-pressure counts publishes that come at the same moment") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    bw::stream_options options;
    options.slices(slices);
    co_await bw::create_stream(store, options);
    bw::producer_options limited = quick("p", 1);
    limited.max_lead_steps(4);
    auto p = co_await bw::open_producer(store, limited, bw::commit::eager());
    auto ex = co_await asio::this_coro::executor;
    bw::task_group tasks(ex);
    auto one = [](decltype(p)& producer) -> asio::awaitable<void> { co_await producer.publish(batch_of("x")); };
    for (int i = 0; i < 10; ++i) tasks.spawn(one(p));
    bw::any_clock clock;
    while (p.next_seq() < 4 || p.wait().reason() != bw::wait_reason::back_pressure) co_await clock.wait_for(1ms);
    co_await clock.wait_for(50ms);
    CHECK(p.next_seq() == 4);
    tasks.cancel();
    co_await tasks.join();
    co_await p.close();
    CHECK(p.committed_seq() == 4);
  }());
}

TEST_CASE("A producer that loses every race is carried by the others, whatever their policy") {
  // In virtual time: a version takes the fast one 1 ms and the slow one 20 ms, whatever the machine.
  asio::io_context context;
  bw::testing::sim_timeline timeline(context);
  const bw::any_clock clock(bw::testing::sim_clock{timeline});
  bw::memory_store shared;
  store_t slow_store{shared, bw::testing::fault_plan(1, clock)}, fast_store{shared, bw::testing::fault_plan(2, clock)};
  bool done = false;
  std::exception_ptr thrown;
  const auto race = [](store_t fast_one, store_t slow_one, bw::any_clock c) -> asio::awaitable<void> {
    bw::stream_options options;
    options.slices(slices).producers(2);
    co_await bw::create_stream(fast_one, options);
    auto slow = co_await bw::open_producer(slow_one, quick("slow", 1).clock(c), bw::commit::eager());
    auto fast = co_await bw::open_producer(fast_one, quick("fast", 2).clock(c), bw::commit::eager());
    fast_one.faults().on(op::put, "log/").delay(1ms);
    slow_one.faults().on(op::put, "log/").condition_fails().delay(20ms);
    for (int i = 0; i < 3; ++i) co_await slow.publish(batch_of("slow" + std::to_string(i)), "state" + std::to_string(i));
    for (int rounds = 0; slow.committed_seq() < 3 && rounds < 2000; ++rounds) {
      co_await fast.publish(batch_of("fast"));
      co_await fast.flush();
    }
    CHECK(slow.committed_seq() == 3);
    CHECK(fast.stats().carried() == 3);
    CHECK(slow.stats().commits() == 0);
    CHECK(slow.stats().batches() == 3);
    slow_one.faults().clear_rules();
    co_await slow.close();
    co_await fast.close();
  };
  asio::co_spawn(context, race(fast_store, slow_store, clock), [&](std::exception_ptr e) {
    thrown = e;
    done = true;
  });
  REQUIRE(timeline.run_until([&] { return done; }));
  timeline.run_ready();
  if (thrown) std::rethrow_exception(thrown);
  test::run([](store_t store) -> asio::awaitable<void> {
    std::vector<std::string> mine;
    for (const std::string& s : co_await read_all(store)) {
      if (s != "fast") mine.push_back(s);
    }
    const std::vector<std::string> want{"slow0", "slow1", "slow2"};
    CHECK(mine == want);
  }(fast_store));
}

TEST_CASE("CO-05 after a lost race a producer goes straight to the tail, however far it is") {
  test::run([]() -> asio::awaitable<void> {
    store_t store{bw::memory_store()};
    bw::stream_options options;
    options.slices(slices).producers(2);
    co_await bw::create_stream(store, options);
    auto late = co_await bw::open_producer(store, quick("late", 1), bw::commit::eager());
    auto busy = co_await bw::open_producer(store, quick("busy", 2), bw::commit::eager());
    for (int i = 0; i < 300; ++i) {
      co_await busy.publish(batch_of("x"));
      co_await busy.flush();
    }
    const std::uint64_t before = store.faults().operations().size();
    co_await late.publish(batch_of("y"));
    co_await late.flush();
    CHECK(store.faults().operations().size() - before <= 8);
    co_await busy.close();
    co_await late.close();
  }());
}

TEST_CASE("CO-03 two incarnations that open at once: one wins, the other is told who") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    test::run([](std::uint64_t s) -> asio::awaitable<void> {
      store_t store{bw::memory_store()};
      bw::stream_options options;
      options.slices(slices);
      co_await bw::create_stream(store, options);
      auto won = std::make_shared<int>(0);
      auto fenced = std::make_shared<int>(0);
      auto left = std::make_shared<int>(2);
      auto ex = co_await asio::this_coro::executor;
      bw::task_group tasks(ex);
      auto contend = [](store_t st, std::uint64_t seed_of, std::shared_ptr<int> w, std::shared_ptr<int> f,
                        std::shared_ptr<int> l) -> asio::awaitable<void> {
        auto p = co_await bw::as_result(bw::open_producer(st, quick("p", seed_of), bw::commit::eager()));
        if (p) {
          bw::result<std::uint64_t> seq = co_await bw::as_result(p->publish(batch_of("x")));
          bw::result<void> closed = co_await bw::as_result(p->close());
          if (closed) ++*w;
          else if (closed.error().code() == bw::errc::fenced) ++*f;
        } else if (p.error().code() == bw::errc::fenced && p.error().what().find("took over") != std::string::npos) {
          ++*f;
        }
        --*l;
      };
      tasks.spawn(contend(store, s * 10, won, fenced, left));
      tasks.spawn(contend(store, s * 10 + 1, won, fenced, left));
      co_await until_none(left);
      CHECK(*won == 1);
      CHECK(*fenced == 1);
    }(seed));
  }
}
