// The settings of an S3 store, from code, a URL or the environment.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/retry.hpp>
#include <batchweave/http/connection.hpp>
#include <batchweave/http/names.hpp>
#include <batchweave/s3/credential_cache.hpp>
#include <batchweave/s3/credential_chain.hpp>
#include <batchweave/s3/credentials.hpp>
#include <batchweave/s3/endpoint.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave {

/// How the body of a PUT is protected against being cut off or changed on the way. Bodies up to 64 KiB always get the signed hash.
enum class payload_signing {
  signed_hash,  ///< SHA-256 in the signature; default over plain HTTP
  crc32c        ///< x-amz-checksum-crc32c with an unsigned payload; default over TLS, and much cheaper
};

/// Settings of an s3_store. A value; setters chain. Nothing is read from the environment before from_url() or the store is made
/// (region, proxies); keys that were not set are looked for at the first operation.
class s3_config {
 public:
  s3_config() {}

  /// Reads s3://bucket/prefix?endpoint=http://host:port&region=...&style=path|virtual. What the URL does not say comes from
  /// AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION, AWS_CA_BUNDLE and the usual places for credentials.
  /// errc::invalid_argument for a URL that cannot be read. Missing credentials show at the first operation.
  static result<s3_config> from_url(std::string_view url) { return from_url(url, s3::process_environment()); }
  static result<s3_config> from_url(std::string_view url, const s3::environment& env) {
    const result<s3::s3_url> parsed = s3::s3_url::parse(url);
    if (!parsed) return parsed.error();
    s3_config c;
    c.bucket(parsed->bucket()).prefix(parsed->prefix()).region(parsed->region()).style(parsed->style());
    c.endpoint(parsed->endpoint());
    c.fill_from(env);
    const result<s3::endpoint> at = c.resolved_endpoint();
    if (!at) return at.error();
    return c;
  }

  /// "http://host:port" or "https://host"; empty: AWS in the region.
  s3_config& endpoint(std::string url) { endpoint_ = std::move(url); return *this; }
  s3_config& bucket(std::string b) { bucket_ = std::move(b); return *this; }
  /// Put in front of every key, with a "/" in between; empty: none.
  s3_config& prefix(std::string p) {
    while (!p.empty() && p.back() == '/') p.pop_back();
    prefix_ = std::move(p);
    return *this;
  }
  /// Empty: from the environment, else us-east-1.
  s3_config& region(std::string r) { region_ = std::move(r); return *this; }
  s3_config& credentials(std::string access_key, std::string secret_key, std::string session_token = std::string()) {
    credentials_ = s3::credentials(std::move(access_key), std::move(secret_key), std::move(session_token));
    return *this;
  }
  s3_config& credentials(s3::credentials c) { credentials_ = std::move(c); return *this; }
  /// Where keys come from, and come from again before they expire. Unset: the environment, the profile, the container, the instance.
  s3_config& credentials(s3::credentials_provider p) { provider_ = std::move(p); return *this; }
  /// "http://[user:password@]host:port" for everything but loopback; empty: none, whatever HTTP_PROXY, HTTPS_PROXY and NO_PROXY say.
  s3_config& proxy(const std::string& url) {
    proxies_ = http::proxy_settings::always(url);
    proxies_set_ = true;
    return *this;
  }
  /// How long looked-up addresses are used; default 30 s.
  s3_config& name_lifetime(duration d) { name_lifetime_ = d; return *this; }
  /// Replaces the system's resolver.
  s3_config& lookup(http::address_lookup f) { lookup_ = std::move(f); return *this; }
  /// Retries that all requests together may save up; 0: no bound but that of each. Default 200.
  s3_config& retry_budget(std::size_t n) { retry_budget_ = n; return *this; }
  /// Share of reads, such as 0.05, for which a second request may be sent when the first is slower to be answered than 95 % of the last; 0, the
  /// default: none.
  s3_config& hedge_share(double s) { hedge_share_ = s; return *this; }
  s3_config& style(s3::addressing s) { style_ = s; return *this; }
  s3_config& signing(payload_signing s) { signing_ = s; return *this; }
  /// PEM bundle to trust instead of the system's certificates.
  s3_config& ca_file(std::string path) { ca_file_ = std::move(path); return *this; }
  s3_config& connect_timeout(duration d) { timeouts_.connect = d; return *this; }
  s3_config& tls_timeout(duration d) { timeouts_.tls = d; return *this; }
  /// Request sent to head of the answer read.
  s3_config& first_byte_timeout(duration d) { timeouts_.first_byte = d; return *this; }
  /// No byte moved, in either direction.
  s3_config& stall_timeout(duration d) { timeouts_.stall = d; return *this; }
  /// One whole operation with all its attempts; zero: no limit of its own.
  s3_config& overall_timeout(duration d) { timeouts_.overall = d; return *this; }
  s3_config& retry(retry_policy r) { retry_ = r; return *this; }
  /// Connections in use at one time, >= 1; default 64.
  s3_config& max_connections(std::size_t n) { max_connections_ = n; return *this; }
  /// How long an idle connection is kept; default 4 s, below the limits of stores.
  s3_config& idle_limit(duration d) { idle_limit_ = d; return *this; }
  /// Bytes of one part of a multipart upload, >= 5 MiB; default 16 MiB.
  s3_config& part_size(std::uint64_t n) { part_size_ = n; return *this; }
  /// Unconditional puts of more bytes than this go up in parts; default 64 MiB.
  s3_config& multipart_threshold(std::uint64_t n) { multipart_threshold_ = n; return *this; }
  /// Parts in flight for one upload; default 4.
  s3_config& parts_in_flight(std::size_t n) { parts_in_flight_ = n ? n : 1; return *this; }
  s3_config& capabilities_ordered_list(bool yes) { ordered_list_ = yes; return *this; }
  s3_config& clock(any_clock c) { clock_ = std::move(c); return *this; }
  /// Of the jitter; unset: from the operating system.
  s3_config& seed(std::uint64_t s) { seed_ = s; return *this; }

