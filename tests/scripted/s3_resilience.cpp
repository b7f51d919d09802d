// The client over long and bad days: limits that fire, names with several addresses, overload, slow tails, uploads that are given up.
#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/s3_world.hpp"

#include <batchweave/aio/task_group.hpp>

#include <boost/asio/ip/tcp.hpp>

#include <sys/socket.h>

#include <list>
#include <set>

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace bw = batchweave;
using bw::errc;
using test::s3_world;
using tcp = asio::ip::tcp;

namespace {

/// A listener whose queue is full: the kernel answers nobody, as a host behind a firewall that drops.
class black_hole {
 public:
  explicit black_hole(asio::io_context& io, const char* address = "127.0.0.1") : acceptor_(io) {
    const tcp::endpoint at(asio::ip::make_address(address), 0);
    acceptor_.open(at.protocol());
    acceptor_.bind(at);
    acceptor_.listen(0);
    for (int i = 0; i < 8; ++i) {
      waiting_.emplace_back(io);
      waiting_.back().open(tcp::v4());
      waiting_.back().non_blocking(true);
      const tcp::endpoint to = acceptor_.local_endpoint();
      // Asio's own connect() would wait.
      (void)::connect(waiting_.back().native_handle(), to.data(), static_cast<socklen_t>(to.size()));
    }
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port()); }

 private:
  tcp::acceptor acceptor_;
  std::list<tcp::socket> waiting_;
};

asio::awaitable<void> get_into(bw::s3_store store, std::string key, std::uint64_t n, std::vector<bw::result<std::string>>& all) {
  auto r = co_await test::get_text(store, key, 0, n);
  all.push_back(std::move(r));
}

asio::awaitable<void> put_into(bw::s3_store store, std::string key, const std::string& bytes, std::vector<bw::result<bw::put_outcome>>& all) {
  const bw::const_bytes whole = bw::as_bytes(bytes);
  bw::const_buffers body{whole};
  const bw::put_condition none;
  auto r = co_await store.put(key, body, none);
  all.push_back(std::move(r));
}

bw::retry_policy once() {
  bw::retry_policy r;
  r.attempts(1);
  return r;
}

}  // namespace

// ---- limits ---------------------------------------------------------------------------------------------------------------------

TEST_CASE("TR-12 each limit fires by its own name") {
  s3_world w;
  w.server.put_object("o", test::pattern(100'000));
  bw::s3_config c = w.config();
  c.retry(once());
  errc expect = errc::bug;
  bw::fate fate = bw::fate::did_not_happen;
  std::optional<black_hole> hole;
  std::size_t put_bytes = 0;
  SECTION("connect") {
    hole.emplace(w.io);
    c.endpoint(hole->endpoint()).connect_timeout(200ms);
    expect = errc::connect_timeout;
  }
  SECTION("first byte") {
    w.server.on("*").stall_before_reply();
    c.first_byte_timeout(200ms);
    expect = errc::first_byte_timeout;
  }
  SECTION("first byte of a write: the fate is unknown") {
    w.server.on("*").stall_before_reply();
    c.first_byte_timeout(200ms);
    put_bytes = 100;
    fate = bw::fate::unknown;
    expect = errc::first_byte_timeout;
  }
  SECTION("body of the answer") {
    w.server.on("*").stall_body_after(50'000);
    c.stall_timeout(200ms);
    expect = errc::stalled;
  }
  SECTION("body of the request") {
    w.server.on("*").never_read();
    c.stall_timeout(200ms);
    put_bytes = 32u << 20;
    fate = bw::fate::unknown;
    expect = errc::stalled;
  }
  SECTION("overall, in the body") {
    w.server.on("*").drip(100, 20ms);
    c.overall_timeout(300ms);
    expect = errc::overall_timeout;
  }
  SECTION("overall, while connecting") {
    hole.emplace(w.io);
    c.endpoint(hole->endpoint()).overall_timeout(200ms);
    expect = errc::overall_timeout;
  }
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    if (put_bytes > 0) {
      const auto put = co_await test::put_text(store, "p", test::pattern(put_bytes), bw::put_condition::if_absent());
      REQUIRE_FALSE(put.has_value());
      CAPTURE(put.error().what());
      CHECK(put.error().code() == expect);
      CHECK(put.error().fate() == fate);
      co_return;
    }
    const auto got = co_await test::get_text(store, "o", 0, 100'000);
    REQUIRE_FALSE(got.has_value());
    CAPTURE(got.error().what());
    CHECK(got.error().code() == expect);
    CHECK(got.error().kind() == bw::error_kind::retry_later);
  };
  w.run(body());
}

TEST_CASE("TR-12 waiting for a connection counts against the limit of the operation, and leaves no place behind") {
  s3_world w;
  w.server.put_object("o", "bytes");
  bw::s3_config c = w.config();
  c.max_connections(1).overall_timeout(1s);
  auto slow = w.server.on("GET").nth(1).stall_before_reply();
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    std::vector<bw::result<std::string>> all;
    bw::task_group both(w.io.get_executor());
    both.spawn(get_into(store, "o", 5, all));
    both.spawn(get_into(store, "o", 5, all));
    co_await both.join();
    REQUIRE(all.size() == 2);
    for (const auto& r : all) {
      if (!r) CHECK(r.error().code() == errc::overall_timeout);
    }
    const auto again = co_await test::get_text(store, "o", 0, 5);
    REQUIRE(test::good(again));
  };
  w.run(body());
}

TEST_CASE("TR-12 the limit of the operation ends its retries") {
  s3_world w;
  w.server.on("*").reply(500, "InternalError");
  bw::s3_config c = w.config();
  bw::retry_policy many;
  many.attempts(1000).base(100ms).cap(100ms);
  c.retry(many).overall_timeout(1500ms);
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    const auto got = co_await test::get_text(store, "o", 0, 5);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code() == errc::store_unavailable);
    CHECK(got.error().what().find("gave up") != std::string::npos);
  };
  w.run(body());
  CHECK(w.server.count("GET") > 1);
  CHECK(w.server.count("GET") < 40);
}

