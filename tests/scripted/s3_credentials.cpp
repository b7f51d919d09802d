// Where keys come from and how they are renewed: services that answer, are silent or refuse, profiles and processes.
#include "support/catch.hpp"
#include "support/http_service.hpp"
#include "support/run.hpp"
#include "support/s3_world.hpp"
#include "support/variables.hpp"

#include <batchweave/aio/task_group.hpp>
#include <batchweave/s3/credential_chain.hpp>

#include <map>
#include <set>

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace bw = batchweave;
using bw::errc;
using bw::s3::credentials;
using test::home;
using test::http_service;
using test::s3_world;
using test::temporary_file;
using test::variables;

namespace {

/// A wall clock that the test moves; waiting is real.
class moved_clock {
 public:
  moved_clock() : ahead_(std::make_shared<bw::duration>(0)) {}
  void forward(bw::duration d) { *ahead_ += d; }
  std::chrono::seconds ahead() const { return std::chrono::duration_cast<std::chrono::seconds>(*ahead_); }
  bw::time_point now() { return real_.now() + *ahead_; }
  bw::wall_time wall_now() { return real_.wall_now() + *ahead_; }
  asio::awaitable<void> wait_until(bw::time_point t) { return real_.wait_until(t - *ahead_); }

 private:
  std::shared_ptr<bw::duration> ahead_;
  bw::real_clock real_;
};

/// Hands out "key-1", "key-2", ... that live for `life`; waits at the gate when there is one; fails when told to.
struct key_shop {
  explicit key_shop(moved_clock c) : clock(c) {}
  moved_clock clock;
  std::chrono::seconds life{3600};
  int handed_out = 0, at_the_gate = 0;
  bool gated = false, failing = false;
  bw::async_event changed;
};

asio::awaitable<bw::result<credentials>> buy(std::shared_ptr<key_shop> shop) {
  ++shop->at_the_gate;
  shop->changed.notify();
  while (shop->gated) {
    const auto seen = shop->changed.observe();
    if (!shop->gated) break;
    co_await shop->changed.wait(seen);
  }
  --shop->at_the_gate;
  if (shop->failing) co_return bw::failure(errc::store_unavailable, "the shop is closed").with_fate(bw::fate::did_not_happen);
  credentials c("key-" + std::to_string(++shop->handed_out), "secret-of-the-shop", "token");
  c.expires(shop->clock.wall_now() + shop->life);
  co_return c;
}

bw::s3::credentials_provider provider_of(const std::shared_ptr<key_shop>& shop) {
  return [shop] { return buy(shop); };
}

std::string key_of(const bw::testing::s3_request& q) {
  const std::string text = q.header("authorization").value_or("");
  const std::size_t from = text.find("Credential=") + 11;
  return text.substr(from, text.find('/', from) - from);
}

/// A server that takes any key, and a store with keys from a shop.
struct renewing_world : s3_world {
  renewing_world() : s3_world(bw::testing::s3_server_options().check_signatures(false)), shop(std::make_shared<key_shop>(clock)) {
    server.put_object("o", "bytes");
  }
  bw::s3_store renewing() {
    bw::s3_config c = config();
    c.credentials(credentials()).credentials(provider_of(shop)).clock(clock);
    return bw::s3_store(io.get_executor(), c);
  }
  moved_clock clock;
  std::shared_ptr<key_shop> shop;
};

asio::awaitable<void> count_good_get(bw::s3_store store, int& good) {
  const auto got = co_await test::get_text(store, "o", 0, 5);
  CHECK(test::good(got));
  if (got && *got == "bytes") ++good;
}

/// The chain with these variables, run once.
bw::result<credentials> find_keys(asio::io_context& io, std::map<std::string, std::string> env, bw::duration process_limit = 10s) {
  bw::s3::chain_settings settings;
  bw::s3::service_access access;
  access.proxies(bw::http::proxy_settings::from(variables(env)));
  settings.variables(variables(std::move(env))).region("eu-west-1").access(access).process_limit(process_limit);
  const bw::s3::credentials_provider chain = bw::s3::credential_chain(settings);
  bw::result<credentials> found = bw::failure(errc::bug, "not run");
  auto body = [&]() -> asio::awaitable<void> { found = co_await chain(); };
  test::run(io, body());
  return found;
}

const std::string far_off = "2099-01-01T00:00:00Z";
std::string json_keys(const std::string& id) {
  return R"({"Version":1,"Code":"Success","AccessKeyId":")" + id + R"(","SecretAccessKey":"very/secret+key","Token":"tok","SessionToken":"tok","Expiration":")" +
         far_off + "\"}";
}
std::string sts_keys(const std::string& action, const std::string& id) {
  return "<" + action + "Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><" + action + "Result><Credentials><AccessKeyId>" + id +
         "</AccessKeyId><SecretAccessKey>very/secret+key</SecretAccessKey><SessionToken>tok==</SessionToken><Expiration>" + far_off +
         "</Expiration></Credentials></" + action + "Result></" + action + "Response>";
}
bool told_nothing(const bw::failure& f) {
  return f.what().find("very/secret") == std::string::npos && f.what().find("BASESECRET") == std::string::npos;
}

}  // namespace

