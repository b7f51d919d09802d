// What S3 means: conditions, keys, ranges, listings, removal, signing and clocks, through s3_store.
#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/s3_world.hpp"

#include <batchweave/store/probe.hpp>
#include <batchweave/testing/store_conformance.hpp>

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace bw = batchweave;
using test::s3_world;

// ---- conditional writes ---------------------------------------------------------------------------------------------------------

TEST_CASE("CW-06 409 ConditionalRequestConflict is neither success nor 412") {
  s3_world w;
  auto body = [&]() -> asio::awaitable<void> {
    w.server.on("PUT", "once").times(2).reply(409, "ConditionalRequestConflict");
    const auto healed = co_await test::put_text(w.store, "once", "x", bw::put_condition::if_absent());
    REQUIRE(test::good(healed));
    CHECK(healed->applied());
    w.server.on("PUT", "ever").reply(409, "ConditionalRequestConflict");
    const auto stuck = co_await test::put_text(w.store, "ever", "x", bw::put_condition::if_absent());
    REQUIRE_FALSE(stuck.has_value());
    CHECK(stuck.error().kind() == bw::error_kind::retry_later);
  };
  w.run(body());
  CHECK(w.server.count("PUT", "once") == 3);
  CHECK(w.server.object("once") == "x");
}

TEST_CASE("services rule 4: a 409 that is for ever is not repeated") {
  s3_world w;
  w.server.on("PUT").reply(409, "ObjectParentIsFile");
  auto body = [&]() -> asio::awaitable<void> {
    const auto put = co_await test::put_text(w.store, "a/b", "x", bw::put_condition());
    REQUIRE_FALSE(put.has_value());
    CHECK(put.error().server_code() == "ObjectParentIsFile");
    CHECK(put.error().kind() == bw::error_kind::reconfigure);
  };
  w.run(body());
  CHECK(w.server.count("PUT") == 1);
}

TEST_CASE("CW-10 a proxy that strips If-None-Match is noticed and nothing is overwritten") {
  s3_world w;
  w.server.put_object("log/1", "theirs");
  w.server.on("PUT").strip_header("if-none-match");
  auto body = [&]() -> asio::awaitable<void> {
    const auto put = co_await test::put_text(w.store, "log/1", "mine", bw::put_condition::if_absent());
    REQUIRE_FALSE(put.has_value());
    CHECK(put.error().code() == bw::errc::access_denied);
  };
  w.run(body());
  CHECK(w.server.object("log/1") == "theirs");
}

TEST_CASE("CW-11 the condition is a bare star, and is sent as one") {
  s3_world w;
  auto body = [&]() -> asio::awaitable<void> {
    const auto first = co_await test::put_text(w.store, "k", "1", bw::put_condition::if_absent());
    const auto second = co_await test::put_text(w.store, "k", "2", bw::put_condition::if_absent());
    REQUIRE(test::good(first));
    REQUIRE(test::good(second));
    CHECK(first->applied());
    CHECK_FALSE(second->applied());
  };
  w.run(body());
  CHECK(w.server.object("k") == "1");
  for (const auto& q : w.server.requests()) CHECK(q.header("if-none-match") == "*");
}

TEST_CASE("If-Match replaces only what was read") {
  s3_world w;
  auto body = [&]() -> asio::awaitable<void> {
    const auto first = co_await test::put_text(w.store, "k", "1", bw::put_condition());
    REQUIRE(test::good(first));
    const auto second = co_await test::put_text(w.store, "k", "2", bw::put_condition::if_match(first->etag()));
    REQUIRE(test::good(second));
    CHECK(second->applied());
    const auto stale = co_await test::put_text(w.store, "k", "3", bw::put_condition::if_match(first->etag()));
    REQUIRE(test::good(stale));
    CHECK_FALSE(stale->applied());
  };
  w.run(body());
  CHECK(w.server.object("k") == "2");
}