TEST_CASE("TR-24 a read that is cancelled half-way closes its connection and frees its place") {
  s3_world w;
  const std::string bytes = test::pattern(300'000);
  w.server.put_object("o", bytes);
  w.server.on("GET").nth(1).stall_body_after(100'000);
  bw::s3_config c = w.config();
  c.max_connections(1);
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    std::vector<bw::result<std::string>> all;
    bw::task_group paused(w.io.get_executor());
    paused.spawn(get_into(store, "o", bytes.size(), all));
    co_await w.server.until([&] { return w.server.count("GET") == 1; });
    co_await test::settle();
    paused.cancel();
    co_await paused.join();
    CHECK(all.empty());
    const auto got = co_await test::get_text(store, "o", 0, bytes.size());
    REQUIRE(test::good(got));
    CHECK((*got == bytes));
  };
  w.run(body());
  CHECK(w.server.connections() == 2);
}

TEST_CASE("TR-07 a connection that has been idle for longer than the limit is not used again") {
  s3_world w;
  w.server.put_object("o", "bytes");
  bw::s3_config c = w.config();
  c.idle_limit(50ms);
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    bw::any_clock clock;
    for (int i = 0; i < 2; ++i) {
      const auto got = co_await test::get_text(store, "o", 0, 5);
      REQUIRE(test::good(got));
    }
    CHECK(w.server.connections() == 1);
    co_await clock.wait_for(80ms);
    const auto got = co_await test::get_text(store, "o", 0, 5);
    REQUIRE(test::good(got));
  };
  w.run(body());
  CHECK(w.server.connections() == 2);
}

TEST_CASE("TR-02 204 and 304 have no body to wait for, whatever they announce") {
  s3_world w;
  w.server.put_object("o", "bytes");
  const int status = GENERATE(204, 304);
  w.server.on("GET").nth(1).reply_with(bw::testing::s3_reply(status));
  auto body = [&]() -> asio::awaitable<void> {
    const auto odd = co_await test::get_text(w.store, "o", 0, 5);
    if (odd) CHECK(odd->empty());
    const auto got = co_await test::get_text(w.store, "o", 0, 5);
    REQUIRE(test::good(got));
    CHECK(*got == "bytes");
  };
  w.run(body());
  CHECK(w.server.connections() == 1);
}

// ---- names ----------------------------------------------------------------------------------------------------------------------