// ---- renewal --------------------------------------------------------------------------------------------------------------------

TEST_CASE("CR-01 keys are fetched once for all, renewed before they expire, and the old ones serve meanwhile") {
  renewing_world w;
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store = w.renewing();
    bw::task_group many(w.io.get_executor());
    int good = 0;
    for (int i = 0; i < 20; ++i) many.spawn(count_good_get(store, good));
    co_await many.join();
    CHECK(good == 20);
    CHECK(w.shop->handed_out == 1);

    // Inside the last minutes, whatever the jitter: a renewal begins, nobody waits for it.
    w.shop->gated = true;
    w.clock.forward(3600s - 4min);
    w.server.clock_offset(w.clock.ahead());
    for (int i = 0; i < 20; ++i) many.spawn(count_good_get(store, good));
    co_await many.join();
    CHECK(good == 40);
    CHECK(w.shop->at_the_gate == 1);
    CHECK(key_of(w.server.requests().back()) == "key-1");
    w.shop->gated = false;
    w.shop->changed.notify();
    co_await test::settle();
    co_await count_good_get(store, good);
    CHECK(key_of(w.server.requests().back()) == "key-2");
    CHECK(w.shop->handed_out == 2);
    CHECK(store.client().credential_fetches() == 2);
  };
  w.run(body());
}

TEST_CASE("CR-01 early in their life keys are not renewed; two clients do not renew at the same moment") {
  moved_clock clock;
  auto shop = std::make_shared<key_shop>(clock);
  asio::io_context io;
  std::set<long> moments;
  auto body = [&]() -> asio::awaitable<void> {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      bw::s3::credential_cache cache(io.get_executor(), clock, bw::random64(seed), provider_of(shop));
      const auto first = co_await cache.get();
      REQUIRE(first.has_value());
      long seconds = 0;
      for (; seconds < 3600 && cache.fetches() == 1; seconds += 20) {
        clock.forward(20s);
        (void)cache.ready();
      }
      CHECK(seconds >= 3600 - 600);
      CHECK(seconds <= 3600 - 300 + 20);
      moments.insert(seconds);
      co_await test::settle();
    }
  };
  test::run(io, body());
  CHECK(moments.size() > 1);
}

