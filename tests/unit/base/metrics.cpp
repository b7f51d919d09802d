// The Prometheus sink, and the roles and stores that feed it and say why they wait.
#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/base/prometheus.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/instrumented.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/faulty_store.hpp>
#include <batchweave/testing/sim_clock.hpp>

#include <memory>
#include <sstream>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;
using namespace std::chrono_literals;
using bw::testing::op;
using faulty = bw::testing::faulty_store<bw::memory_store>;
using store_t = bw::instrumented_store<faulty>;

namespace {

bw::global_batch batch_of(const std::string& text) {
  std::vector<bw::byte_buffer> s;
  s.push_back(bw::byte_buffer::copy_of(bw::as_bytes(text)));
  return bw::global_batch(std::move(s));
}

// The value of one line of the text format, or -1.
double value_of(const std::string& text, const std::string& series) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(series + " ", 0) == 0) return std::stod(line.substr(series.size() + 1));
  }
  return -1;
}

using heard_t = std::vector<bw::wait_state>;

bool heard_of(const heard_t& heard, bw::wait_reason why, const std::string& part) {
  for (const bw::wait_state& w : heard) {
    if (w.reason() == why && w.text().find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("Prometheus text: counters add, gauges set, histograms are cumulative, labels are escaped") {
  static constexpr bw::metric c("x_total", bw::metric_kind::counter, "who", "Things");
  static constexpr bw::metric g("level", bw::metric_kind::gauge, "who", "Height");
  static constexpr bw::metric h("wait_seconds", bw::metric_kind::histogram, "who", "Time");
  bw::prometheus_metrics sink;
  bw::any_metrics any(sink);
  any.record(c, "a\"b\\c\nd");
  any.record(c, "a\"b\\c\nd", 2);
  any.record(g, "p", 7);
  any.record(g, "p", 5);
  for (double v : {0.0005, 0.003, 0.003, 1000.0}) any.record(h, "p", v);
  const std::string text = sink.render();
  CHECK(text.find("# HELP x_total Things\n# TYPE x_total counter\nx_total{who=\"a\\\"b\\\\c\\nd\"} 3\n") != std::string::npos);
  CHECK(value_of(text, "level{who=\"p\"}") == 5);
  CHECK(value_of(text, "wait_seconds_bucket{who=\"p\",le=\"0.001\"}") == 1);
  CHECK(value_of(text, "wait_seconds_bucket{who=\"p\",le=\"0.002\"}") == 1);
  CHECK(value_of(text, "wait_seconds_bucket{who=\"p\",le=\"0.004\"}") == 3);
  CHECK(value_of(text, "wait_seconds_bucket{who=\"p\",le=\"131.072\"}") == 3);
  CHECK(value_of(text, "wait_seconds_bucket{who=\"p\",le=\"+Inf\"}") == 4);
  CHECK(value_of(text, "wait_seconds_count{who=\"p\"}") == 4);
  CHECK(value_of(text, "wait_seconds_sum{who=\"p\"}") == Approx(1000.0065));
  const bw::any_metrics none;
  CHECK_FALSE(static_cast<bool>(none));
  none.record(c, "nobody");
}

TEST_CASE("A run is told in numbers: what was committed, delivered and asked of the store") {
  test::run([]() -> asio::awaitable<void> {
    bw::prometheus_metrics sink;
    store_t store(faulty(bw::memory_store()), sink);
    bw::stream_options stream;
    co_await bw::create_stream(store, stream);
    bw::producer_options po("p");
    po.metrics(sink);
    auto p = co_await bw::open_producer(store, po, bw::commit::eager());
    for (int i = 0; i < 5; ++i) co_await p.publish(batch_of("0123456789"));
    co_await p.close();
    bw::consumer_options co("run");
    co.start_at(0).metrics(sink);
    auto c = co_await bw::open_consumer(store, co);
    while (co_await c.next()) {
    }
    const std::string text = sink.render();
    INFO(text);
    CHECK(value_of(text, "batchweave_batches_committed_total{producer=\"p\"}") == 5);
    CHECK(value_of(text, "batchweave_bytes_committed_total{producer=\"p\"}") == static_cast<double>(p.stats().bytes()));
    CHECK(value_of(text, "batchweave_commits_total{producer=\"p\"}") == static_cast<double>(p.stats().commits()));
    CHECK(value_of(text, "batchweave_visible_seconds_count{producer=\"p\"}") == 5);
    CHECK(value_of(text, "batchweave_producer_pending_batches{producer=\"p\"}") == 0);
    CHECK(value_of(text, "batchweave_steps_delivered_total{consumer=\"run/0\"}") == 5);
    CHECK(value_of(text, "batchweave_bytes_delivered_total{consumer=\"run/0\"}") == 50);
    CHECK(value_of(text, "batchweave_lag_steps{consumer=\"run/0\"}") == 0);
    CHECK(value_of(text, "batchweave_store_requests_total{verb=\"put\"}") == static_cast<double>(store.counters().put.requests()));
    CHECK(value_of(text, "batchweave_store_failures_total{verb=\"get\"}") == -1);
  }());
}

TEST_CASE("CN-11 a rank that waits says for which step, since when and who committed last, again and again") {
  test::run([]() -> asio::awaitable<void> {
    faulty store{bw::memory_store()};
    bw::stream_options stream;
    co_await bw::create_stream(store, stream);
    bw::producer_options po("node-3");
    auto p = co_await bw::open_producer(store, po, bw::commit::eager());
    co_await p.publish(batch_of("x"));
    co_await p.flush();
    bw::prometheus_metrics sink;
    auto heard = std::make_shared<heard_t>();
    bw::consumer_options co("run");
    co.start_at(0).poll_interval(5ms).metrics(sink).on_wait([heard](const bw::wait_state& w) { heard->push_back(w); }, 20ms);
    co.max_wait(500ms);
    auto c = co_await bw::open_consumer(store, co);
    const std::optional<bw::slice> first = co_await c.next();
    CHECK(first.has_value());
    bw::result<std::optional<bw::slice>> late = co_await bw::as_result(c.next());
    REQUIRE_FALSE(late.has_value());
    CHECK(late.error().code() == bw::errc::waited_too_long);
    CHECK(c.wait().reason() == bw::wait_reason::step_not_visible);
    CHECK(heard->size() >= 2);
    CHECK(heard_of(*heard, bw::wait_reason::step_not_visible,
                   "group run rank 0/1: waiting for step 1: the stream has 1 steps since"));
    CHECK(heard_of(*heard, bw::wait_reason::step_not_visible, "last commit by producer node-3"));
    CHECK(value_of(sink.render(), "batchweave_consumer_waits_total{reason=\"step_not_visible\"}") == static_cast<double>(heard->size()));

    store.faults().on(op::get, "log/").times(1000000).fail_before(bw::errc::throttled);
    heard->clear();
    bw::result<std::optional<bw::slice>> down = co_await bw::as_result(c.next());
    CHECK_FALSE(down.has_value());
    CHECK(heard_of(*heard, bw::wait_reason::store_failing, "waiting for step 1"));
    co_await p.close();
  }());
}

TEST_CASE("A producer that waits says whether for uploads, its commit or a failing store") {
  test::run([]() -> asio::awaitable<void> {
    faulty store{bw::memory_store()};
    bw::stream_options stream;
    co_await bw::create_stream(store, stream);
    auto heard = std::make_shared<heard_t>();
    bw::producer_options po("p");
    po.on_wait([heard](const bw::wait_state& w) { heard->push_back(w); }, 10ms).give_up_after(20s);
    auto p = co_await bw::open_producer(store, po, bw::commit::eager());
    CHECK(p.wait().reason() == bw::wait_reason::nothing);
    store.faults().on(op::put, "tgb/").times(1).lose(bw::errc::throttled).delay(50ms);
    co_await p.publish(batch_of("x"));
    CHECK(heard_of(*heard, bw::wait_reason::uploading, "producer p: 1 batches are being uploaded, the first is 0"));
    heard->clear();
    store.faults().on(op::put, "log/").times(3).fail_before(bw::errc::store_unavailable);
    co_await p.publish(batch_of("y"));
    co_await p.flush();
    CHECK(heard_of(*heard, bw::wait_reason::store_failing, "scripted fault: put log/"));
    CHECK(p.wait().reason() == bw::wait_reason::nothing);
    CHECK(p.waiting_for().empty());
    co_await p.close();
  }());
}

TEST_CASE("S3-22 200 ranks and a producer that start while the store answers 503 for a minute wait, say so, and start") {
  asio::io_context context;
  bw::testing::sim_timeline timeline(context);
  bw::testing::sim_process process;
  const bw::any_clock clock(bw::testing::sim_clock(timeline, &process));
  faulty store{bw::memory_store()};
  int ready = 0, failed = 0;
  auto heard = std::make_shared<heard_t>();
  const auto done = [&](std::exception_ptr e) { ++(e ? failed : ready); };
  const bw::stream_options stream;
  asio::co_spawn(context, [](faulty s, bw::stream_options o) -> asio::awaitable<void> { co_await bw::create_stream(s, o); }(store, stream), done);
  timeline.run();
  REQUIRE(ready == 1);

  const bw::time_point down_until = timeline.now() + 60s;
  store.faults().on(op::get, "").times(1000000).fail_before(bw::errc::store_unavailable);
  timeline.at(down_until, [&] { store.faults().clear_rules(); });
  const auto rank = [](faulty s, bw::consumer_options o) -> asio::awaitable<void> {
    auto c = co_await bw::open_consumer(s, o);
    co_await c.next();
  };
  for (std::uint32_t r = 0; r < 200; ++r) {
    bw::consumer_options o("run-" + std::to_string(r));
    o.start_at(0).clock(clock).seed(r).on_wait([heard](const bw::wait_state& w) { heard->push_back(w); }, 10s);
    asio::co_spawn(context, rank(store, o), done);
  }
  bw::producer_options po("p");
  po.clock(clock).seed(1000).on_wait([heard](const bw::wait_state& w) { heard->push_back(w); }, 10s);
  const auto produce = [](faulty s, bw::producer_options o) -> asio::awaitable<void> {
    auto p = co_await bw::open_producer(s, o);
    co_await p.publish(batch_of("x"));
    co_await p.close();
  };
  asio::co_spawn(context, produce(store, po), done);
  REQUIRE(timeline.run_until([&] { return ready + failed == 202; }));
  CHECK(failed == 0);
  CHECK(timeline.now() >= down_until);
  CHECK(heard_of(*heard, bw::wait_reason::store_failing, "group run-7 rank 0: opening: "));
  CHECK(heard_of(*heard, bw::wait_reason::store_failing, "producer p: opening: "));
  CHECK(heard->size() >= 201 * 3);
  // Spread over time: no more than some 30 requests of each role in that minute.
  std::size_t asked = 0;
  for (const auto& o : store.faults().operations()) asked += o.key() == "stream";
  CHECK(asked < 201 * 40);

  // Each gives up at its own limit, and not before.
  store.faults().on(op::get, "").times(1000000).fail_before(bw::errc::store_unavailable);
  bw::consumer_options impatient("late");
  impatient.start_at(0).clock(clock).seed(1).give_up_after(30s);
  const bw::time_point begun = timeline.now();
  asio::co_spawn(context, rank(store, impatient), done);
  REQUIRE(timeline.run_until([&] { return failed == 1; }));
  CHECK(timeline.now() - begun <= 30s);
  CHECK(timeline.now() - begun >= 20s);
}
