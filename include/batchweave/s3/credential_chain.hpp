// Where keys are looked for when the program names none: environment, profile, web identity, container, instance, in this order.
#pragma once

#include <batchweave/s3/credential_cache.hpp>
#include <batchweave/s3/credential_process.hpp>
#include <batchweave/s3/metadata.hpp>
#include <batchweave/s3/sts.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::s3 {

/// What the chain works with. A value.
class chain_settings {
 public:
  chain_settings() {}
  chain_settings& variables(environment e) { env_ = std::move(e); return *this; }
  /// Of STS.
  chain_settings& region(std::string r) { region_ = std::move(r); return *this; }
  chain_settings& access(service_access a) { access_ = std::move(a); return *this; }
  chain_settings& clock(any_clock c) { clock_ = std::move(c); return *this; }
  /// How long a credential_process may run; default a minute.
  chain_settings& process_limit(duration d) { process_limit_ = d; return *this; }

  const environment& variables() const noexcept { return env_; }
  const std::string& region() const noexcept { return region_; }
  const service_access& access() const noexcept { return access_; }
  const any_clock& clock() const noexcept { return clock_; }
  duration process_limit() const noexcept { return process_limit_; }

 private:
  environment env_ = process_environment();
  std::string region_ = "us-east-1";
  service_access access_;
  any_clock clock_;
  duration process_limit_ = std::chrono::minutes(1);
};

namespace detail {

struct chain {
  explicit chain(chain_settings s) : settings(std::move(s)) {}
  const chain_settings settings;
  bool instance_served = false;  // touched by one fetch at a time

