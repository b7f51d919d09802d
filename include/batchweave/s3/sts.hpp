// Keys of a role from the Security Token Service: AssumeRole, signed, and AssumeRoleWithWebIdentity, with a token from a file.
#pragma once

#include <batchweave/s3/metadata.hpp>
#include <batchweave/s3/sigv4.hpp>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace batchweave::s3 {

/// Which role, and how. A value.
class role_request {
 public:
  role_request() {}
  role_request& role(std::string arn) { role_ = std::move(arn); return *this; }
  role_request& session_name(std::string n) { session_ = std::move(n); return *this; }
  role_request& external_id(std::string id) { external_id_ = std::move(id); return *this; }
  /// Seconds, in digits; empty: an hour.
  role_request& seconds(std::string s) { seconds_ = std::move(s); return *this; }
  role_request& token_file(std::string path) { token_file_ = std::move(path); return *this; }
  role_request& at(endpoint e) { at_ = std::move(e); return *this; }
  role_request& region(std::string r) { region_ = std::move(r); return *this; }
  const std::string& role() const noexcept { return role_; }
  const std::string& token_file() const noexcept { return token_file_; }
  const endpoint& at() const noexcept { return at_; }
  const std::string& region() const noexcept { return region_; }
  /// The form that both actions share.
  std::string form(const char* action) const {
    std::string r = std::string("Action=") + action + "&Version=2011-06-15&RoleArn=" + uri_encode(role_, false) + "&RoleSessionName=" + uri_encode(session_, false);
    if (!seconds_.empty()) r += "&DurationSeconds=" + uri_encode(seconds_, false);
    if (!external_id_.empty()) r += "&ExternalId=" + uri_encode(external_id_, false);
    return r;
  }

 private:
  std::string role_, session_, external_id_, seconds_, token_file_, region_;
  endpoint at_;
};

namespace detail {
inline constexpr const char* form_type = "application/x-www-form-urlencoded; charset=utf-8";
inline http::timeouts sts_limits() { return within(std::chrono::seconds(5), std::chrono::seconds(15)); }
}  // namespace detail

/// `now`: for the signature. Source: AWS STS API reference, AssumeRole.
inline asio::awaitable<result<credentials>> assume_role(role_request what, credentials with, wall_time now, service_access access) {
  const std::string source = "AssumeRole of " + what.role();
  const std::string body = what.form("AssumeRole"), date = amz_date(now), hash = sha256_hex(body);
  name_values signed_headers{{"host", what.at().authority()}, {"x-amz-date", date}, {"content-type", detail::form_type}};
  if (!with.session_token().empty()) signed_headers.emplace_back("x-amz-security-token", with.session_token().reveal());
  signer sign;
  const name_values no_query;
  http::fetch_request q = access.request(what.at(), true);
  q.method("POST").body(body).limits(detail::sts_limits());
  for (const auto& [n, v] : signed_headers) {
    if (n != "host") q.header(n, v);
  }
  q.header("authorization", sign.authorization(with, what.region(), date, "POST", "/", no_query, signed_headers, hash, "sts"));
  result<http::fetch_answer> a = co_await access.send(std::move(q), source);
  if (!a) co_return a.error();
  co_return credentials_of_sts(a->status, a->text, source);
}

/// The token file is read each time: it is renewed from outside. Source: AWS STS API reference, AssumeRoleWithWebIdentity.
inline asio::awaitable<result<credentials>> assume_role_with_web_identity(role_request what, service_access access) {
  const std::string source = "AssumeRoleWithWebIdentity of " + what.role();
  std::ifstream in(what.token_file(), std::ios::binary);
  if (!in) co_return detail::no_keys(source + ": the token file " + what.token_file() + " cannot be read");
  std::string token((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  http::fetch_request q = access.request(what.at(), true);
  q.method("POST").header("content-type", detail::form_type).limits(detail::sts_limits());
  q.body(what.form("AssumeRoleWithWebIdentity") + "&WebIdentityToken=" + uri_encode(token, false));
  result<http::fetch_answer> a = co_await access.send(std::move(q), source);
  if (!a) co_return a.error();
  co_return credentials_of_sts(a->status, a->text, source);
}

}  // namespace batchweave::s3
