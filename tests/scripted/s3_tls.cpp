// The way to the store: TLS with its certificates, names and ends without close_notify, and proxies.
#include "support/catch.hpp"
#include "support/http_service.hpp"
#include "support/run.hpp"
#include "support/s3_world.hpp"
#include "support/variables.hpp"

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace bw = batchweave;
using test::http_service;
using test::s3_world;

namespace {

bw::testing::s3_server_options tls(const std::string& names = "DNS:localhost,IP:127.0.0.1", int days = 30) {
  bw::testing::s3_server_options o;
  o.tls(bw::testing::s3_certificate::make(names, days));
  return o;
}

}  // namespace

TEST_CASE("reads and writes over TLS") {
  s3_world w(tls());
  const std::string bytes = test::pattern(3u << 20);
  auto body = [&]() -> asio::awaitable<void> {
    const auto put = co_await test::put_text(w.store, "o", bytes, bw::put_condition::if_absent());
    REQUIRE(test::good(put));
    CHECK(put->applied());
    const auto got = co_await test::get_text(w.store, "o", 1, bytes.size() - 2);
    REQUIRE(test::good(got));
    CHECK((*got == bytes.substr(1, bytes.size() - 2)));
  };
  w.run(body());
  CHECK(w.server.unprotected_writes() == 0);
}

TEST_CASE("TR-05 TLS closed without close_notify") {
  s3_world w(tls());
  w.server.put_object("o", "0123456789");
  auto body = [&]() -> asio::awaitable<void> {
    SECTION("the length is satisfied: success") {
      w.server.on("GET").close_after_reply().no_close_notify();
      const auto got = co_await test::get_text(w.store, "o", 0, 10);
      REQUIRE(test::good(got));
      CHECK(*got == "0123456789");
      const auto again = co_await test::get_text(w.store, "o", 0, 10);
      REQUIRE(test::good(again));
      CHECK(*again == "0123456789");
    }
    SECTION("the last chunk was seen: success") {
      w.server.on("*").chunked().close_after_reply().no_close_notify();
      const auto got = co_await test::get_text(w.store, "o", 0, 10);
      REQUIRE(test::good(got));
      CHECK(*got == "0123456789");
      const auto page = co_await w.store.list("", "", 10);
      REQUIRE(test::good(page));
      CHECK(page->objects().size() == 1);
    }
    SECTION("neither: an error, never a short listing") {
      bw::testing::s3_reply half(200);
      half.body("<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
      w.server.on("LIST").reply_with(half).until_close().no_close_notify();
      const auto page = co_await w.store.list("", "", 10);
      CHECK_FALSE(page.has_value());
    }
    SECTION("in mid-body: the rest is fetched") {
      w.server.on("GET").nth(1).cut_body_after(4);
      const auto got = co_await test::get_text(w.store, "o", 0, 10);
      REQUIRE(test::good(got));
      CHECK(*got == "0123456789");
    }
  };
  w.run(body());
}

TEST_CASE("TR-12 a TLS handshake that is never answered") {
  s3_world w(tls(), s3_world::hasty);
  w.server.put_object("o", "x");
  w.server.mute_next_connections(1000);
  auto body = [&]() -> asio::awaitable<void> {
    const auto got = co_await test::get_text(w.store, "o", 0, 1);
    REQUIRE_FALSE(got.has_value());
    CAPTURE(got.error().what());
    CHECK(got.error().fate() == bw::fate::did_not_happen);
    w.server.mute_next_connections(0);
    const auto again = co_await test::get_text(w.store, "o", 0, 1);
    REQUIRE(test::good(again));
  };
  w.run(body());
}

TEST_CASE("TR-21 certificates that must be refused") {
  s3_world good(tls());
  const auto refused = [&](s3_world& w, bw::s3_store store, const std::string& reason) {
    auto body = [&]() -> asio::awaitable<void> {
      const auto got = co_await test::get_text(store, "o", 0, 1);
      REQUIRE_FALSE(got.has_value());
      CAPTURE(got.error().what());
      CHECK(got.error().code() == bw::errc::tls_failed);
      CHECK(got.error().fate() == bw::fate::did_not_happen);
      CHECK(got.error().what().find("localhost:" + std::to_string(w.server.port())) != std::string::npos);
      CHECK(got.error().what().find(reason) != std::string::npos);
      CHECK(store.client().retries() == 0);
    };
    w.run(body());
    CHECK(w.server.requests().empty());
  };
  SECTION("for another name") {
    s3_world w(tls("DNS:other.example,DNS:*.localhost,IP:127.0.0.1"));
    refused(w, w.store, "hostname mismatch");
  }
  SECTION("expired") {
    s3_world w(tls("DNS:localhost,IP:127.0.0.1", -1));
    refused(w, w.store, "certificate has expired");
  }
  SECTION("its own authority, which nobody trusts") {
    s3_world w(tls());
    refused(w, w.store_that_trusts(good), "AWS_CA_BUNDLE");
  }
}

TEST_CASE("TR-21 a server with several certificates shows the one for the name it is asked for, and an address is asked for by no name") {
  std::string host, refused, default_names = "DNS:default.test,IP:127.0.0.1";
  SECTION("one name") { host = "one.test"; }
  SECTION("another name, under a wildcard") { host = "a.two.test"; }
  SECTION("a wildcard stands for one label") { host = "a.b.two.test", refused = "hostname mismatch"; }
  SECTION("a name without a certificate of its own gets the default one, which does not fit") { host = "three.test", refused = "hostname mismatch"; }
  SECTION("an address") { host = "127.0.0.1"; }
  SECTION("an address that the certificate does not have") {
    host = "127.0.0.1", refused = "IP address mismatch";
    default_names = "DNS:127.0.0.1,IP:127.0.0.2";
  }
  const auto by_default = bw::testing::s3_certificate::make(default_names);
  const auto one = bw::testing::s3_certificate::make("DNS:one.test"), wild = bw::testing::s3_certificate::make("DNS:*.two.test");
  bw::testing::s3_server_options options;
  options.tls(by_default).tls("one.test", one).tls("a.two.test", wild).tls("a.b.two.test", wild);
  s3_world w(options);
  w.server.put_object("o", "bytes");
  const test::temporary_file all(by_default.certificate() + one.certificate() + wild.certificate());
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_config c = w.config();
    c.endpoint(w.server.endpoint(host)).ca_file(all.path());
    c.lookup([](const std::string&) { return std::vector<asio::ip::address>{asio::ip::address_v4::loopback()}; });
    bw::s3_store store(w.io.get_executor(), c);
    const auto got = co_await test::get_text(store, "o", 0, 5);
    CAPTURE(host, got.has_value() ? std::string() : got.error().what());
    CHECK(got.has_value() == refused.empty());
    if (got) CHECK(*got == "bytes");
    if (!got) CHECK(got.error().code() == bw::errc::tls_failed);
    if (!got) CHECK(got.error().what().find(host + ":") != std::string::npos);
    if (!got) CHECK(got.error().what().find(refused) != std::string::npos);
  };
  w.run(body());
  const bool address = host.starts_with("127.");
  CHECK(w.server.server_names() == std::vector<std::string>{address ? std::string() : host});
}

