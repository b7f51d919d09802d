// The object store concept: the one seam between the protocol and bytes at rest.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/base/config.hpp>
#include <batchweave/base/error.hpp>

#include <boost/asio/awaitable.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace batchweave {

/// Bytes [offset, offset + length) of an object.
class byte_range {
 public:
  constexpr byte_range() noexcept : offset_(0), length_(0) {}
  constexpr byte_range(std::uint64_t offset, std::uint64_t length) noexcept : offset_(offset), length_(length) {}
  constexpr std::uint64_t offset() const noexcept { return offset_; }
  constexpr std::uint64_t length() const noexcept { return length_; }
  constexpr std::uint64_t end() const noexcept { return offset_ + length_; }
  friend constexpr bool operator==(const byte_range&, const byte_range&) = default;
  std::string to_string() const { return "bytes " + std::to_string(offset_) + "-" + std::to_string(end()) + " (end excluded)"; }

 private:
  std::uint64_t offset_, length_;
};

/// What a read found. Absence is an outcome, not a failure.
class read_outcome {
 public:
  read_outcome() noexcept = default;  ///< absent
  read_outcome(std::uint64_t bytes, std::uint64_t object_size, std::string etag)
      : found_(true), bytes_(bytes), object_size_(object_size), etag_(std::move(etag)) {}
  bool found() const noexcept { return found_; }
  /// Bytes written to the destination: the part of the range that the object has, possibly 0.
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Size of the whole object.
  std::uint64_t object_size() const noexcept { return object_size_; }
  const std::string& etag() const noexcept { return etag_; }

 private:
  bool found_ = false;
  std::uint64_t bytes_ = 0;
  std::uint64_t object_size_ = 0;
  std::string etag_;
};

/// Under which condition a put may take effect.
class put_condition {
 public:
  put_condition() noexcept = default;  ///< always: overwrite
  static put_condition if_absent() { put_condition c; c.absent_ = true; return c; }
  static put_condition if_match(std::string etag) { put_condition c; c.etag_ = std::move(etag); return c; }
  bool absent() const noexcept { return absent_; }
  const std::optional<std::string>& etag() const noexcept { return etag_; }

 private:
  bool absent_ = false;
  std::optional<std::string> etag_;
};

/// What a put did. `applied() == false`: the condition did not hold (412). After a retry that followed an attempt with unknown
/// fate the object that is there may be the caller's own: compare a nonce in it.
class put_outcome {
 public:
  put_outcome() noexcept = default;
  static put_outcome done(std::string etag) { put_outcome o; o.applied_ = true; o.etag_ = std::move(etag); return o; }
  static put_outcome condition_failed() { return put_outcome(); }
  bool applied() const noexcept { return applied_; }
  const std::string& etag() const noexcept { return etag_; }

 private:
  bool applied_ = false;
  std::string etag_;
};

class object_info {
 public:
  object_info() noexcept = default;
  object_info(std::string key, std::uint64_t size, std::string etag = std::string())
      : key_(std::move(key)), size_(size), etag_(std::move(etag)) {}
  const std::string& key() const noexcept { return key_; }
  std::uint64_t size() const noexcept { return size_; }
  const std::string& etag() const noexcept { return etag_; }

 private:
  std::string key_;
  std::uint64_t size_ = 0;
  std::string etag_;
};

/// One page of a listing. To go on, list again after `objects.back().key()` while `more()`.
class list_page {
 public:
  list_page() noexcept = default;
  std::vector<object_info>& objects() noexcept { return objects_; }
  const std::vector<object_info>& objects() const noexcept { return objects_; }
  bool more() const noexcept { return more_; }
  void more(bool m) noexcept { more_ = m; }

 private:
  std::vector<object_info> objects_;
  bool more_ = false;
};

/// A key that could not be removed, and why. A key that does not exist counts as removed.
class remove_failure {
 public:
  remove_failure(std::string key, batchweave::failure why) : key_(std::move(key)), why_(std::move(why)) {}
  const std::string& key() const noexcept { return key_; }
  const batchweave::failure& why() const noexcept { return why_; }

 private:
  std::string key_;
  batchweave::failure why_;
};