TEST_CASE("CW-01 CW-02 CW-05 the fate of a conditional write whose answer is lost") {
  s3_world w(s3_world::hasty);
  auto body = [&]() -> asio::awaitable<void> {
    w.server.on("PUT", "dropped").times(1).apply_then_drop();
    const auto dropped = co_await test::put_text(w.store, "dropped", "x", bw::put_condition::if_absent());
    if (dropped) CHECK_FALSE(dropped->applied());  // 412 against its own write: the caller compares a nonce
    if (!dropped) CHECK(dropped.error().fate() == bw::fate::unknown);

    w.server.on("PUT", "error").apply_then_reply(500);
    const auto error = co_await test::put_text(w.store, "error", "x", bw::put_condition::if_absent());
    REQUIRE_FALSE(error.has_value());
    CHECK(error.error().fate() == bw::fate::unknown);

    auto late = w.server.on("PUT", "late").apply_late();
    const auto given_up = co_await test::put_text(w.store, "late", "x", bw::put_condition::if_absent());
    REQUIRE_FALSE(given_up.has_value());
    CHECK(given_up.error().fate() == bw::fate::unknown);
    const auto absent = co_await w.store.head("late");
    REQUIRE(test::good(absent));
    CHECK_FALSE(absent->has_value());
    late.release();
    co_await w.server.until([&] { return w.server.object("late").has_value(); });
    const auto present = co_await w.store.head("late");
    REQUIRE(test::good(present));
    CHECK(present->has_value());
  };
  w.run(body());
  CHECK(w.server.object("dropped") == "x");
  CHECK(w.server.object("error") == "x");
}

TEST_CASE("CW-13 a conditional write is one PUT whatever its size, or refused") {
  s3_world w;
  const std::string large = test::pattern(20u << 20);
  auto body = [&]() -> asio::awaitable<void> {
    const auto put = co_await test::put_text(w.store, "log/1", large, bw::put_condition::if_absent());
    if (put) {
      CHECK(put->applied());
      CHECK((w.server.object("log/1") == large));
      CHECK(w.server.count("PUT") == 1);
    } else {
      CHECK(put.error().code() == bw::errc::invalid_argument);
    }
  };
  w.run(body());
  CHECK(w.server.count("INITIATE") == 0);
}

// ---- keys -----------------------------------------------------------------------------------------------------------------------

TEST_CASE("SG-01 SG-02 SG-03 SG-04 S3-11 hostile keys are signed, stored, listed and removed as they are") {
  s3_world w;
  const std::vector<std::string> keys{"a b.txt", "c++/x+1", "~x",  "\xe6\x97\xa5\xe6\x9c\xac/\xc3\xa9", "100%.csv", "a%2Fb", "Tom & Jerry", "<x>", "\"q\"",
                                      "it's",    "a=b&c=d", "#?;", "(x)!*,:@$"};
  auto body = [&]() -> asio::awaitable<void> {
    for (const std::string& k : keys) {
      CAPTURE(k);
      const auto put = co_await test::put_text(w.store, k, "v:" + k, bw::put_condition::if_absent());
      REQUIRE(test::good(put));
      CHECK(put->applied());
      const auto got = co_await test::get_text(w.store, k, 0, 2 + k.size());
      REQUIRE(test::good(got));
      CHECK(*got == "v:" + k);
      const auto page = co_await w.store.list(k, "", 10);
      REQUIRE(test::good(page));
      REQUIRE(page->objects().size() == 1);
      CHECK(page->objects()[0].key() == k);
    }
    const auto all = co_await w.store.list("", "", 100);
    REQUIRE(test::good(all));
    CHECK(all->objects().size() == keys.size());
    CHECK_FALSE(all->more());
    // Paging starts after each of them.
    std::string after;
    std::size_t seen = 0;
    for (bool more = true; more;) {
      const auto page = co_await w.store.list("", after, 2);
      REQUIRE(test::good(page));
      seen += page->objects().size();
      more = page->more();
      if (more) after = page->objects().back().key();
      REQUIRE(seen <= keys.size());
    }
    CHECK(seen == keys.size());
    const auto failed = co_await w.store.remove(keys);
    REQUIRE(test::good(failed));
    CHECK(failed->empty());
  };
  w.run(body());
  CHECK(w.server.keys().empty());
}

// ---- ranges ---------------------------------------------------------------------------------------------------------------------