  const std::string& endpoint() const noexcept { return endpoint_; }
  const std::string& bucket() const noexcept { return bucket_; }
  const std::string& prefix() const noexcept { return prefix_; }
  const std::string& region() const noexcept { return region_; }
  const s3::credentials& credentials() const noexcept { return credentials_; }
  const s3::credentials_provider& provider() const noexcept { return provider_; }
  const http::proxy_settings& proxies() const noexcept { return proxies_; }
  duration name_lifetime() const noexcept { return name_lifetime_; }
  const http::address_lookup& lookup() const noexcept { return lookup_; }
  std::size_t retry_budget() const noexcept { return retry_budget_; }
  double hedge_share() const noexcept { return hedge_share_; }
  s3::addressing style() const noexcept { return style_; }
  const std::optional<payload_signing>& signing() const noexcept { return signing_; }
  const std::string& ca_file() const noexcept { return ca_file_; }
  const http::timeouts& timeouts() const noexcept { return timeouts_; }
  const retry_policy& retry() const noexcept { return retry_; }
  std::size_t max_connections() const noexcept { return max_connections_; }
  duration idle_limit() const noexcept { return idle_limit_; }
  std::uint64_t part_size() const noexcept { return part_size_; }
  std::uint64_t multipart_threshold() const noexcept { return multipart_threshold_; }
  std::size_t parts_in_flight() const noexcept { return parts_in_flight_; }
  bool ordered_list() const noexcept { return ordered_list_; }
  const any_clock& clock() const noexcept { return clock_; }
  const std::optional<std::uint64_t>& seed() const noexcept { return seed_; }
  bool on_aws() const noexcept { return endpoint_.empty(); }

  /// Fills what is not set from the environment and its files, and remembers it: keys that are not in it are looked for
  /// at the first operation.
  s3_config& fill_from(const s3::environment& env) {
    if (endpoint_.empty()) {
      endpoint_ = env("AWS_ENDPOINT_URL_S3").value_or("");
      if (endpoint_.empty()) endpoint_ = env("AWS_ENDPOINT_URL").value_or("");
    }
    if (ca_file_.empty()) ca_file_ = env("AWS_CA_BUNDLE").value_or("");
    if (region_.empty()) region_ = env("AWS_REGION").value_or("");
    if (region_.empty()) region_ = env("AWS_DEFAULT_REGION").value_or("");
    if (region_.empty()) region_ = s3::profiles(env).get("region");
    if (region_.empty()) region_ = "us-east-1";
    if (!proxies_set_) proxies_ = http::proxy_settings::from(env);
    proxies_set_ = true;
    if (!env_) env_ = env;
    if (credentials_.empty() && !provider_) {
      const result<std::optional<s3::credentials>> given = s3::environment_credentials(env);
      if (given && *given) credentials_ = **given;
    }
    return *this;
  }
  /// Whether fill_from() has been called: the process's environment then no longer counts.
  bool filled() const noexcept { return static_cast<bool>(env_); }
  /// Where keys come from when none were set: what the variables of fill_from() lead to.
  s3::credentials_provider chain() const {
    s3::service_access access;
    access.proxies(proxies()).ca_file(ca_file_).names(http::name_cache(clock_, name_lifetime_, lookup_));
    s3::chain_settings settings;
    settings.region(region_.empty() ? "us-east-1" : region_).access(std::move(access)).clock(clock_);
    if (env_) settings.variables(env_);
    return s3::credential_chain(std::move(settings));
  }

  result<s3::endpoint> resolved_endpoint() const { return endpoint_for(region_); }
  result<s3::endpoint> endpoint_for(const std::string& region) const {
    if (!endpoint_.empty()) return s3::endpoint::parse(endpoint_);
    const std::string r = region.empty() ? "us-east-1" : region;
    return s3::endpoint(true, "s3." + r + (r.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com"), 443);
  }

  /// What can never work, by name.
  std::optional<failure> problem() const {
    const auto bad = [](const char* what) { return failure(errc::invalid_argument, what).with_fate(fate::did_not_happen); };
    if (bucket_.empty()) return bad("s3_config: the bucket is not set");
    if (part_size_ < (std::uint64_t{5} << 20)) return bad("s3_config: part_size must be at least 5 MiB (5242880 bytes)");
    const auto at = resolved_endpoint();
    if (!at) return at.error();
    return std::nullopt;
  }

 private:
  std::string endpoint_, bucket_, prefix_, region_, ca_file_;
  s3::credentials credentials_;
  s3::credentials_provider provider_;
  http::proxy_settings proxies_;
  bool proxies_set_ = false;
  http::address_lookup lookup_;
  duration name_lifetime_ = std::chrono::seconds(30);
  std::size_t retry_budget_ = 200;
  double hedge_share_ = 0;
  s3::environment env_;
  s3::addressing style_ = s3::addressing::automatic;
  std::optional<payload_signing> signing_;
  http::timeouts timeouts_;
  retry_policy retry_;
  std::size_t max_connections_ = 64;
  duration idle_limit_ = std::chrono::seconds(4);
  std::uint64_t part_size_ = std::uint64_t{16} << 20;
  std::uint64_t multipart_threshold_ = std::uint64_t{64} << 20;
  std::size_t parts_in_flight_ = 4;
  bool ordered_list_ = true;
  any_clock clock_;
  std::optional<std::uint64_t> seed_;
};

}  // namespace batchweave
