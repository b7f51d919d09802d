// Which proxy a target goes through.
#include "support/catch.hpp"

#include <batchweave/http/proxy.hpp>

#include <map>
#include <optional>
#include <string>

using namespace batchweave::http;

namespace {
proxy_settings::lookup variables(std::map<std::string, std::string> values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto at = values.find(name);
    if (at == values.end()) return std::nullopt;
    return at->second;
  };
}
}  // namespace

TEST_CASE("proxy URLs") {
  const auto p = proxy::parse("http://user:p%40ss@Proxy.Corp:3128/");
  REQUIRE(p.has_value());
  CHECK(p->host() == "proxy.corp");
  CHECK(p->port() == 3128);
  CHECK(p->authorization() == "Basic dXNlcjpwQHNz");
  CHECK(proxy::parse("proxy")->port() == 80);
  CHECK(proxy::parse("proxy:8080")->port() == 8080);
  CHECK(proxy::parse("http://[::1]:8080")->host() == "::1");
  for (const char* bad : {"https://proxy", "socks5://proxy", "http://", "http://proxy:0", "http://proxy:99999", "http://proxy:x", "http://u:geheim@:80", "http://[::1"}) {
    CAPTURE(bad);
    const auto r = proxy::parse(bad);
    REQUIRE_FALSE(r.has_value());
    CHECK(r.error().what().find("geheim") == std::string::npos);
  }
}

TEST_CASE("HTTP_PROXY, HTTPS_PROXY and NO_PROXY") {
  const auto s = proxy_settings::from(variables({{"HTTP_PROXY", "http://upper:1"},
                                                 {"http_proxy", "http://plain:2"},
                                                 {"HTTPS_PROXY", "http://secure:3"},
                                                 {"NO_PROXY", "exact.test, .dotted.test,*.star.test,ported.test:9000,10.0.0.1"}}));
  CHECK_FALSE(s.problem());
  const auto via = [&](bool tls, const char* host, std::uint16_t port = 443) {
    const auto p = s.choose(tls, host, port);
    return p ? p->host() : std::string();
  };
  CHECK(via(false, "store.test") == "plain");
  CHECK(via(true, "store.test") == "secure");
  for (const char* host : {"exact.test", "b.exact.test", "dotted.test", "a.dotted.test", "a.b.star.test", "10.0.0.1"}) {
    CAPTURE(host);
    CHECK(via(true, host).empty());
  }
  for (const char* host : {"inexact.test", "undotted.test", "exact.test.evil", "10.0.0.11"}) {
    CAPTURE(host);
    CHECK(via(true, host) == "secure");
  }
  CHECK(via(true, "ported.test", 9000).empty());
  CHECK(via(true, "ported.test", 443) == "secure");
  CHECK_FALSE(proxy_settings::from(variables({{"HTTP_PROXY", "http://p:1"}, {"NO_PROXY", "*"}})).choose(false, "store.test", 80));
  CHECK_FALSE(proxy_settings().choose(false, "store.test", 80));
  CHECK(proxy_settings::from(variables({{"HTTP_PROXY", "gopher://p"}})).problem());
}

TEST_CASE("CR-04 loopback and link-local targets never go through a proxy") {
  const auto s = proxy_settings::always("http://proxy:3128");
  for (const char* host : {"169.254.169.254", "169.254.170.2", "169.254.170.23", "127.0.0.1", "127.8.8.8", "localhost", "::1", "fd00:ec2::254", "fd00:ec2::23", "fe80::1"}) {
    CAPTURE(host);
    CHECK_FALSE(s.choose(false, host, 80));
    CHECK_FALSE(s.choose(true, host, 443));
  }
  // Names that only look like one of them.
  for (const char* host : {"169.254.example.com", "127.example.com", "8.8.8.8", "fe80.example.com", "notlocalhost"}) {
    CAPTURE(host);
    CHECK(s.choose(false, host, 80));
  }
}