TEST_CASE("S3-18 empty objects and ranges at and past the end") {
  s3_world w;
  w.server.put_object("empty", "");
  w.server.put_object("ten", "0123456789");
  struct row {
    const char* key;
    std::uint64_t offset, length;
    const char* expect;
  };
  const std::vector<row> rows{{"empty", 0, 0, ""},      {"empty", 0, 1, ""},  {"empty", 0, 100, ""}, {"empty", 5, 5, ""}, {"ten", 0, 0, ""},
                              {"ten", 5, 0, ""},        {"ten", 5, 95, "56789"}, {"ten", 10, 3, ""},    {"ten", 11, 1, ""}, {"ten", 0, 10, "0123456789"},
                              {"ten", 9, 1, "9"},       {"ten", 0, 1, "0"}};
  auto body = [&]() -> asio::awaitable<void> {
    for (const row& r : rows) {
      CAPTURE(r.key, r.offset, r.length);
      std::string bytes(r.length, '?');
      bw::mutable_buffers into{bw::mutable_bytes(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())};
      const bw::byte_range range(r.offset, r.length);
      const auto got = co_await w.store.get(r.key, range, into);
      REQUIRE(test::good(got));
      REQUIRE(got->found());
      CHECK(bytes.substr(0, got->bytes()) == r.expect);
      CHECK(got->object_size() == (r.key[0] == 't' ? 10u : 0u));
    }
    const auto absent = co_await test::read(w.store, "nothing", 0, 10);
    REQUIRE(test::good(absent));
    CHECK_FALSE(absent->found());
  };
  w.run(body());
}

TEST_CASE("S3-18 other stores' answers to impossible ranges") {
  s3_world w;
  w.server.put_object("ten", "0123456789");
  SECTION("416 without Content-Range (Ceph, versitygw)") { w.server.on("GET").nth(1).reply(416, "InvalidRange"); }
  SECTION("206 with an empty body (S3Mock)") {
    bw::testing::s3_reply odd(206);
    odd.header("Content-Range", "bytes 10-9/10").header("ETag", "\"e\"");
    w.server.on("GET").nth(1).reply_with(odd);
  }
  auto body = [&]() -> asio::awaitable<void> {
    const auto got = co_await test::read(w.store, "ten", 10, 3);
    if (got) {
      CHECK(got->bytes() == 0);
      if (got->found()) CHECK(got->object_size() == 10);
    }
    if (!got) CHECK(got.error().code() != bw::errc::bug);
  };
  w.run(body());
}

TEST_CASE("a store that ignores Range is not believed to have honoured it") {
  s3_world w;
  w.server.put_object("ten", "0123456789");
  w.server.on("GET").ignore_header("range");
  auto body = [&]() -> asio::awaitable<void> {
    const auto got = co_await test::get_text(w.store, "ten", 4, 3);
    if (got) CHECK(*got == "456");
    const auto first = co_await test::get_text(w.store, "ten", 0, 3);
    if (first) CHECK(*first == "012");
  };
  w.run(body());
}

// ---- listings -------------------------------------------------------------------------------------------------------------------

TEST_CASE("S3-16 a 200 that is not a listing is an error, never an empty listing") {
  s3_world w;
  w.server.put_object("k/1", "x");
  bw::testing::s3_reply page(200);
  SECTION("HTML of a captive proxy") { page.body("<html><body>Please log in</body></html>"); }
  SECTION("HTML that is no XML") { page.body("<!doctype html><p>Please<br>log in"); }
  SECTION("nothing") { page.body(""); }
  SECTION("cut off, length right") { page.body("<?xml version=\"1.0\"?><ListBucketResult><Name>test</Name><IsTruncated>false</IsTru"); }
  SECTION("text") { page.body("OK"); }
  SECTION("another result") { page.body("<?xml version=\"1.0\"?><DeleteResult></DeleteResult>"); }
  SECTION("an error with 200") { page.body(bw::testing::detail::s3_error_xml("InternalError", "scripted")); }
  SECTION("no IsTruncated") { page.body("<?xml version=\"1.0\"?><ListBucketResult><Name>test</Name></ListBucketResult>"); }
  w.server.on("LIST").reply_with(page);
  auto body = [&]() -> asio::awaitable<void> {
    const auto got = co_await w.store.list("k/", "", 10);
    CHECK_FALSE(got.has_value());
  };
  w.run(body());
}

TEST_CASE("a listing is paged by the server's limit too") {
  s3_world w(bw::testing::s3_server_options().page_limit(3));
  for (int i = 0; i < 10; ++i) w.server.put_object("k/" + std::to_string(i), "x");
  w.server.put_object("z", "x");
  auto body = [&]() -> asio::awaitable<void> {
    std::vector<std::string> seen;
    std::string after;
    for (bool more = true; more;) {
      const auto page = co_await w.store.list("k/", after, 1000);
      REQUIRE(test::good(page));
      for (const auto& o : page->objects()) seen.push_back(o.key());
      more = page->more();
      if (more) after = page->objects().back().key();
      REQUIRE(seen.size() <= 10);
    }
    CHECK(seen.size() == 10);
    CHECK(std::is_sorted(seen.begin(), seen.end()));
  };
  w.run(body());
}