TEST_CASE("services rule 2: over TLS too, an answer that comes before the body was read counts") {
  s3_world w(tls());
  const std::string large = test::pattern(16u << 20);
  auto body = [&]() -> asio::awaitable<void> {
    w.server.on("PUT", "lost").early_reply(412, "PreconditionFailed");
    const auto lost = co_await test::put_text(w.store, "lost", large, bw::put_condition::if_absent());
    REQUIRE(test::good(lost));
    CHECK_FALSE(lost->applied());
    w.server.on("PUT", "denied").early_reply(403, "AccessDenied");
    const auto denied = co_await test::put_text(w.store, "denied", large, bw::put_condition());
    REQUIRE_FALSE(denied.has_value());
    CHECK(denied.error().code() == bw::errc::access_denied);
    const auto fine = co_await test::put_text(w.store, "fine", large, bw::put_condition::if_absent());
    REQUIRE(test::good(fine));
    CHECK(fine->applied());
  };
  w.run(body());
  CHECK(w.server.count("PUT", "lost") == 1);
  CHECK(w.server.count("PUT", "denied") == 1);
  CHECK((w.server.object("fine") == large));
}

TEST_CASE("TR-22 which certificates are trusted") {
  s3_world w(tls());
  w.server.put_object("o", "x");
  const std::string bundle = w.config().ca_file();
  const auto with = [](const std::string& name, const std::string& value) {
    return [name, value](const std::string& asked) -> std::optional<std::string> {
      if (asked == name) return value;
      if (asked == "AWS_ACCESS_KEY_ID") return "testkey";
      if (asked == "AWS_SECRET_ACCESS_KEY") return "testsecret";
      return std::nullopt;
    };
  };
  const auto read = [&](const bw::s3::environment& env) {
    const auto config = bw::s3_config::from_url("s3://test?endpoint=" + w.server.endpoint("localhost"), env);
    REQUIRE(config.has_value());
    bw::result<std::string> got = bw::failure(bw::errc::bug, "not run");
    auto body = [&]() -> asio::awaitable<void> {
      bw::s3_store store(w.io.get_executor(), *config);
      got = co_await test::get_text(store, "o", 0, 1);
    };
    w.run(body());
    return got;
  };
  SECTION("AWS_CA_BUNDLE") { CHECK(test::good(read(with("AWS_CA_BUNDLE", bundle)))); }
  SECTION("SSL_CERT_FILE, which OpenSSL reads itself") {
    ::setenv("SSL_CERT_FILE", bundle.c_str(), 1);
    const auto got = read(with("NONE", ""));
    ::unsetenv("SSL_CERT_FILE");
    CHECK(test::good(got));
  }
  SECTION("by default the system's, which does not know this one") {
    const auto got = read(with("NONE", ""));
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code() == bw::errc::tls_failed);
  }
  SECTION("a bundle that is not there is an error, never trust in all") {
    const auto got = read(with("AWS_CA_BUNDLE", "/nonexistent/bundle.pem"));
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code() == bw::errc::tls_failed);
    CHECK(got.error().what().find("/nonexistent/bundle.pem") != std::string::npos);
  }
}