TEST_CASE("CR-01 ExpiredToken forces one renewal for all who see it, and one retry each") {
  renewing_world w;
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store = w.renewing();
    int good = 0;
    co_await count_good_get(store, good);
    SECTION("eight reads at once") {
      w.server.on("GET").times(8).reply(400, "ExpiredToken");
      w.shop->gated = true;
      bw::task_group many(w.io.get_executor());
      for (int i = 0; i < 8; ++i) many.spawn(count_good_get(store, good));
      co_await w.server.until([&] { return w.server.count("GET") == 9; });
      w.shop->gated = false;
      w.shop->changed.notify();
      co_await many.join();
      CHECK(good == 9);
      CHECK(w.server.count("GET") == 1 + 16);
    }
    SECTION("HEAD, whose answer has no body") {
      w.server.on("HEAD").times(1).reply(400, "ExpiredToken");
      const auto info = co_await store.head("o");
      REQUIRE(test::good(info));
      CHECK(info->has_value());
    }
    SECTION("a write") {
      w.server.on("PUT").times(1).reply(400, "ExpiredToken");
      const auto put = co_await test::put_text(store, "p", "x", bw::put_condition::if_absent());
      REQUIRE(test::good(put));
      CHECK(put->applied());
    }
    CHECK(w.shop->handed_out == 2);
    CHECK(key_of(w.server.requests().back()) == "key-2");
  };
  w.run(body());
}

TEST_CASE("CR-01 keys that stay refused are an error after one renewal") {
  renewing_world w;
  w.server.on("GET").reply(400, "ExpiredToken");
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store = w.renewing();
    const auto got = co_await test::get_text(store, "o", 0, 5);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code() == errc::access_denied);
    CHECK(got.error().what().find("secret-of-the-shop") == std::string::npos);
  };
  w.run(body());
  CHECK(w.server.count("GET") == 2);
  CHECK(w.shop->handed_out == 2);
}

TEST_CASE("CR-01 a provider that fails: the old keys serve to their end, then the error is the provider's, and it heals") {
  renewing_world w;
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store = w.renewing();
    int good = 0;
    co_await count_good_get(store, good);
    w.shop->failing = true;
    w.clock.forward(3600s - 1min);
    w.server.clock_offset(w.clock.ahead());
    co_await count_good_get(store, good);
    CHECK(good == 2);
    w.clock.forward(2min);
    w.server.clock_offset(w.clock.ahead());
    const auto got = co_await test::get_text(store, "o", 0, 5);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().kind() == bw::error_kind::retry_later);
    CHECK(got.error().what().find("the shop is closed") != std::string::npos);
    CHECK(got.error().fate() == bw::fate::did_not_happen);
    w.shop->failing = false;
    co_await count_good_get(store, good);
    CHECK(good == 3);
  };
  w.run(body());
}

TEST_CASE("CR-01 whoever asked for keys may be cancelled; the fetch goes on for the others") {
  renewing_world w;
  w.shop->gated = true;
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_store store = w.renewing();
    int good = 0;
    bw::task_group impatient(w.io.get_executor()), patient(w.io.get_executor());
    impatient.spawn(count_good_get(store, good));
    co_await test::settle();
    patient.spawn(count_good_get(store, good));
    co_await test::settle();
    impatient.cancel();
    co_await impatient.join();
    CHECK(w.shop->at_the_gate == 1);
    w.shop->gated = false;
    w.shop->changed.notify();
    co_await patient.join();
    CHECK(good == 1);
  };
  w.run(body());
  CHECK(w.shop->handed_out == 1);
}

TEST_CASE("TR-12 CR-01 a provider that never answers counts against the limit of the operation") {
  renewing_world w;
  w.shop->gated = true;
  auto body = [&]() -> asio::awaitable<void> {
    bw::s3_config c = w.config();
    c.credentials(credentials()).credentials(provider_of(w.shop)).overall_timeout(200ms);
    bw::s3_store store(w.io.get_executor(), c);
    const auto got = co_await test::get_text(store, "o", 0, 5);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code() == errc::overall_timeout);
    w.shop->gated = false;
    w.shop->changed.notify();
  };
  w.run(body());
}

// ---- the instance and the container ---------------------------------------------------------------------------------------------