// ---- removal --------------------------------------------------------------------------------------------------------------------

TEST_CASE("S3-08 S3-09 1001 keys go in two requests, each with Content-MD5") {
  s3_world w;
  std::vector<std::string> keys;
  for (int i = 0; i < 1001; ++i) {
    keys.push_back("k/" + std::to_string(i));
    w.server.put_object(keys.back(), "x");
  }
  auto body = [&]() -> asio::awaitable<void> {
    const auto failed = co_await w.store.remove(keys);
    REQUIRE(test::good(failed));
    CHECK(failed->empty());
    std::vector<std::string> none;
    const auto nothing = co_await w.store.remove(none);
    REQUIRE(test::good(nothing));
    CHECK(nothing->empty());
  };
  w.run(body());
  CHECK(w.server.keys().empty());
  CHECK(w.server.count("DELETE_OBJECTS") == 2);
  for (const auto& q : w.server.requests()) CHECK(q.header("content-md5"));
}

TEST_CASE("S3-10 keys that could not be removed are reported, the others are not") {
  s3_world w;
  bw::testing::s3_reply partly(200);
  partly.body(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult><Deleted><Key>a</Key></Deleted><Error><Key>Tom &amp; Jerry</Key>"
      "<Code>AccessDenied</Code><Message>Access Denied</Message></Error></DeleteResult>");
  std::size_t expect = 1;
  SECTION("both keys are mentioned") {}
  SECTION("one is not: it is not believed to be gone") {
    expect = 2;
    partly.body(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult><Error><Key>Tom &amp; Jerry</Key><Code>AccessDenied</Code>"
        "<Message>Access Denied</Message></Error></DeleteResult>");
  }
  w.server.on("DELETE_OBJECTS").reply_with(partly);
  auto body = [&]() -> asio::awaitable<void> {
    std::vector<std::string> keys{"a", "Tom & Jerry"};
    const auto failed = co_await w.store.remove(keys);
    REQUIRE(test::good(failed));
    REQUIRE(failed->size() == expect);
    CHECK((*failed)[0].key() == "Tom & Jerry");
    CHECK((*failed)[0].why().code() == bw::errc::access_denied);
    CHECK((*failed)[0].why().server_code() == "AccessDenied");
  };
  w.run(body());
}

TEST_CASE("S3-10 S3-16 an answer to DeleteObjects that is none is an error") {
  s3_world w;
  w.server.put_object("a", "x");
  bw::testing::s3_reply odd(200);
  SECTION("empty") {}
  SECTION("an error with 200") { odd.body(bw::testing::detail::s3_error_xml("AccessDenied", "scripted")); }
  SECTION("HTML") { odd.body("<html></html>"); }
  w.server.on("DELETE_OBJECTS").reply_with(odd);
  auto body = [&]() -> asio::awaitable<void> {
    std::vector<std::string> keys{"a"};
    const auto failed = co_await w.store.remove(keys);
    CHECK((!failed.has_value() || failed->size() == 1));
  };
  w.run(body());
}

// ---- signing and clocks ---------------------------------------------------------------------------------------------------------

TEST_CASE("SG-10 SG-13 every request is signed as it is sent; wrong keys are refused by name") {
  s3_world w;
  auto body = [&]() -> asio::awaitable<void> {
    const auto put = co_await test::put_text(w.store, "o", "bytes", bw::put_condition());
    REQUIRE(test::good(put));
    auto wrong = w.store_with_secret("wrong-secret-value");
    const auto refused = co_await test::get_text(wrong, "o", 0, 5);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code() == bw::errc::access_denied);
    CHECK(refused.error().what().find("wrong-secret-value") == std::string::npos);
    CHECK(refused.error().server_code() == "SignatureDoesNotMatch");
  };
  w.run(body());
}

TEST_CASE("SG-15 every attempt has a date and a signature of its own") {
  s3_world w;
  w.server.on("GET").times(1).reply(503, "SlowDown");
  w.server.put_object("o", "bytes");
  auto body = [&]() -> asio::awaitable<void> {
    const auto got = co_await test::get_text(w.store, "o", 0, 5);
    REQUIRE(test::good(got));
  };
  w.run(body());
  for (const auto& q : w.server.requests()) CHECK(q.header("x-amz-date"));
}