TEST_CASE("TR-23 a name with several addresses: the dead ones are passed over, and not met again soon") {
  s3_world w;
  w.server.put_object("o", "bytes");
  int asked = 0;
  std::vector<std::string> answers{"127.0.0.5", "127.0.0.6", "127.0.0.1"};  // the server listens on the last one only
  bw::s3_config c = w.config();
  c.endpoint("http://store.test:" + std::to_string(w.server.port())).idle_limit(0ms).name_lifetime(1h);
  c.lookup([&](const std::string& host) {
    ++asked;
    CHECK(host == "store.test");
    std::vector<asio::ip::address> r;
    for (const auto& a : answers) r.push_back(asio::ip::make_address(a));
    return r;
  });
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    for (int i = 0; i < 6; ++i) {
      const auto got = co_await test::get_text(store, "o", 0, 5);
      REQUIRE(test::good(got));
      CHECK(*got == "bytes");
    }
    CHECK(asked == 1);
    CHECK(store.client().retries() == 0);
    SECTION("later all of them are dead, and then they change") {
      w.server.close_idle_connections();
      bw::s3_config gone = c;
      answers = {"127.0.0.5", "127.0.0.6"};
      bw::s3_store other(w.io.get_executor(), gone);
      std::vector<bw::result<std::string>> all;
      const auto got = co_await test::get_text(other, "o", 0, 5);
      REQUIRE_FALSE(got.has_value());
      CHECK(got.error().code() == errc::connect_failed);
      CHECK(asked > 2);  // looked up again on every failure
      answers = {"127.0.0.1"};
      const auto back = co_await test::get_text(other, "o", 0, 5);
      REQUIRE(test::good(back));
    }
  };
  w.run(body());
}

TEST_CASE("TR-23 connections are spread over the addresses, and a name is looked up again after a short time") {
  asio::io_context io;
  int asked = 0;
  bw::http::name_cache names(bw::any_clock(), 50ms, [&](const std::string&) {
    ++asked;
    return std::vector<asio::ip::address>{asio::ip::make_address("10.0.0.1"), asio::ip::make_address("10.0.0.2"), asio::ip::make_address("10.0.0.3")};
  });
  auto body = [&]() -> asio::awaitable<void> {
    std::set<std::string> first;
    for (int i = 0; i < 3; ++i) {
      const auto found = co_await names.find("h", 80, 1s);
      REQUIRE(found.has_value());
      CHECK(found->size() == 3);
      first.insert(found->front().address().to_string());
    }
    CHECK(first.size() == 3);
    CHECK(asked == 1);
    names.note("h", asio::ip::make_address("10.0.0.2"), false);
    for (int i = 0; i < 3; ++i) {
      const auto found = co_await names.find("h", 80, 1s);
      CHECK(found->back().address().to_string() == "10.0.0.2");
    }
    bw::any_clock clock;
    co_await clock.wait_for(80ms);
    (void)co_await names.find("h", 80, 1s);
    CHECK(asked == 2);
  };
  test::run(io, body());
}

TEST_CASE("TR-23 an address that swallows packets costs its share of the connect limit, once") {
  s3_world w;
  w.server.put_object("o", "bytes");
  black_hole hole(w.io, "127.0.0.7");
  // Both must have the same port, so the dead address is one where nothing can ever answer: the queue of the hole is on its own port.
  bw::s3_config c = w.config();
  c.endpoint("http://store.test:" + std::to_string(hole.port())).connect_timeout(400ms).retry(once());
  c.lookup([](const std::string&) { return std::vector<asio::ip::address>{asio::ip::make_address("127.0.0.7")}; });
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    const auto got = co_await test::get_text(store, "o", 0, 5);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code() == errc::connect_timeout);
    CHECK(got.error().fate() == bw::fate::did_not_happen);
  };
  w.run(body());
}

// ---- overload -------------------------------------------------------------------------------------------------------------------

TEST_CASE("S3-19 SlowDown lowers the number of requests in flight, success raises it again") {
  s3_world w;
  w.server.put_object("o", "bytes");
  bw::s3_config c = w.config();
  c.max_connections(16);
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    std::vector<bw::result<std::string>> all;
    {
      auto slow = w.server.on("GET").times(16).reply(503, "SlowDown");
      bw::task_group many(w.io.get_executor());
      for (int i = 0; i < 16; ++i) many.spawn(get_into(store, "o", 5, all));
      co_await many.join();
      slow.remove();
    }
    for (const auto& r : all) CHECK(test::good(r));
    const std::size_t low = store.client().concurrency();
    CHECK(low < 16);
    CHECK(low >= 1);
    // No more than that many are on their way at one time from now on.
    auto held = w.server.on("GET").apply_late();
    all.clear();
    bw::task_group many(w.io.get_executor());
    for (int i = 0; i < 16; ++i) many.spawn(get_into(store, "o", 5, all));
    co_await held.until_held(static_cast<unsigned>(low));
    for (int i = 0; i < 20; ++i) co_await test::settle();
    CHECK(held.held() == low);
    held.release();
    held.remove();
    co_await many.join();
    for (int i = 0; i < 400 && store.client().concurrency() < 16; ++i) co_await get_into(store, "o", 5, all);
    CHECK(store.client().concurrency() == 16);
    for (const auto& r : all) CHECK(test::good(r));
  };
  w.run(body());
}