TEST_CASE("CR-02 the instance metadata service, version 2") {
  asio::io_context io;
  http_service imds(io.get_executor(), [](const http_service::query& q) {
    if (q.method == "PUT") return http_service::reply(q.header("x-aws-ec2-metadata-token-ttl-seconds").empty() ? 400 : 200, "session-token");
    if (q.header("x-aws-ec2-metadata-token") != "session-token") return http_service::reply(401);
    if (q.target == "/latest/meta-data/iam/security-credentials/") return http_service::reply(200, "the-role\n");
    if (q.target == "/latest/meta-data/iam/security-credentials/the-role") return http_service::reply(200, json_keys("INSTANCE"));
    return http_service::reply(404);
  });
  std::map<std::string, std::string> env{{"AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url()}};
  SECTION("CR-08 although there is no default profile") {}
  SECTION("CR-04 although a proxy is set, which is dead") {
    env["HTTP_PROXY"] = "http://127.0.0.1:1";
    env["http_proxy"] = "http://127.0.0.1:1";
  }
  const auto c = find_keys(io, env);
  REQUIRE(test::good(c));
  CHECK(c->access_key() == "INSTANCE");
  CHECK(c->session_token().reveal() == "tok");
  CHECK(c->expires() == bw::s3::parse_time(far_off));
  CHECK(imds.queries().size() == 3);
}

TEST_CASE("CR-02 a session token that never comes costs one short limit, then version 1 is tried where that is allowed") {
  asio::io_context io;
  http_service imds(io.get_executor(), [](const http_service::query& q) {
    if (q.method == "PUT") return http_service::reply::never();
    if (q.target == "/latest/meta-data/iam/security-credentials/") return http_service::reply(200, "the-role");
    return http_service::reply(200, json_keys("INSTANCE"));
  });
  std::map<std::string, std::string> env{{"AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url()}, {"AWS_METADATA_SERVICE_TIMEOUT", "0.1"}};
  SECTION("allowed") {
    const auto c = find_keys(io, env);
    REQUIRE(test::good(c));
    CHECK(c->access_key() == "INSTANCE");
    CHECK(c->source().find("hop limit") != std::string::npos);
    CHECK(imds.queries().size() == 3);
  }
  SECTION("not allowed") {
    env["AWS_EC2_METADATA_V1_DISABLED"] = "true";
    const auto c = find_keys(io, env);
    REQUIRE_FALSE(c.has_value());
    CHECK(c.error().code() == errc::credentials_missing);
    CHECK(c.error().what().find("hop limit") != std::string::npos);
    CHECK(imds.queries().size() == 1);
  }
  SECTION("switched off") {
    env["AWS_EC2_METADATA_DISABLED"] = "true";
    CHECK_FALSE(find_keys(io, env).has_value());
    CHECK(imds.queries().empty());
  }
}

TEST_CASE("CR-02 answers of an instance that are no keys") {
  asio::io_context io;
  int token_status = 200, role_status = 200, key_status = 200;
  std::string role = "the-role", keys = json_keys("INSTANCE");
  http_service imds(io.get_executor(), [&](const http_service::query& q) {
    if (q.method == "PUT") return http_service::reply(token_status, "session-token");
    if (q.target.ends_with("/")) return http_service::reply(role_status, role);
    return http_service::reply(key_status, keys);
  });
  const std::map<std::string, std::string> env{{"AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url()}};
  std::string expect;
  SECTION("no role") { role_status = 404; expect = "no role is attached"; }
  SECTION("a failure that is told in the JSON") { keys = R"({"Code":"AssumeRoleUnauthorizedAccess","Message":"no"})"; expect = "AssumeRoleUnauthorizedAccess"; }
  SECTION("no JSON") { keys = "<html>"; expect = "no JSON"; }
  SECTION("half the JSON") { keys = R"({"AccessKeyId":"A"})"; expect = "SecretAccessKey"; }
  SECTION("an error") { key_status = 500; expect = "500"; }
  SECTION("a role name that is a page") { role = "<html> no"; expect = "no role name"; }
  const auto c = find_keys(io, env);
  REQUIRE_FALSE(c.has_value());
  CAPTURE(c.error().what());
  CHECK(c.error().code() == errc::credentials_missing);
  CHECK(c.error().what().find(expect) != std::string::npos);
  CHECK(told_nothing(c.error()));
}

TEST_CASE("CR-08 no keys anywhere: every place that was looked at is named") {
  asio::io_context io;
  const auto c = find_keys(io, {{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1"}});
  REQUIRE_FALSE(c.has_value());
  CHECK(c.error().code() == errc::credentials_missing);
  const std::string places[] = {"AWS_ACCESS_KEY_ID", home(), "metadata"};
  for (const std::string& part : places) CHECK(c.error().what().find(part) != std::string::npos);
}

TEST_CASE("CR-04 the container's endpoint is asked directly, with its token") {
  asio::io_context io;
  int status = 200;
  http_service ecs(io.get_executor(), [&status](const http_service::query& q) {
    if (q.target != "/v2/keys?id=1" || q.header("authorization") != "Bearer abc") return http_service::reply(404);
    return http_service::reply(status, json_keys("CONTAINER"));
  });
  const temporary_file token("Bearer abc\n");
  std::map<std::string, std::string> env{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", ecs.url() + "/v2/keys?id=1"},
                                         {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path()},
                                         {"HTTP_PROXY", "http://127.0.0.1:1"}};
  SECTION("token in a file") {
    const auto c = find_keys(io, env);
    REQUIRE(test::good(c));
    CHECK(c->access_key() == "CONTAINER");
  }
  SECTION("token in a variable") {
    env.erase("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    env["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Bearer abc";
    CHECK(test::good(find_keys(io, env)));
  }
  SECTION("a token that would inject a header") {
    env.erase("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    env["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Bearer abc\r\nX: y";
    CHECK_FALSE(find_keys(io, env).has_value());
    CHECK(ecs.queries().empty());
  }
  SECTION("overloaded: passes by itself") {
    status = 503;
    const auto c = find_keys(io, env);
    REQUIRE_FALSE(c.has_value());
    CHECK(c.error().kind() == bw::error_kind::retry_later);
  }
  SECTION("plain HTTP to somebody else") {
    env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://203.0.113.9/keys";
    const auto c = find_keys(io, env);
    REQUIRE_FALSE(c.has_value());
    CHECK(c.error().what().find("use https") != std::string::npos);
  }
}

// ---- roles ----------------------------------------------------------------------------------------------------------------------

TEST_CASE("a role is assumed with the keys of another profile") {
  asio::io_context io;
  http_service sts(io.get_executor(), [](const http_service::query& q) {
    if (q.body.find("Action=AssumeRole&") == std::string::npos) return http_service::reply(400);
    return http_service::reply(200, sts_keys("AssumeRole", q.body.find("arn%3Aaws%3Aiam%3A%3A1%3Arole%2Finner") != std::string::npos ? "INNER" : "OUTER"));
  });
  const temporary_file config(
      "[profile dev]\nrole_arn = arn:aws:iam::1:role/inner\nsource_profile = base\nexternal_id = e x\nrole_session_name = me\nduration_seconds=900\n"
      "[profile twice]\nrole_arn = arn:aws:iam::1:role/outer\nsource_profile = dev\n"
      "[profile self]\nrole_arn = arn:aws:iam::1:role/inner\nsource_profile = self\naws_access_key_id = BASE\naws_secret_access_key = BASESECRET\n"
      "[profile circle]\nrole_arn = r\nsource_profile = circle2\n[profile circle2]\nrole_arn = r\nsource_profile = circle\n"
      "[profile nobody]\nrole_arn = r\nsource_profile = absent\n[profile alone]\nrole_arn = r\n"
      "[profile mfa]\nrole_arn = r\nsource_profile = base\nmfa_serial = m\n[profile sso]\nsso_session = s\n"
      "[profile env]\nrole_arn = arn:aws:iam::1:role/inner\ncredential_source = Environment\n");
  const temporary_file keys("[base]\naws_access_key_id = BASE\naws_secret_access_key = BASESECRET\n");
  std::map<std::string, std::string> env{{"AWS_CONFIG_FILE", config.path()},
                                         {"AWS_SHARED_CREDENTIALS_FILE", keys.path()},
                                         {"AWS_ENDPOINT_URL_STS", sts.url()},
                                         {"AWS_EC2_METADATA_DISABLED", "true"}};
  SECTION("source_profile") {
    env["AWS_PROFILE"] = "dev";
    const auto c = find_keys(io, env);
    REQUIRE(test::good(c));
    CHECK(c->access_key() == "INNER");
    CHECK(c->session_token().reveal() == "tok==");
    CHECK(c->expires().has_value());
    const auto& q = sts.queries().at(0);
    CHECK(q.method == "POST");
    CHECK(q.body.find("&RoleSessionName=me&DurationSeconds=900&ExternalId=e%20x") != std::string::npos);
    CHECK(q.header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=BASE/"));
    CHECK(q.header("authorization").find("/eu-west-1/sts/aws4_request,SignedHeaders=content-type;host;x-amz-date,") != std::string::npos);
  }
  SECTION("two steps") {
    env["AWS_PROFILE"] = "twice";
    const auto c = find_keys(io, env);
    REQUIRE(test::good(c));
    CHECK(c->access_key() == "OUTER");
    CHECK(sts.queries().size() == 2);
    CHECK(sts.queries()[1].header("authorization").find("Credential=INNER/") != std::string::npos);
    CHECK(sts.queries()[1].header("x-amz-security-token") == "tok==");
  }
  SECTION("its own keys") {
    env["AWS_PROFILE"] = "self";
    CHECK(test::good(find_keys(io, env)));
  }
  SECTION("what cannot work is said by name, and nothing is sent") {
    const std::pair<const char*, const char*> rows[] = {{"circle", "circle"},    {"nobody", "absent"},       {"alone", "neither source_profile"},
                                                        {"mfa", "mfa_serial"},   {"sso", "export-credentials"}, {"env", "AWS_ACCESS_KEY_ID"}};
    for (const auto& [profile, part] : rows) {
      CAPTURE(profile);
      env["AWS_PROFILE"] = profile;
      const auto c = find_keys(io, env);
      REQUIRE_FALSE(c.has_value());
      CHECK(c.error().code() == errc::credentials_missing);
      CHECK(c.error().what().find(part) != std::string::npos);
      CHECK(told_nothing(c.error()));
    }
    CHECK(sts.queries().empty());
  }
}

TEST_CASE("what STS refuses, and what passes by itself") {
  asio::io_context io;
  int status = 403;
  std::string text;
  http_service sts(io.get_executor(), [&](const http_service::query&) { return http_service::reply(status, text); });
  const temporary_file token("the.web.token\n");
  const std::map<std::string, std::string> env{{"AWS_WEB_IDENTITY_TOKEN_FILE", token.path()}, {"AWS_ROLE_ARN", "arn:r"}, {"AWS_ENDPOINT_URL_STS", sts.url()}};
  const auto error = [](const char* code) {
    return "<ErrorResponse><Error><Type>Sender</Type><Code>" + std::string(code) + "</Code><Message>why</Message></Error></ErrorResponse>";
  };
  bw::error_kind expect = bw::error_kind::reconfigure;
  SECTION("denied") { text = error("AccessDenied"); }
  SECTION("throttled") { status = 400; text = error("Throttling"); expect = bw::error_kind::retry_later; }
  SECTION("the identity provider is not reached") { status = 400; text = error("IDPCommunicationError"); expect = bw::error_kind::retry_later; }
  SECTION("down") { status = 503; text = "<html>"; expect = bw::error_kind::retry_later; }
  SECTION("200 with nothing") { status = 200; }
  SECTION("200 without a token") { status = 200; text = "<AssumeRoleWithWebIdentityResponse/>"; }
  const auto c = find_keys(io, env);
  REQUIRE_FALSE(c.has_value());
  CAPTURE(c.error().what());
  CHECK(c.error().kind() == expect);
  CHECK(c.error().what().find("the.web.token") == std::string::npos);
}

TEST_CASE("a web identity: the token of the file, unsigned") {
  asio::io_context io;
  http_service sts(io.get_executor(), [](const http_service::query&) { return http_service::reply(200, sts_keys("AssumeRoleWithWebIdentity", "WEB")); });
  const temporary_file token("the.web.token\n");
  std::map<std::string, std::string> env{{"AWS_ENDPOINT_URL_STS", sts.url()}};
  const temporary_file config("[profile web]\nrole_arn = arn:r\nweb_identity_token_file = " + token.path() + "\n");
  SECTION("from the environment") {
    env["AWS_WEB_IDENTITY_TOKEN_FILE"] = token.path();
    env["AWS_ROLE_ARN"] = "arn:r";
    env["AWS_ROLE_SESSION_NAME"] = "pod";
  }
  SECTION("from the profile") {
    env["AWS_CONFIG_FILE"] = config.path();
    env["AWS_PROFILE"] = "web";
  }
  const auto c = find_keys(io, env);
  REQUIRE(test::good(c));
  CHECK(c->access_key() == "WEB");
  const auto& q = sts.queries().at(0);
  CHECK(q.body.find("Action=AssumeRoleWithWebIdentity&") != std::string::npos);
  CHECK(q.body.ends_with("&WebIdentityToken=the.web.token"));
  CHECK(q.header("authorization").empty());
}

// ---- a process ------------------------------------------------------------------------------------------------------------------

TEST_CASE("credential_process: read within bounds, always reaped") {
  asio::io_context io;
  const temporary_file output(json_keys("PROCESS"));
  std::string command = "cat " + output.path(), expect;
  bw::duration limit = 20s;
  SECTION("good") {}
  SECTION("with arguments in quotes") { command = "sh -c 'cat \"" + output.path() + "\"'"; }
  SECTION("it fails") { command = "cat " + output.path() + "; exit 3"; expect = "status 3"; }
  SECTION("it is not there") { command = "/nonexistent/program"; expect = "status 127"; }
  SECTION("no JSON") { command = "echo very/secret nonsense"; expect = "no JSON"; }
  SECTION("it hangs") { command = "sleep 600"; limit = 200ms; expect = "killed"; }
  SECTION("its child hangs and holds the pipe") { command = "sleep 600 & cat " + output.path(); limit = 200ms; expect = "killed"; }
  SECTION("it closes its output and hangs") { command = "exec 1>&-; sleep 600"; limit = 200ms; expect = "killed"; }
  SECTION("endless output") { command = "yes"; expect = "64 KiB"; }
  SECTION("killed") { command = "kill -9 $$"; expect = "signal"; }
  const temporary_file config("[default]\ncredential_process = " + command + "\n");
  const auto c = find_keys(io, {{"AWS_CONFIG_FILE", config.path()}}, limit);
  if (expect.empty()) {
    REQUIRE(test::good(c));
    CHECK(c->access_key() == "PROCESS");
    CHECK(c->session_token().reveal() == "tok");
  } else {
    REQUIRE_FALSE(c.has_value());
    CAPTURE(c.error().what());
    CHECK(c.error().code() == errc::credentials_missing);
    CHECK(c.error().what().find(expect) != std::string::npos);
    CHECK(told_nothing(c.error()));
  }
  // Nobody is left behind, not even as a zombie.
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("a store finds its own keys, region and proxies in the environment that its URL was read with") {
  s3_world w;
  w.server.put_object("o", "bytes");
  const temporary_file config("[profile p]\nregion = us-east-1\ncredential_process = echo '{\"Version\":1,\"AccessKeyId\":\"testkey\",\"SecretAccessKey\":\"testsecret\"}'\n");
  auto body = [&]() -> asio::awaitable<void> {
    const auto found = bw::s3_config::from_url("s3://test?endpoint=" + w.server.endpoint(), variables({{"AWS_CONFIG_FILE", config.path()}, {"AWS_PROFILE", "p"}}));
    REQUIRE(found.has_value());
    CHECK(found->region() == "us-east-1");
    bw::s3_store store(w.io.get_executor(), *found);
    for (int i = 0; i < 3; ++i) {
      const auto got = co_await test::get_text(store, "o", 0, 5);
      REQUIRE(test::good(got));
    }
    CHECK(store.client().credential_fetches() == 1);
  };
  w.run(body());
}