TEST_CASE("SG-16 the store's clock is learned from its answer and remembered") {
  s3_world w;
  w.server.put_object("o", "bytes");
  SECTION("ahead") { w.server.clock_offset(20min); }
  SECTION("behind") { w.server.clock_offset(-20min); }
  auto body = [&]() -> asio::awaitable<void> {
    const auto info = co_await w.store.head("o");  // the answer has no body
    REQUIRE(test::good(info));
    CHECK(info->has_value());
    CHECK(w.server.count("*") == 2);
    const auto got = co_await test::get_text(w.store, "o", 0, 5);
    REQUIRE(test::good(got));
    CHECK(*got == "bytes");
    CHECK(w.server.count("*") == 3);
  };
  w.run(body());
}

TEST_CASE("SG-16 a clock cannot be learned from a cached answer") {
  s3_world w;
  w.server.put_object("o", "bytes");
  w.server.on("*").header("Age", "1200");
  w.server.clock_offset(20min);
  auto body = [&]() -> asio::awaitable<void> {
    const auto got = co_await test::get_text(w.store, "o", 0, 5);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code() == bw::errc::clock_skewed);
  };
  w.run(body());
}

TEST_CASE("S3-24 uploads are plain bodies with Content-Length") {
  s3_world w;
  auto body = [&]() -> asio::awaitable<void> {
    const auto put = co_await test::put_text(w.store, "o", "bytes", bw::put_condition());
    REQUIRE(test::good(put));
    const auto create = co_await test::put_text(w.store, "empty", "", bw::put_condition::if_absent());
    REQUIRE(test::good(create));
  };
  w.run(body());
  for (const auto& q : w.server.requests()) {
    CHECK(q.header("content-length"));
    CHECK_FALSE(q.header("transfer-encoding"));
    CHECK_FALSE(q.header("x-amz-trailer"));
    CHECK_FALSE(q.header("x-amz-content-sha256").value_or("").starts_with("STREAMING-"));
  }
}

TEST_CASE("S3-25 one wrong byte passes the transport: integrity is the format's own") {
  s3_world w;
  w.server.put_object("o", "bytes");
  w.server.on("GET").nth(1).flip_byte(2);
  auto body = [&]() -> asio::awaitable<void> {
    const auto got = co_await test::get_text(w.store, "o", 0, 5);
    REQUIRE(test::good(got));
    CHECK(*got != "bytes");
    const auto again = co_await test::get_text(w.store, "o", 0, 5);
    REQUIRE(test::good(again));
    CHECK(*again == "bytes");
  };
  w.run(body());
}

// ---- stores that cannot be trusted ----------------------------------------------------------------------------------------------

TEST_CASE("the probe accepts a store that creates atomically") {
  s3_world w;
  auto body = [&]() -> asio::awaitable<void> {
    const bw::random64 random(1);
    const auto verdict = co_await bw::probe_store(w.store, random);
    REQUIRE(test::good(verdict));
  };
  w.run(body());
  CHECK(w.server.keys().empty());
}

TEST_CASE("CW-08 CW-09 the probe refuses stores that ignore the condition or check it without a lock") {
  s3_world w;
  SECTION("ignored") { w.server.on("PUT").ignore_header("if-none-match"); }
  SECTION("checked, then written") { w.server.on("PUT").check_then_write(20ms); }
  auto body = [&]() -> asio::awaitable<void> {
    const bw::random64 random(2);
    const auto verdict = co_await bw::probe_store(w.store, random);
    REQUIRE_FALSE(verdict.has_value());
    CAPTURE(verdict.error().what());
    CHECK(verdict.error().code() == bw::errc::store_unsafe);
    CHECK(verdict.error().what().find("s3://test") != std::string::npos);
  };
  w.run(body());
  CHECK(w.server.keys().empty());
}

// ---- multipart uploads ----------------------------------------------------------------------------------------------------------

namespace {

/// A store whose unconditional puts above 6 MiB go up in parts of 5 MiB.
bw::s3_store in_parts(s3_world& w) {
  bw::s3_config c = w.config();
  c.multipart_threshold(6u << 20).part_size(5u << 20).parts_in_flight(2);
  return bw::s3_store(w.io.get_executor(), c);
}

}  // namespace

