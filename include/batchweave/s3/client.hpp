// The S3 client: operations on one bucket over pooled connections; see perform.hpp for retries and operations.hpp for each operation.
#pragma once

#include <batchweave/s3/multipart.hpp>
#include <batchweave/s3/uploads.hpp>
#include <batchweave/s3/operations.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::s3 {

/// Operations on one bucket with full keys. A copyable handle; copies share connections, credentials, the learned region and clock
/// offset, the retry budget and the number of requests in flight. Thread safe, as long as each operation runs on a strand or in a
/// single-threaded context. Cancelling an operation throws system_error(operation_aborted); its connection is closed; a write then has an
/// unknown fate.
class client {
 public:
  client(asio::any_io_executor executor, s3_config config)
      : state_(std::make_shared<detail::client_state>(std::move(executor), std::move(config))) {}

  const s3_config& config() const noexcept { return state_->config; }

  /// GET of [offset, offset + length) into `into`, which has room for `length` bytes.
  asio::awaitable<result<read_result>> get(std::string key, std::uint64_t offset, std::uint64_t length, mutable_buffers into) {
    return detail::get_from(state_, std::move(key), offset, length, std::move(into));
  }
  /// PUT of all pieces as one object, in one request unless it is unconditional and large.
  asio::awaitable<result<put_result>> put(std::string key, const_buffers body, condition when) {
    const bool parts = !when.if_absent && !when.if_match && total_size(body) > state_->config.multipart_threshold();
    if (parts) return detail::put_parts(state_, std::move(key), std::move(body));
    return detail::put_whole(state_, std::move(key), std::move(body), std::move(when));
  }
  asio::awaitable<result<std::optional<listed_object>>> head(std::string key) { return detail::head_of(state_, std::move(key)); }
  /// At most `max` (<= 1000) keys that start with `prefix` and come after `after`.
  asio::awaitable<result<list_result>> list(std::string prefix, std::string after, std::size_t max) {
    return detail::list_of(state_, std::move(prefix), std::move(after), max);
  }
  /// Keys that could not be removed.
  asio::awaitable<result<std::vector<std::pair<std::string, failure>>>> remove(std::vector<std::string> keys) {
    return detail::remove_all(state_, std::move(keys));
  }
  /// Multipart uploads under `prefix` that nobody finished, as key and id; one is dropped by abort().
  asio::awaitable<result<std::vector<std::pair<std::string, std::string>>>> uploads(std::string prefix) {
    return detail::uploads_under(state_, std::move(prefix));
  }
  asio::awaitable<std::optional<failure>> abort(std::string key, std::string id) {
    return detail::drop_upload(state_, std::move(key), std::move(id));
  }
  /// Makes the bucket; no error when it is there already and ours.
  asio::awaitable<std::optional<failure>> create_bucket() { return detail::make_bucket(state_); }

  /// For tests and metrics, all since the beginning: retries, connections opened, what the store's clock is ahead.
  std::uint64_t retries() const noexcept { return state_->retries.load(); }
  std::uint64_t connections() const { return state_->connections.opened(); }
  std::chrono::seconds clock_offset() const noexcept { return std::chrono::seconds(state_->offset.load()); }
  /// Aborts of multipart uploads, and those that failed or could not be tried: a lifecycle rule must clean up.
  std::uint64_t aborts() const noexcept { return state_->aborts.load(); }
  std::uint64_t failed_aborts() const noexcept { return state_->failed_aborts.load(); }
  /// Second requests for slow reads, and those that were answered first.
  std::uint64_t hedges() const noexcept { return state_->hedges.load(); }
  std::uint64_t hedges_won() const noexcept { return state_->hedges_won.load(); }
  /// Requests that may be in flight now; less than max_connections after the store asked to slow down.
  std::size_t concurrency() const {
    const std::lock_guard lock(state_->mutex);
    return state_->window.value();
  }
  /// How often credentials were fetched from their provider.
  std::uint64_t credential_fetches() const { return state_->keys.fetches(); }

 private:
  std::shared_ptr<detail::client_state> state_;
};

}  // namespace batchweave::s3