TEST_CASE("S3-20 retries are drawn from one budget of the client") {
  s3_world w;
  w.server.on("*").reply(503, "SlowDown");
  bw::s3_config c = w.config();
  c.retry_budget(10);
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    std::vector<bw::result<std::string>> all;
    for (int i = 0; i < 30; ++i) co_await get_into(store, "o", 5, all);
    for (const auto& r : all) {
      REQUIRE_FALSE(r.has_value());
      CHECK(r.error().code() == errc::throttled);
    }
    CHECK(all.back().error().what().find("used up") != std::string::npos);
    CHECK(store.client().retries() >= 10);
    CHECK(store.client().retries() < 30 * (w.attempts - 1) / 2);
  };
  w.run(body());
}

TEST_CASE("S3-20 the waits between attempts grow and are spread") {
  bw::random64 random(5);
  bw::retry_policy policy;
  std::set<bw::duration> seen;
  bw::duration longest{0};
  for (int i = 0; i < 200; ++i) {
    for (unsigned n = 1; n < 8; ++n) {
      const bw::duration d = policy.delay(n, random);
      CHECK(d >= 50ms);
      CHECK(d <= 10s);
      seen.insert(d);
      longest = std::max(longest, d);
    }
  }
  CHECK(seen.size() > 1000);
  CHECK(longest > 5s);
}

// ---- slow tails -----------------------------------------------------------------------------------------------------------------

TEST_CASE("a read whose answer is slow to begin gets a second request, and the first answer counts") {
  s3_world w;
  const std::string bytes = test::pattern(200'000);
  w.server.put_object("o", bytes);
  bw::s3_config c = w.config();
  c.hedge_share(0.5).max_connections(4);  // generous: a busy machine makes a tail of its own
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    for (int i = 0; i < 60; ++i) {
      const auto got = co_await test::get_text(store, "o", 0, bytes.size());
      REQUIRE(test::good(got));
    }
    const auto before = store.client().hedges();
    SECTION("the first never answers") {
      w.server.on("GET").nth(1).stall_before_reply();
      const auto got = co_await test::get_text(store, "o", 0, bytes.size());
      REQUIRE(test::good(got));
      CHECK((*got == bytes));
      CHECK(store.client().hedges() == before + 1);
      CHECK(store.client().hedges_won() >= 1);
      CHECK(store.client().retries() == 0);
    }
    SECTION("the second is refused, the first answers later") {
      w.server.on("GET").nth(1).latency(300ms);
      w.server.on("GET").nth(2).reply(503, "SlowDown");
      const auto got = co_await test::get_text(store, "o", 0, bytes.size());
      REQUIRE(test::good(got));
      CHECK((*got == bytes));
    }
    SECTION("both are slow: the second is not followed by a third") {
      const std::size_t asked = w.server.count("GET");
      w.server.on("GET").latency(200ms);
      const auto got = co_await test::get_text(store, "o", 0, bytes.size());
      REQUIRE(test::good(got));
      CHECK((*got == bytes));
      CHECK(w.server.count("GET") == asked + 2);
    }
    SECTION("many are slow: hedges stay a small share") {
      bw::s3_config sparing = c;
      sparing.hedge_share(0.05);
      bw::s3_store few(w.io.get_executor(), sparing);
      for (int i = 0; i < 40; ++i) {
        const auto got = co_await test::get_text(few, "o", 0, 5);
        REQUIRE(test::good(got));
      }
      w.server.on("GET").latency(100ms);
      for (int i = 0; i < 12; ++i) {
        const auto got = co_await test::get_text(few, "o", 0, 5);
        REQUIRE(test::good(got));
      }
      CHECK(few.client().hedges() <= 1 + 52 / 20 + 1);
    }
    SECTION("cancelled: both requests end, nothing is written afterwards") {
      w.server.on("GET").stall_before_reply();
      std::vector<bw::result<std::string>> all;
      bw::task_group one(w.io.get_executor());
      const std::size_t asked = w.server.count("GET");
      one.spawn(get_into(store, "o", bytes.size(), all));
      co_await w.server.until([&] { return w.server.count("GET") == asked + 2; });
      one.cancel();
      co_await one.join();
      CHECK(all.empty());
      w.server.clear_script();
      const auto got = co_await test::get_text(store, "o", 0, bytes.size());
      REQUIRE(test::good(got));
    }
    SECTION("a body that is cut off is resumed all the same") {
      w.server.on("GET").nth(1).cut_body_after(100'000);
      const auto got = co_await test::get_text(store, "o", 0, bytes.size());
      REQUIRE(test::good(got));
      CHECK((*got == bytes));
    }
  };
  w.run(body());
}

// ---- uploads --------------------------------------------------------------------------------------------------------------------

TEST_CASE("S3-07 an upload that is cancelled is aborted in a scope of its own") {
  s3_world w;
  const std::string large = test::pattern(11u << 20);
  bw::s3_config c = w.config();
  c.multipart_threshold(6u << 20).part_size(5u << 20).parts_in_flight(2);
  auto held = w.server.on("PART").nth(2).stall_before_reply();
  bool fails = false;
  SECTION("the abort works") {}
  SECTION("the abort fails: it is counted") {
    fails = true;
    w.server.on("ABORT").reply(403, "AccessDenied");
  }
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    std::vector<bw::result<bw::put_outcome>> all;
    bw::task_group one(w.io.get_executor());
    one.spawn(put_into(store, "large", large, all));
    co_await w.server.until([&] { return w.server.count("PART") >= 2; });
    one.cancel();
    co_await one.join();
    CHECK(all.empty());
    co_await w.server.until([&] { return w.server.count("ABORT") == 1; });
    for (int i = 0; i < 200 && store.client().failed_aborts() == 0 && w.server.uploads() > 0; ++i) co_await test::settle();
    bw::any_clock clock;
    for (int i = 0; i < 100 && fails && store.client().failed_aborts() == 0; ++i) co_await clock.wait_for(2ms);
    CHECK(store.client().aborts() == 1);
    CHECK(store.client().failed_aborts() == (fails ? 1 : 0));
    CHECK(w.server.uploads() == (fails ? 1 : 0));
  };
  w.run(body());
  CHECK_FALSE(w.server.object("large"));
}

