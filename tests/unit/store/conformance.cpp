// The stores and decorators that ship pass the suite that users run on their own; broken stores do not.
#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/store/any_store.hpp>
#include <batchweave/store/file.hpp>
#include <batchweave/store/instrumented.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/store/open.hpp>
#include <batchweave/store/retrying.hpp>
#include <batchweave/testing/faulty_store.hpp>
#include <batchweave/testing/store_conformance.hpp>

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;
using bw::testing::op;

namespace {

class folder {
 public:
  folder() : path_(std::filesystem::temp_directory_path() / ("batchweave-conformance-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

asio::awaitable<void> check(bw::any_store store, std::vector<std::string>& wrong) {
  const bw::random64 random(7);
  wrong = co_await bw::testing::check_store(store, random);
}

template <class S>
std::vector<std::string> violations(S store) {
  std::vector<std::string> wrong;
  test::run(check(bw::any_store(std::move(store)), wrong));
  return wrong;
}

asio::awaitable<void> probe(bw::any_store store, bw::result<void>& verdict) {
  const bw::random64 random(7);
  verdict = co_await bw::probe_store(store, random);
}

template <class S>
bw::result<void> probed(S store) {
  bw::result<void> verdict;
  test::run(probe(bw::any_store(std::move(store)), verdict));
  return verdict;
}

using flaky_memory = bw::testing::faulty_store<bw::memory_store>;

/// The clock for tests that must not wait.
class instant_clock {
 public:
  bw::time_point now() const { return now_; }
  bw::wall_time wall_now() const { return bw::wall_time(); }
  asio::awaitable<void> wait_until(bw::time_point t) {
    now_ = std::max(now_, t);
    co_return;
  }

 private:
  bw::time_point now_{};
};

const std::vector<std::string> none;

}  // namespace

TEST_CASE("every store that ships conforms") {
  bw::memory_store memory;
  CHECK(violations(memory) == none);
  CHECK(memory.size() == 0);  // the suite cleans up
  const folder there;
  CHECK(violations(bw::file_store(there.path())) == none);
  CHECK(violations(bw::file_store(there.path(), bw::file_store_options().durable(false))) == none);
}

TEST_CASE("decorators conform when what they hold does") {
  CHECK(violations(flaky_memory{bw::memory_store()}) == none);
  CHECK(violations(bw::instrumented_store<bw::memory_store>{bw::memory_store()}) == none);
  flaky_memory flaky{bw::memory_store()};
  flaky.faults().on(op::get).probability(0.2).fail_before(bw::errc::throttled);
  flaky.faults().on(op::list).probability(0.2).lose(bw::errc::connection_lost);
  flaky.faults().on(op::put).probability(0.2).fail_before(bw::errc::store_unavailable);
  const bw::retry_policy patient = bw::retry_policy().attempts(50).total(std::chrono::hours(9));
  CHECK(violations(bw::retrying_store<flaky_memory>(flaky, patient, instant_clock(), bw::random64(5))) == none);
  CHECK(flaky.faults().count(op::get) > 20);
}

TEST_CASE("CW-08 a store that ignores the condition is found") {
  flaky_memory lying{bw::memory_store()};
  lying.faults().on(op::put).ignore_condition();
  CHECK(violations(lying).size() >= 3);
  const bw::result<void> verdict = probed(lying);
  REQUIRE_FALSE(verdict.has_value());
  CHECK(verdict.error().code() == bw::errc::store_unsafe);
  CHECK(verdict.error().what().find("memory: does not honour If-None-Match") != std::string::npos);
  CHECK(lying.inner().size() == 0);
}

TEST_CASE("CW-09 a store that lets several racers win is found, although creates one after another behave") {
  flaky_memory racy{bw::memory_store()};
  racy.faults().hook([](const bw::testing::operation& o) -> std::optional<bw::testing::action> {
    if (o.verb() == op::put && o.key().find("/race") != std::string::npos) return bw::testing::action::ignore_condition();
    return std::nullopt;
  });
  const bw::result<void> verdict = probed(racy);
  REQUIRE_FALSE(verdict.has_value());
  CHECK(verdict.error().code() == bw::errc::store_unsafe);
  CHECK(verdict.error().what().find("32 of 32 simultaneous creates") != std::string::npos);
  CHECK(violations(racy) != none);
}

TEST_CASE("CW-09 a store that lets several racers win in one race of a few is found") {
  flaky_memory racy{bw::memory_store()};
  racy.faults().hook([](const bw::testing::operation& o) -> std::optional<bw::testing::action> {
    if (o.verb() == op::put && o.key().ends_with("/race-6")) return bw::testing::action::ignore_condition();
    return std::nullopt;
  });
  const bw::result<void> verdict = probed(racy);
  REQUIRE_FALSE(verdict.has_value());
  CHECK(verdict.error().code() == bw::errc::store_unsafe);
  CHECK(racy.inner().size() == 0);
}

TEST_CASE("a store that damages bytes, cuts reads or loses conditions does not conform") {
  flaky_memory flipping{bw::memory_store()};
  flipping.faults().on(op::get).flip(2);
  CHECK(violations(flipping) != none);
  flaky_memory cutting{bw::memory_store()};
  cutting.faults().on(op::get).cut(1);
  CHECK(violations(cutting) != none);
  flaky_memory refusing{bw::memory_store()};
  refusing.faults().on(op::put).nth(3).condition_fails();
  CHECK(violations(refusing) != none);
}

TEST_CASE("the probe accepts good stores and passes on the failures of the store") {
  CHECK(probed(bw::memory_store()).has_value());
  const folder there;
  CHECK(probed(bw::file_store(there.path())).has_value());
  flaky_memory down{bw::memory_store()};
  down.faults().on(op::put).nth(2).fail_before(bw::errc::access_denied);
  const bw::result<void> verdict = probed(down);
  REQUIRE_FALSE(verdict.has_value());
  CHECK(verdict.error().code() == bw::errc::access_denied);
  CHECK(down.inner().size() == 0);
}

namespace {
asio::awaitable<void> fates() {
  bw::memory_store memory;
  bw::testing::fault_plan plan;
  bw::testing::faulty_store<bw::memory_store> store(memory, plan);
  const std::string text("x"), log("log/1"), late("late/1");
  const bw::const_buffers body{bw::as_bytes(text)};
  const bw::put_condition absent = bw::put_condition::if_absent();

  plan.on(op::put, "log/").nth(1).fail_before(bw::errc::throttled);
  plan.on(op::put, "log/").nth(1).apply_then_fail(bw::errc::connection_lost);
  plan.on(op::put, "late/").nth(1).apply_later(bw::errc::overall_timeout);
  bw::result<bw::put_outcome> put = co_await store.put(log, body, absent);
  REQUIRE_FALSE(put.has_value());
  CHECK(put.error().fate() == bw::fate::did_not_happen);
  CHECK(memory.size() == 0);
  put = co_await store.put(log, body, absent);
  REQUIRE_FALSE(put.has_value());
  CHECK(put.error().code() == bw::errc::connection_lost);
  CHECK(put.error().fate() == bw::fate::unknown);
  CHECK(memory.size() == 1);
  put = co_await store.put(log, body, absent);
  REQUIRE(put.has_value());
  CHECK_FALSE(put->applied());

  put = co_await store.put(late, body, absent);
  REQUIRE_FALSE(put.has_value());
  CHECK(put.error().fate() == bw::fate::unknown);
  CHECK(memory.size() == 1);
  CHECK(plan.held() == 1);
  const std::size_t applied = co_await store.release_held();
  CHECK(applied == 1);
  CHECK(memory.size() == 2);
  CHECK(plan.count(op::put) == 4);
  CHECK(plan.count(op::put, "late/") == 1);
  CHECK(plan.operations()[3].key() == "late/1");
}

asio::awaitable<void> crash() {
  bw::memory_store memory;
  bw::testing::fault_plan plan;
  bw::testing::faulty_store<bw::memory_store> store(memory, plan);
  plan.crash_after(2);
  const std::string text("x"), a("a"), b("b");
  const bw::const_buffers body{bw::as_bytes(text)};
  const bw::put_condition always;
  bw::result<bw::put_outcome> put = co_await store.put(a, body, always);
  CHECK(put.has_value());
  int crashes = 0;
  for (int i = 0; i < 2; ++i) {
    try {
      put = co_await store.put(b, body, always);
    } catch (const bw::testing::crashed&) {
      ++crashes;
    }
  }
  CHECK(crashes == 2);
  CHECK(memory.size() == 2);  // the second operation happened, the third did not
  CHECK(plan.has_crashed());
}

asio::awaitable<void> counting() {
  bw::instrumented_store<bw::memory_store> store{bw::memory_store()};
  const std::string text("12345"), a("a"), empty;
  const bw::const_buffers body{bw::as_bytes(text)};
  const bw::put_condition absent = bw::put_condition::if_absent();
  (void)co_await store.put(a, body, absent);
  (void)co_await store.put(a, body, absent);
  (void)co_await store.put(empty, body, absent);
  (void)co_await store.head(a);
  const bw::store_counters& c = store.counters();
  CHECK(c.put.requests() == 3);
  CHECK(c.put.bytes() == 5);
  CHECK(c.put.failures() == 1);
  CHECK(c.head.requests() == 1);
  CHECK(c.head.failures() == 0);
}

asio::awaitable<void> retries() {
  flaky_memory flaky{bw::memory_store()};
  flaky.faults().on(op::put, "a").nth(1).apply_then_fail(bw::errc::connection_lost);
  flaky.faults().on(op::put, "b").fail_before(bw::errc::access_denied);
  flaky.faults().on(op::put, "c").nth(1).lose(bw::errc::connection_lost);
  flaky.faults().on(op::put, "c").fail_before(bw::errc::throttled);
  const bw::retry_policy four = bw::retry_policy().attempts(4);
  bw::retrying_store<flaky_memory> store(flaky, four, instant_clock(), bw::random64(5));
  const std::string text("x"), a("a"), b("b"), c("c");
  const bw::const_buffers body{bw::as_bytes(text)};
  const bw::put_condition absent = bw::put_condition::if_absent();
  bw::result<bw::put_outcome> put = co_await store.put(a, body, absent);
  REQUIRE(put.has_value());
  CHECK_FALSE(put->applied());  // its own first attempt won: the caller compares the nonce
  put = co_await store.put(b, body, absent);
  REQUIRE_FALSE(put.has_value());
  CHECK(flaky.faults().count(op::put, "b") == 1);  // nothing that waiting cures
  put = co_await store.put(c, body, absent);
  REQUIRE_FALSE(put.has_value());
  CHECK(flaky.faults().count(op::put, "c") == 4);
  CHECK(put.error().fate() == bw::fate::unknown);  // the first attempt may have happened
}
}  // namespace

TEST_CASE("the faulty store tells the fates apart") { test::run(fates()); }
TEST_CASE("a crash stops everything after the scripted operation") { test::run(crash()); }
TEST_CASE("the counting store counts requests, bytes and failures") { test::run(counting()); }
TEST_CASE("retries repeat what passes by itself and keep the worst fate") { test::run(retries()); }

TEST_CASE("URLs name stores, and wrong ones are explained") {
  asio::io_context context;
  const folder there;
  const std::string path = there.path().string();
  const auto open = [&](const std::string& url) { return bw::open_store(context.get_executor(), url); };
  CHECK(open("memory:").value().name() == "memory:");
  CHECK(open(path).value().name() == "file://" + path);
  CHECK(open("file:" + path).value().name() == "file://" + path);
  CHECK(open("file://" + path).value().name() == "file://" + path);
  CHECK(open("file://localhost" + path + "?durable=off").value().name() == "file://" + path);
  CHECK(open("file://" + path + "/a%20b?create=on").value().name() == "file://" + path + "/a b");
  CHECK(open("s3://bucket/some/prefix?endpoint=http://127.0.0.1:9&region=x").value().name() ==
        "s3://bucket/some/prefix?endpoint=http://127.0.0.1:9");
  CHECK(open(path + "/missing").error().code() == bw::errc::bucket_missing);
  for (const char* url : {"", "gs://bucket", "memory:name", "file://host/x", "file:", "file:///x?what=1", "file:///x%2", "s3://"}) {
    INFO(url);
    const auto r = open(url);
    REQUIRE_FALSE(r.has_value());
    CHECK(r.error().code() == bw::errc::invalid_argument);
  }
}
