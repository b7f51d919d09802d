// Keys that the surroundings hand out: the container's endpoint, and the instance metadata service. Never through a proxy, never for long.
#pragma once

#include <batchweave/http/fetch.hpp>
#include <batchweave/s3/credential_text.hpp>
#include <batchweave/s3/endpoint.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave::s3 {

/// How the services that hand out keys are reached.
class service_access {
 public:
  service_access() {}
  service_access& proxies(http::proxy_settings p) { proxies_ = std::move(p); return *this; }
  service_access& ca_file(std::string path) { ca_file_ = std::move(path); return *this; }
  service_access& names(http::name_cache n) { names_ = std::move(n); return *this; }

  /// A request to `at`; `proxied`: through the proxy where one is set for it.
  http::fetch_request request(const endpoint& at, bool proxied) const {
    http::target to(at.tls(), at.host(), at.port(), at.is_address());
    if (proxied) to.via = proxies_.choose(at.tls(), at.host(), at.port());
    http::fetch_request q;
    q.to(std::move(to)).authority(at.authority());
    return q;
  }
  /// Sends it. `source` goes in front of what went wrong.
  asio::awaitable<result<http::fetch_answer>> send(http::fetch_request q, std::string source) const {
    return send_with(names_, ca_file_, std::move(q), std::move(source));
  }

 private:
  static asio::awaitable<result<http::fetch_answer>> send_with(http::name_cache names, std::string ca_file, http::fetch_request q, std::string source) {
    std::shared_ptr<asio::ssl::context> tls;
    if (q.to().tls) {
      auto context = http::make_tls_context(ca_file);
      if (!context) co_return context.error();
      tls = *context;
    }
    result<http::fetch_answer> a = co_await http::fetch(std::move(q), names, tls);
    if (!a) co_return in_context(a.error(), source).with_fate(fate::did_not_happen);
    co_return a;
  }
  http::proxy_settings proxies_;
  std::string ca_file_;
  http::name_cache names_;
};

namespace detail {

/// Splits "http://host:port/path?query"; nullopt when it is no URL.
inline std::optional<std::pair<endpoint, std::string>> split_url(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return std::nullopt;
  const std::size_t slash = std::min(url.find_first_of("/?", scheme + 3), url.size());
  const auto at = endpoint::parse(url.substr(0, slash));
  if (!at) return std::nullopt;
  std::string path(url.substr(slash));
  if (path.empty() || path.front() != '/') path.insert(0, "/");
  if (path.find_first_of(" \r\n\t") != std::string::npos) return std::nullopt;
  return std::pair(*at, path);
}

inline http::timeouts within(duration each, duration all) {
  http::timeouts t;
  t.connect = t.tls = t.first_byte = t.stall = each;
  t.overall = all;
  return t;
}

inline failure bad_answer(const std::string& source, int status) {
  const errc e = status >= 500 || status == 429 ? errc::store_unavailable : errc::credentials_missing;
  return failure(e, source + " answered " + std::to_string(status)).with_status(status).with_fate(fate::did_not_happen);
}

}  // namespace detail

/// From AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, with the token of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or _TOKEN. A full URI
/// over plain HTTP must be loopback or one of the addresses of ECS and EKS. Source: AWS SDKs guide, "Container credential provider".
inline asio::awaitable<result<credentials>> container_credentials(environment env, service_access access) {
  const std::string source = "the container's credentials endpoint";
  const std::string relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").value_or(""), full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI").value_or("");
  const auto url = detail::split_url(relative.empty() ? full : "http://169.254.170.2" + relative);
  if (!url) co_return detail::no_keys(source + ": AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI is no URL");
  const endpoint& at = url->first;
  if (!at.tls() && !http::proxy_settings::is_local(at.host())) {
    co_return detail::no_keys(source + ": http://" + at.authority() + " is neither loopback nor a container service; use https");
  }
  std::string token = env("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
  if (const auto file = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
    std::ifstream in(*file, std::ios::binary);
    if (!in) co_return detail::no_keys(source + ": the token file " + *file + " cannot be read");
    token.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  }
  if (token.find_first_of("\r\n") != std::string::npos) co_return detail::no_keys(source + ": the authorization token has a line break in it");
  http::fetch_request q = access.request(at, at.tls());
  q.path(url->second).header("accept", "application/json").limits(detail::within(std::chrono::seconds(2), std::chrono::seconds(5)));
  if (!token.empty()) q.header("authorization", token);
  result<http::fetch_answer> a = co_await access.send(std::move(q), source);
  if (!a) co_return a.error();
  if (a->status != 200) co_return detail::bad_answer(source, a->status);
  co_return credentials_of_json(a->text, source);
}

