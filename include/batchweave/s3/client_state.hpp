// What the operations of one S3 client share: connections, keys, what was learned about the store, and the bounds on retries and requests.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/http/names.hpp>
#include <batchweave/http/pool.hpp>
#include <batchweave/s3/concurrency.hpp>
#include <batchweave/s3/config.hpp>
#include <batchweave/s3/credential_cache.hpp>
#include <batchweave/s3/hedging.hpp>
#include <batchweave/s3/retry_budget.hpp>
#include <batchweave/s3/sigv4.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace batchweave::s3::detail {

using optional_failure = std::optional<failure>;

/// Thread safe through `mutex` and atomics.
struct client_state {
  client_state(asio::any_io_executor e, s3_config c)
      : executor(std::move(e)), config(std::move(c)), connections(config.max_connections(), config.idle_limit()),
        names(config.clock(), config.name_lifetime(), config.lookup()),
        random(config.seed() ? random64(*config.seed()) : random64()), keys(credentials()), window(config.max_connections()),
        budget(static_cast<double>(config.retry_budget())), tail(config.hedge_share()) {
    if (!config.filled()) config.fill_from(process_environment());
    problem = config.problem();
    region = config.region();
    if (problem) return;
    at = *config.resolved_endpoint();
    // A proxy that cannot be read is no reason to go without one, except where none would be used.
    if (config.proxies().problem() && !http::proxy_settings::is_local(at.host())) problem = config.proxies().problem();
    secure = at.tls();
    if (secure) {
      auto context = http::make_tls_context(config.ca_file());
      if (context) tls = *context;
      else problem = context.error();
    }
    if (!config.credentials().empty()) {
      keys = credential_cache(config.credentials());
    } else {
      credentials_provider from = config.provider() ? config.provider() : config.chain();
      keys = credential_cache(executor, config.clock(), random64(random()), std::move(from));
    }
  }

  const asio::any_io_executor executor;
  s3_config config;
  http::pool connections;
  http::name_cache names;
  std::shared_ptr<asio::ssl::context> tls;
  signer sign;
  optional_failure problem;
  bool secure = false;
  std::atomic<std::int64_t> offset{0};  // seconds that the store's clock is ahead
  std::atomic<bool> no_crc32c{false};   // the store does not implement the header
  std::atomic<bool> bare_etags{false};  // the store compares If-Match with the etag without its quotes
  std::atomic<bool> quoted_etags{false};
  std::atomic<bool> throttled{false};   // the window is not fully open
  std::atomic<std::size_t> in_flight{0};
  std::atomic<std::uint64_t> retries{0}, aborts{0}, failed_aborts{0}, hedges{0}, hedges_won{0};

  std::mutex mutex;  // guards what follows
  random64 random;
  std::string region;
  endpoint at;
  credential_cache keys;  // set once in the constructor, thread safe itself
  concurrency_limit window;
  retry_budget budget;
  hedging tail;

  duration jitter(unsigned attempt) {
    const std::lock_guard lock(mutex);
    return config.retry().delay(attempt, random);
  }
  /// After every answer that is a success.
  void succeeded() {
    const std::lock_guard lock(mutex);
    budget.success();
    if (!throttled.load(std::memory_order_relaxed)) return;
    if (window.success()) connections.limit(window.value());
    if (window.at_most()) throttled.store(false);
  }
  /// After every answer that asks to slow down.
  void slow_down() {
    const std::lock_guard lock(mutex);
    throttled.store(true);
    if (window.throttled(real_clock().now(), in_flight.load())) connections.limit(window.value());
  }
  bool may_retry() {
    const std::lock_guard lock(mutex);
    return budget.take(config.clock().now());
  }
  /// What an operation connects to, the proxy included.
  http::target target_of(const endpoint& to) const {
    http::target t(to.tls(), to.host(), to.port(), to.is_address());
    t.via = config.proxies().choose(to.tls(), to.host(), to.port());
    return t;
  }
};

/// Counts one request from now until destruction.
class in_flight {
 public:
  explicit in_flight(std::atomic<std::size_t>& n) : n_(n) { n_.fetch_add(1); }
  in_flight(const in_flight&) = delete;
  in_flight& operator=(const in_flight&) = delete;
  ~in_flight() { n_.fetch_sub(1); }

 private:
  std::atomic<std::size_t>& n_;
};

}  // namespace batchweave::s3::detail