  std::string variable(const char* name) const { return settings.variables()(name).value_or(""); }
};

inline role_request role_of(const chain& c, const std::string& arn, const std::string& region, std::string session_name) {
  const std::string r = region.empty() ? c.settings.region() : region;
  if (session_name.empty()) session_name = c.variable("AWS_ROLE_SESSION_NAME");
  any_clock clock = c.settings.clock();
  if (session_name.empty()) {
    session_name = "batchweave-" + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(clock.wall_now().time_since_epoch()).count());
  }
  std::string url = c.variable("AWS_ENDPOINT_URL_STS");
  if (url.empty()) url = "https://sts." + r + (r.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com");
  role_request q;
  q.role(arn).region(r).session_name(std::move(session_name));
  const auto at = endpoint::parse(url);
  if (at) q.at(*at);
  else q.at(endpoint(true, "sts." + r + ".amazonaws.com", 443));
  return q;
}

inline asio::awaitable<result<credentials>> of_profile(std::shared_ptr<chain> c, std::shared_ptr<const profiles> files, std::string name,
                                                       std::vector<std::string> visited);

/// The keys with which a role is assumed: another profile's, or what credential_source names.
inline asio::awaitable<result<credentials>> base_keys(std::shared_ptr<chain> c, std::shared_ptr<const profiles> files, std::string name,
                                                      std::vector<std::string> visited) {
  const std::string where = "profile \"" + name + "\"";
  const std::string from = files->get(name, "source_profile"), kind = files->get(name, "credential_source");
  if (!from.empty() && !kind.empty()) co_return files->missing(where + " has both source_profile and credential_source");
  if (from == name) co_return files->load(name);
  if (!from.empty()) {
    if (std::find(visited.begin(), visited.end(), from) != visited.end()) co_return files->missing(where + ": source_profile leads round in a circle");
    if (!files->has(from)) co_return files->missing(where + ": source_profile names \"" + from + "\", which is in no file");
    visited.push_back(from);
    co_return co_await of_profile(c, files, from, std::move(visited));
  }
  const environment env = c->settings.variables();
  const service_access access = c->settings.access();
  if (kind == "Environment") {
    result<std::optional<credentials>> found = environment_credentials(env);
    if (!found) co_return found.error();
    if (*found) co_return **found;
    co_return files->missing(where + ": credential_source = Environment, but AWS_ACCESS_KEY_ID is not set");
  }
  if (kind == "EcsContainer") co_return co_await container_credentials(env, access);
  if (kind == "Ec2InstanceMetadata") co_return co_await instance_credentials(env, access);
  co_return files->missing(where + " has a role_arn, but " + (kind.empty() ? "neither source_profile nor credential_source" : "its credential_source is unknown"));
}

inline asio::awaitable<result<credentials>> of_profile(std::shared_ptr<chain> c, std::shared_ptr<const profiles> files, std::string name,
                                                       std::vector<std::string> visited) {
  const std::string where = "profile \"" + name + "\"", role = files->get(name, "role_arn"), token_file = files->get(name, "web_identity_token_file");
  const service_access access = c->settings.access();
  if (!role.empty()) {
    role_request q = role_of(*c, role, files->get(name, "region"), files->get(name, "role_session_name"));
    q.external_id(files->get(name, "external_id")).seconds(files->get(name, "duration_seconds"));
    if (!token_file.empty()) {
      q.token_file(token_file);
      co_return co_await assume_role_with_web_identity(std::move(q), access);
    }
    if (!files->get(name, "mfa_serial").empty()) co_return files->missing(where + " wants a one-time password (mfa_serial), which nobody can type here");
    result<credentials> base = co_await base_keys(c, files, name, std::move(visited));
    if (!base) co_return in_context(base.error(), where);
    any_clock clock = c->settings.clock();
    const wall_time now = clock.wall_now();
    co_return co_await assume_role(std::move(q), std::move(*base), now, access);
  }
  const bool has_keys = !files->get(name, "aws_access_key_id").empty() || !files->get(name, "aws_secret_access_key").empty();
  if (has_keys) co_return files->load(name);
  const std::string command = files->get(name, "credential_process");
  if (!command.empty()) co_return co_await process_credentials(command, c->settings.process_limit());
  if (!files->get(name, "sso_session").empty() || !files->get(name, "sso_start_url").empty()) {
    co_return files->missing(where + " signs in with SSO: use credential_process = aws configure export-credentials --profile " + name + " --format process");
  }
  co_return files->load(name);
}

inline asio::awaitable<result<credentials>> find_keys(std::shared_ptr<chain> c) {
  const environment env = c->settings.variables();
  const service_access access = c->settings.access();
  result<std::optional<credentials>> given = environment_credentials(env);
  if (!given) co_return given.error();
  if (*given) co_return **given;

  auto files = std::make_shared<const profiles>(env);
  const std::string& name = files->chosen();
  bool says_how = files->named();
  for (const char* key : {"role_arn", "aws_access_key_id", "aws_secret_access_key", "credential_process", "sso_session", "sso_start_url"}) {
    says_how = says_how || !files->get(name, key).empty();
  }
  if (says_how) {
    std::vector<std::string> visited{name};
    co_return co_await of_profile(c, files, name, std::move(visited));
  }
  const std::string token_file = c->variable("AWS_WEB_IDENTITY_TOKEN_FILE"), role = c->variable("AWS_ROLE_ARN");
  if (!token_file.empty() && !role.empty()) {
    role_request q = role_of(*c, role, std::string(), std::string());
    q.token_file(token_file);
    co_return co_await assume_role_with_web_identity(std::move(q), access);
  }
  if (!c->variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() || !c->variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty()) {
    co_return co_await container_credentials(env, access);
  }
  const result<credentials> nothing = files->load(name);
  if (lower(c->variable("AWS_EC2_METADATA_DISABLED")) == "true") co_return nothing;
  result<credentials> found = co_await instance_credentials(env, access);
  if (found) {
    c->instance_served = true;
    co_return found;
  }
  if (c->instance_served) co_return found;  // it was the right place, and will be again
  co_return files->missing(nothing.error().what() + "; " + found.error().what());
}

}  // namespace detail

/// The provider of keys for a client that was given none. The first place that is configured is the one: when it fails, that is the answer.
/// errc::credentials_missing when nothing is configured anywhere, with all that was looked at. No message holds a key.
/// Source: AWS SDKs and Tools reference guide, "Standardized credential providers".
inline credentials_provider credential_chain(chain_settings settings) {
  auto c = std::make_shared<detail::chain>(std::move(settings));
  return [c] { return detail::find_keys(c); };
}

}  // namespace batchweave::s3