TEST_CASE("S3-24 a store without x-amz-checksum-crc32c gets signed hashes instead, after one refusal") {
  s3_world w;
  bw::s3_config c = w.config();
  c.signing(bw::payload_signing::crc32c);
  auto refusing = w.server.on("PUT").with_header("x-amz-checksum-crc32c").reply(501, "NotImplemented");
  const std::string bytes = test::pattern(200'000);
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store(w.io.get_executor(), c);
    for (int i = 0; i < 3; ++i) {
      const auto put = co_await test::put_text(store, "o" + std::to_string(i), bytes, bw::put_condition::if_absent());
      REQUIRE(test::good(put));
      CHECK(put->applied());
    }
    CHECK(store.client().retries() == 0);
  };
  w.run(body());
  CHECK(refusing.acted() == 1);
  CHECK(w.server.count("PUT") == 4);
  CHECK(w.server.unprotected_writes() == 0);
}

TEST_CASE("If-Match is asked again without quotes where the quoted form was never honoured, as by Ceph 16") {
  s3_world w;
  auto body = [&]() -> asio::awaitable<void> {
    const auto first = co_await test::put_text(w.store, "k", "1", bw::put_condition());
    REQUIRE(test::good(first));
    SECTION("the store wants it bare, which is remembered") {
      w.server.on("PUT").with_header("if-match").times(1).reply(412, "PreconditionFailed");
      const auto second = co_await test::put_text(w.store, "k", "2", bw::put_condition::if_match(first->etag()));
      REQUIRE(test::good(second));
      CHECK(second->applied());
      const auto third = co_await test::put_text(w.store, "k", "3", bw::put_condition::if_match(second->etag()));
      REQUIRE(test::good(third));
      CHECK(third->applied());
      CHECK(w.server.count("PUT") == 4);
      CHECK(w.server.requests().back().header("if-match").value_or("\"").find('"') == std::string::npos);
    }
    SECTION("the store takes the quoted form: a refusal is a refusal") {
      const auto second = co_await test::put_text(w.store, "k", "2", bw::put_condition::if_match(first->etag()));
      REQUIRE(test::good(second));
      CHECK(second->applied());
      const auto stale = co_await test::put_text(w.store, "k", "3", bw::put_condition::if_match(first->etag()));
      REQUIRE(test::good(stale));
      CHECK_FALSE(stale->applied());
      CHECK(w.server.count("PUT") == 3);
    }
  };
  w.run(body());
}