/// What a store is able to do. A role that needs something that is missing refuses at open, by name.
class store_capabilities {
 public:
  store_capabilities() noexcept = default;
  /// put with if_absent is atomic against every other writer.
  bool conditional_create = true;
  /// list returns keys in byte order, and the first key costs one bounded request whatever the number of keys.
  /// Otherwise the tail of the log is found by galloping HEADs.
  bool ordered_list = true;
};

/// A cheap copyable handle to an object store; copies refer to the same store. Keys are UTF-8 without control characters,
/// relative to the store's own prefix, non-empty. All operations are idempotent to retry except conditional puts.
/// Failures carry a fate; a put that fails with fate::unknown may have happened or may happen later.
/// Cancellation surfaces as boost::system::system_error(operation_aborted) or as errc::cancelled, fate unknown.
/// - get(key, range, into): fills `into` (total size >= range.length()) in order with the part of the range that the object has.
///   An empty part (empty object, or offset at or past its end) is found() with bytes() == 0.
/// - put(key, body, condition): writes the pieces of `body` as one object, atomically: readers see all of it or nothing. The memory must
///   stay valid until the operation completes. Durable when it returns applied().
/// - head(key): info, or nullopt when absent.
/// - list(prefix, after, max): up to `max` keys that start with `prefix` and are > `after`, in byte order when ordered_list.
///   Stores without ordered_list still return pages in an order in which `after` works.
/// - remove(keys): removes any number of keys; returns those that failed.
/// - name(): for messages ("s3://bucket/prefix", "file:///data"); no credentials.
template <class S>
concept object_store = std::copy_constructible<S> &&
    requires(S& s, std::string key, byte_range range, mutable_buffers into, const_buffers body, put_condition condition,
             std::size_t max, std::vector<std::string> keys) {
      { s.get(key, range, into) } -> std::same_as<asio::awaitable<result<read_outcome>>>;
      { s.put(key, body, condition) } -> std::same_as<asio::awaitable<result<put_outcome>>>;
      { s.head(key) } -> std::same_as<asio::awaitable<result<std::optional<object_info>>>>;
      { s.list(key, key, max) } -> std::same_as<asio::awaitable<result<list_page>>>;
      { s.remove(keys) } -> std::same_as<asio::awaitable<result<std::vector<remove_failure>>>>;
      { s.capabilities() } -> std::convertible_to<store_capabilities>;
      { s.name() } -> std::convertible_to<std::string>;
    };

/// Reads a whole object with one request when it is no larger than `expect`, else with two. At most `limit` bytes.
/// nullopt: absent. Errors: those of get; errc::damaged when the object is larger than `limit`.
template <object_store S>
asio::awaitable<result<std::optional<byte_buffer>>> read_object(S store, std::string key, std::size_t expect, std::size_t limit) {
  byte_buffer buffer(expect);
  mutable_buffers into{buffer.bytes()};
  result<read_outcome> got = co_await store.get(key, byte_range(0, expect), into);
  if (!got) co_return got.error();
  if (!got->found()) co_return std::optional<byte_buffer>();
  const std::uint64_t size = got->object_size();
  if (size > limit) {
    co_return failure(errc::damaged, store.name() + " " + key + ": " + std::to_string(size) + " bytes, more than the limit of " +
                                         std::to_string(limit));
  }
  if (size > expect) {
    byte_buffer whole(size);
    std::memcpy(whole.data(), buffer.data(), expect);
    mutable_buffers rest{whole.bytes().subspan(expect)};
    result<read_outcome> more = co_await store.get(key, byte_range(expect, size - expect), rest);
    if (!more) co_return more.error();
    if (!more->found() || more->object_size() != size || more->bytes() != size - expect || more->etag() != got->etag()) {
      co_return failure(errc::object_changed, store.name() + " " + key + ": changed while it was read");
    }
    co_return std::optional<byte_buffer>(std::move(whole));
  }
  if (got->bytes() != size) co_return failure(errc::body_truncated, store.name() + " " + key + ": short read");
  buffer.shrink(size);
  co_return std::optional<byte_buffer>(std::move(buffer));
}

}  // namespace batchweave