TEST_CASE("S3-01 S3-02 S3-21 a large object goes up in parts and every step survives a fault") {
  s3_world w;
  const std::string large = test::pattern((12u << 20) + 7);
  bw::testing::s3_reply inside(200);
  inside.body("  \n\n" + bw::testing::detail::s3_error_xml("InternalError", "scripted"));
  SECTION("no fault") {}
  SECTION("start fails once") { w.server.on("INITIATE").nth(1).reply(503, "SlowDown"); }
  SECTION("start is lost once") { w.server.on("INITIATE").nth(1).drop(); }
  SECTION("a part fails once") { w.server.on("PART").nth(2).reply(500, "InternalError"); }
  SECTION("a part is stored, the answer lost") { w.server.on("PART").nth(1).apply_then_drop(); }
  SECTION("complete fails once") { w.server.on("COMPLETE").nth(1).reply(503, "SlowDown"); }
  SECTION("S3-01: 200 with an error inside") { w.server.on("COMPLETE").nth(1).reply_with(inside); }
  SECTION("S3-01: 200 with nothing inside") { w.server.on("COMPLETE").nth(1).reply_with(bw::testing::s3_reply(200)); }
  SECTION("S3-02: complete was done, the answer lost") { w.server.on("COMPLETE").nth(1).apply_then_drop(); }
  SECTION("S3-02: complete was done, the answer was 500") { w.server.on("COMPLETE").nth(1).apply_then_reply(500); }
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store = in_parts(w);
    const auto put = co_await test::put_text(store, "large", large, bw::put_condition());
    REQUIRE(test::good(put));
    CHECK(put->applied());
    CHECK_FALSE(put->etag().empty());
  };
  w.run(body());
  CHECK((w.server.object("large") == large));
  CHECK(w.server.unprotected_writes() == 0);
  CHECK(w.server.count("PUT") == 0);
  CHECK(w.server.count("PART") >= 3);
}

TEST_CASE("S3-01 S3-02 S3-07 uploads that fail say so and are aborted") {
  s3_world w;
  const std::string large = test::pattern(11u << 20);
  bw::testing::s3_reply inside(200);
  inside.body(bw::testing::detail::s3_error_xml("InternalError", "scripted"));
  bool aborted = true;
  SECTION("a part is refused") { w.server.on("PART").nth(2).reply(403, "AccessDenied"); }
  SECTION("S3-01: complete never succeeds") {
    w.server.on("COMPLETE").reply_with(inside);
    aborted = false;  // it may have happened: nothing is thrown away
  }
  SECTION("S3-02: somebody aborted the upload") { w.server.on("COMPLETE").reply(404, "NoSuchUpload"); }
  SECTION("S3-02: and another object is there") {
    w.server.put_object("large", std::string(large.size(), 'z'));
    w.server.on("COMPLETE").reply(404, "NoSuchUpload");
  }
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store = in_parts(w);
    const auto put = co_await test::put_text(store, "large", large, bw::put_condition());
    CHECK_FALSE(put.has_value());
  };
  w.run(body());
  CHECK(w.server.count("ABORT") == (aborted ? 1u : 0u));
  CHECK(w.server.uploads() == (aborted ? 0u : 1u));
}

TEST_CASE("S3-03 parts below 5 MiB are refused before anything is sent") {
  s3_world w;
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_config c = w.config();
    c.part_size(5'000'000);
    bw::s3_store store(w.io.get_executor(), c);
    const auto put = co_await test::put_text(store, "o", "x", bw::put_condition());
    REQUIRE_FALSE(put.has_value());
    CHECK(put.error().code() == bw::errc::invalid_argument);
  };
  w.run(body());
  CHECK(w.server.requests().empty());
}

// ---- everything a store must do -------------------------------------------------------------------------------------------------

TEST_CASE("the conformance suite holds for s3_store") {
  bw::testing::s3_server_options options;
  SECTION("as it is") {}
  SECTION("short pages") { options.page_limit(3); }
  s3_world w(options);
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_config c = w.config();
    c.prefix("team a/data+1");
    bw::s3_store store(w.io.get_executor(), c);
    const bw::random64 random(3);
    const std::vector<std::string> violations = co_await bw::testing::check_store(store, random);
    CAPTURE(violations);
    CHECK(violations.empty());
  };
  w.run(body());
  CHECK(w.server.keys().empty());
}