/// From the instance metadata service: version 2 with a session token; version 1 only when the token does not come and
/// AWS_EC2_METADATA_V1_DISABLED is not true. Each request has AWS_METADATA_SERVICE_TIMEOUT seconds, 1 by default: behind a hop limit that is too
/// small the token never comes. Source: EC2 user guide, "Use the Instance Metadata Service".
inline asio::awaitable<result<credentials>> instance_credentials(environment env, service_access access) {
  std::string source = "the instance metadata service";
  const std::string mode = detail::lower(env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").value_or("ipv4"));
  const std::string base = env("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or(mode == "ipv6" ? "http://[fd00:ec2::254]" : "http://169.254.169.254");
  const auto at = endpoint::parse(base);
  if (!at) co_return in_context(at.error(), "AWS_EC2_METADATA_SERVICE_ENDPOINT");
  double seconds = 1;
  if (const auto text = env("AWS_METADATA_SERVICE_TIMEOUT")) seconds = std::clamp(std::atof(text->c_str()), 0.05, 30.0);
  const auto each = std::chrono::duration_cast<duration>(std::chrono::duration<double>(seconds));
  const http::timeouts limits = detail::within(each, each);

  http::fetch_request ask = access.request(*at, false);
  ask.method("PUT").path("/latest/api/token").header("x-aws-ec2-metadata-token-ttl-seconds", "21600").limits(limits);
  result<http::fetch_answer> token = co_await access.send(std::move(ask), source);
  std::string session;
  if (token && token->status == 200 && token->text.find_first_of("\r\n") == std::string::npos) {
    session = token->text;
  } else {
    // Nobody there at all: this is no instance.
    if (!token && (token.error().code() == errc::connect_failed || token.error().code() == errc::connect_timeout)) co_return token.error();
    const bool old_way = detail::lower(env("AWS_EC2_METADATA_V1_DISABLED").value_or("")) != "true";
    if (token && token->status == 400) co_return detail::bad_answer(source, token->status);
    if (!old_way) {
      if (!token) co_return in_context(token.error(), "no session token (in a container: raise the hop limit)");
      co_return detail::bad_answer(source, token->status);
    }
    source += " without a session token (in a container: raise the hop limit)";
  }
  const std::string path = "/latest/meta-data/iam/security-credentials/";
  http::fetch_request who = access.request(*at, false);
  who.path(path).limits(limits);
  if (!session.empty()) who.header("x-aws-ec2-metadata-token", session);
  result<http::fetch_answer> role = co_await access.send(std::move(who), source);
  if (!role) co_return role.error();
  const std::string name = role->text.substr(0, role->text.find_first_of("\r\n"));
  if (role->status == 404 || (role->status == 200 && name.empty())) co_return detail::no_keys(source + ": no role is attached to this instance");
  if (role->status != 200) co_return detail::bad_answer(source, role->status);
  if (name.find_first_of(" /?#") != std::string::npos) co_return detail::no_keys(source + " gave no role name");
  http::fetch_request keys = access.request(*at, false);
  keys.path(path + name).limits(limits);
  if (!session.empty()) keys.header("x-aws-ec2-metadata-token", session);
  result<http::fetch_answer> a = co_await access.send(std::move(keys), source);
  if (!a) co_return a.error();
  if (a->status != 200) co_return detail::bad_answer(source, a->status);
  co_return credentials_of_json(a->text, source);
}

}  // namespace batchweave::s3
