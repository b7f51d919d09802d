// The client's bounds as pure values: retry budget, requests in flight, hedges; and temporary keys as services write them.
#include "support/catch.hpp"

#include <batchweave/base/random.hpp>
#include <batchweave/s3/concurrency.hpp>
#include <batchweave/s3/credential_text.hpp>
#include <batchweave/s3/hedging.hpp>
#include <batchweave/s3/retry_budget.hpp>

using namespace std::chrono_literals;
using namespace batchweave::s3;
namespace bw = batchweave;

namespace {
const bw::time_point start{std::chrono::hours(1)};
}

TEST_CASE("S3-20 a retry budget: spent by retries, refilled by success and slowly by time") {
  retry_budget b(5, 0.5, 1);
  int taken = 0;
  while (b.take(start)) ++taken;
  CHECK(taken == 5);
  CHECK_FALSE(b.take(start + 500ms));
  CHECK(b.take(start + 1001ms));
  CHECK_FALSE(b.take(start + 1002ms));
  b.success();
  b.success();
  b.success();
  CHECK(b.take(start + 1003ms));
  for (int i = 0; i < 100; ++i) b.success();
  CHECK(b.left() == 5);
  taken = 0;
  while (b.take(start + 1h)) ++taken;
  CHECK(taken == 5);
  // A clock that goes back neither gives nor takes.
  CHECK_FALSE(b.take(start));
  retry_budget boundless(0);
  for (int i = 0; i < 1000; ++i) REQUIRE(boundless.take(start));
}

TEST_CASE("S3-19 the number of requests in flight: down by a share, up by one a window, never below one") {
  concurrency_limit c(16, 1, 500ms);
  CHECK(c.value() == 16);
  CHECK(c.throttled(start, 16));
  CHECK(c.value() == 11);
  CHECK_FALSE(c.throttled(start + 499ms, 16));  // the same burst
  CHECK(c.throttled(start + 501ms, 11));
  CHECK(c.value() == 7);
  for (int i = 0; i < 100; ++i) (void)c.throttled(start + 1s * (i + 2), 1);
  CHECK(c.value() == 1);
  int successes = 0;
  while (!c.at_most() && successes < 1000) {
    (void)c.success();
    ++successes;
  }
  CHECK(c.value() == 16);
  CHECK(successes > 100);  // 1 + 2 + ... + 15
  CHECK(successes < 200);
  // Fewer on their way than allowed: what was on its way is what was too much.
  CHECK(c.throttled(start + 1h, 4));
  CHECK(c.value() == 2);
  concurrency_limit floor(16);
  for (int i = 0; i < 100; ++i) (void)floor.throttled(start + 1s * i, 1);
  CHECK(floor.value() == 4);
  concurrency_limit narrow(2);
  (void)narrow.throttled(start, 2);
  CHECK(narrow.value() == 2);
}

TEST_CASE("hedges: only for the slowest, and only a share") {
  hedging h(0.05);
  bw::random64 random(7);
  CHECK_FALSE(h.patience());
  for (int i = 0; i < 200; ++i) h.answered(i % 50 == 0 ? bw::duration(400ms) : bw::duration(10ms));
  REQUIRE(h.patience());
  CHECK(*h.patience() > 10ms);
  CHECK(*h.patience() < 100ms);
  int taken = 0;
  while (h.take()) ++taken;
  CHECK(taken == 4);
  for (int i = 0; i < 40; ++i) h.answered(10ms);
  taken = 0;
  while (h.take()) ++taken;
  CHECK((taken == 1 || taken == 2));  // 5 % of 40
}

TEST_CASE("CR-01 time stamps of temporary keys") {
  const auto t = parse_time("2023-05-15T18:07:54Z");
  REQUIRE(t.has_value());
  CHECK(parse_time("2023-05-15T18:07:54.123Z") == t);
  CHECK(parse_time("2023-05-15T20:07:54+02:00") == t);
  CHECK(parse_time("2023-05-15T16:37:54-0130") == t);
  CHECK(*parse_time("1970-01-01T00:00:01Z") == bw::wall_time(1s));
  for (const char* bad : {"", "2023-05-15", "2023-05-15T18:07:54", "2023-13-15T18:07:54Z", "2023-02-30T18:07:54Z", "2023-05-15T25:07:54Z", "2023-05-15T18:07:54Zx",
                          "2023-05-15T18:07:54+0", "yesterday at noon, or so"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_time(bad));
  }
}

TEST_CASE("temporary keys in JSON: whole or not at all, and no message shows one") {
  const auto good = credentials_of_json(R"({"AccessKeyId":"A","SecretAccessKey":"geheim","Token":"T","Expiration":"2030-01-01T00:00:00Z","More":[1,{}]})", "it");
  REQUIRE(good.has_value());
  CHECK(good->access_key() == "A");
  CHECK(good->secret_key().reveal() == "geheim");
  CHECK(good->session_token().reveal() == "T");
  CHECK(good->expires().has_value());
  CHECK(good->source() == "it");
  const auto lasting = credentials_of_json(R"({"Version":1,"AccessKeyId":"A","SecretAccessKey":"geheim"})", "it");
  REQUIRE(lasting.has_value());
  CHECK_FALSE(lasting->expires());
  for (const char* bad : {"", "[]", "null", R"({"AccessKeyId":"A","SecretAccessKey":"geheim")", R"({"SecretAccessKey":"geheim"})", R"({"AccessKeyId":7,"SecretAccessKey":"geheim"})",
                          R"({"AccessKeyId":"A","SecretAccessKey":"geheim","Expiration":"soon"})", R"({"Code":"Failed","AccessKeyId":"A","SecretAccessKey":"geheim"})"}) {
    CAPTURE(bad);
    const auto r = credentials_of_json(bad, "it");
    REQUIRE_FALSE(r.has_value());
    CHECK(r.error().code() == bw::errc::credentials_missing);
    CHECK(r.error().what().find("geheim") == std::string::npos);
  }
}