// ---- proxies --------------------------------------------------------------------------------------------------------------------

TEST_CASE("a proxy: absolute URLs for plain HTTP, a tunnel for TLS") {
  bw::testing::s3_server_options options;
  const bool secure = GENERATE(false, true);
  if (secure) options.tls(bw::testing::s3_certificate::make("DNS:store.test", 30));
  s3_world w(options);
  const auto proxy = http_service::proxy(w.io.get_executor(), w.server.port(), "Basic dXNlcjpwYSBzcw==");
  w.server.put_object("o", "bytes");
  const std::string at = std::string(secure ? "https" : "http") + "://store.test:" + std::to_string(w.server.port());
  const std::string with_password = "http://user:pa%20ss@127.0.0.1:" + std::to_string(proxy->port());
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_config c = w.config();
    c.endpoint(at).proxy(with_password);
    bw::s3_store store(w.io.get_executor(), c);
    for (int i = 0; i < 2; ++i) {
      const auto got = co_await test::get_text(store, "o", 0, 5);
      REQUIRE(test::good(got));
      CHECK(*got == "bytes");
    }
    const auto put = co_await test::put_text(store, "p", test::pattern(200'000), bw::put_condition::if_absent());
    REQUIRE(test::good(put));
    CHECK(put->applied());
    c.proxy(proxy->url());
    bw::s3_store refused(w.io.get_executor(), c);
    const auto got = co_await test::get_text(refused, "o", 0, 5);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().fate() == bw::fate::did_not_happen);
    CHECK(got.error().what().find("407") != std::string::npos);
    CHECK(got.error().what().find("pa ss") == std::string::npos);
  };
  w.run(body());
  CHECK(proxy->queries().at(0).method == (secure ? "CONNECT" : "GET"));
  CHECK(proxy->queries().at(0).target == (secure ? at.substr(8) : at + "/test/o"));
}

TEST_CASE("CR-04 proxy variables are honoured, but not for loopback nor for hosts of NO_PROXY") {
  s3_world w;
  const auto proxy = http_service::proxy(w.io.get_executor(), w.server.port());
  w.server.put_object("o", "bytes");
  std::string host = "store.test", no_proxy;
  std::size_t expect = 1;
  SECTION("proxied") {}
  SECTION("loopback") { host = "localhost"; expect = 0; }
  SECTION("an exception") {
    host = "store.test";
    no_proxy = "other.test,.test";
    expect = 0;
  }
  auto body = [&]() -> asio::awaitable<void> {
    auto found = bw::s3_config::from_url("s3://test?endpoint=http://" + host + ":" + std::to_string(w.server.port()),
                                         test::variables({{"AWS_ACCESS_KEY_ID", "testkey"}, {"AWS_SECRET_ACCESS_KEY", "testsecret"}, {"HTTP_PROXY", proxy->url()}, {"NO_PROXY", no_proxy}}));
    REQUIRE(found.has_value());
    found->lookup([](const std::string&) { return std::vector<asio::ip::address>{asio::ip::address_v4::loopback()}; });
    bw::s3_store store(w.io.get_executor(), *found);
    const auto got = co_await test::get_text(store, "o", 0, 5);
    REQUIRE(test::good(got));
  };
  w.run(body());
  CHECK(proxy->queries().size() == expect);
  CHECK(w.server.count("GET") == 1);
}

TEST_CASE("a proxy that cannot be read is an error, never a direct connection; loopback needs none") {
  s3_world w;
  w.server.put_object("o", "bytes");
  const std::string host = GENERATE(as<std::string>(), "store.test", "localhost");
  auto body = [&]() -> asio::awaitable<void> {
    auto found = bw::s3_config::from_url("s3://test?endpoint=http://" + host + ":" + std::to_string(w.server.port()),
                                         test::variables({{"AWS_ACCESS_KEY_ID", "testkey"}, {"AWS_SECRET_ACCESS_KEY", "testsecret"}, {"HTTP_PROXY", "socks5://user:geheim@p"}}));
    REQUIRE(found.has_value());
    found->lookup([](const std::string&) { return std::vector<asio::ip::address>{asio::ip::address_v4::loopback()}; });
    bw::s3_store store(w.io.get_executor(), *found);
    const auto got = co_await test::get_text(store, "o", 0, 5);
    CHECK(got.has_value() == (host == "localhost"));
    if (!got) CHECK(got.error().code() == bw::errc::invalid_argument);
    if (!got) CHECK(got.error().what().find("geheim") == std::string::npos);
  };
  w.run(body());
  CHECK(w.server.count("*") == (host == "localhost" ? 1u : 0u));
}
