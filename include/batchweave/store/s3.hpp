// An object store in an S3 bucket.
#pragma once

#include <batchweave/s3/client.hpp>
#include <batchweave/store/store.hpp>
#include <batchweave/store/uploads.hpp>

#include <boost/asio/any_io_executor.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

/// Objects in an S3 bucket, under a prefix. A cheap copyable handle; copies share connections. `executor` (of an io_context that outlives
/// every copy) only carries the sockets: each operation runs on the executor of the coroutine that awaits it, which must be a strand or
/// belong to a single-threaded context. Different strands may use copies of one store at the same time.
/// Conditional puts are always one request. Cancelling an operation closes its connection; a cancelled put has an unknown fate.
class s3_store {
 public:
  s3_store(asio::any_io_executor executor, s3_config config)
      : client_(std::move(executor), std::move(config)),
        prefix_(client_.config().prefix().empty() ? std::string() : client_.config().prefix() + "/") {}

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return get_with(client_, prefix_ + key, range, std::move(into));
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return put_with(client_, prefix_ + key, std::move(body), std::move(condition));
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) { return head_with(client_, prefix_, std::move(key)); }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return list_with(client_, prefix_, std::move(prefix), std::move(after), max);
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) {
    return remove_with(client_, prefix_, std::move(keys));
  }
  /// Multipart uploads that nobody finished (ListMultipartUploads), and dropping one; see lists_uploads.
  asio::awaitable<result<std::vector<open_upload>>> list_uploads(std::string prefix) {
    return list_uploads_with(client_, prefix_, std::move(prefix));
  }
  asio::awaitable<result<void>> abort_upload(open_upload u) { return abort_with(client_, prefix_ + u.key, u.id); }
  store_capabilities capabilities() const {
    store_capabilities c;
    c.ordered_list = client_.config().ordered_list();
    return c;
  }
  /// "s3://bucket/prefix", with "?endpoint=..." where one was configured.
  std::string name() const {
    const s3_config& c = client_.config();
    std::string text = "s3://" + c.bucket();
    if (!c.prefix().empty()) text += "/" + c.prefix();
    if (!c.endpoint().empty() && c.resolved_endpoint()) text += "?endpoint=" + c.endpoint();
    return text;
  }

  /// Makes the bucket; success when it is there already and belongs to these credentials.
  asio::awaitable<result<void>> create_bucket() { return create_with(client_); }

  const s3::client& client() const noexcept { return client_; }

 private:
  static asio::awaitable<result<read_outcome>> get_with(s3::client c, std::string key, byte_range range, mutable_buffers into) {
    result<s3::read_result> r = co_await c.get(std::move(key), range.offset(), range.length(), std::move(into));
    if (!r) co_return r.error();
    if (!r->found) co_return read_outcome();
    co_return read_outcome(r->bytes, r->object_size, std::move(r->etag));
  }
  static asio::awaitable<result<put_outcome>> put_with(s3::client c, std::string key, const_buffers body, put_condition condition) {
    s3::condition when;
    when.if_absent = condition.absent();
    when.if_match = condition.etag();
    result<s3::put_result> r = co_await c.put(std::move(key), std::move(body), std::move(when));
    if (!r) co_return r.error();
    if (!r->applied) co_return put_outcome::condition_failed();
    co_return put_outcome::done(std::move(r->etag));
  }
  static asio::awaitable<result<std::optional<object_info>>> head_with(s3::client c, std::string prefix, std::string key) {
    std::string full = prefix + key;
    result<std::optional<s3::listed_object>> r = co_await c.head(std::move(full));
    if (!r) co_return r.error();
    if (!*r) co_return std::optional<object_info>();
    co_return std::optional<object_info>(object_info(std::move(key), (*r)->size, std::move((*r)->etag)));
  }
  static asio::awaitable<result<list_page>> list_with(s3::client c, std::string base, std::string prefix, std::string after, std::size_t max) {
    list_page page;
    if (max == 0) co_return page;
    std::string full_prefix = base + prefix, full_after;
    if (!after.empty()) full_after = base + after;
    result<s3::list_result> r = co_await c.list(std::move(full_prefix), std::move(full_after), std::min<std::size_t>(max, 1000));
    if (!r) co_return r.error();
    for (auto& o : r->objects) page.objects().emplace_back(o.key.substr(base.size()), o.size, std::move(o.etag));
    page.more(r->truncated);
    co_return page;
  }
  static asio::awaitable<result<std::vector<remove_failure>>> remove_with(s3::client c, std::string base, std::vector<std::string> keys) {
    for (auto& k : keys) k.insert(0, base);
    result<std::vector<std::pair<std::string, failure>>> r = co_await c.remove(std::move(keys));
    if (!r) co_return r.error();
    std::vector<remove_failure> failed;
    for (auto& [key, why] : *r) failed.emplace_back(key.starts_with(base) ? key.substr(base.size()) : key, std::move(why));
    co_return failed;
  }
  static asio::awaitable<result<std::vector<open_upload>>> list_uploads_with(s3::client c, std::string base, std::string prefix) {
    std::string full = base + prefix;
    result<std::vector<std::pair<std::string, std::string>>> r = co_await c.uploads(std::move(full));
    if (!r) co_return r.error();
    std::vector<open_upload> all;
    for (auto& [key, id] : *r) all.emplace_back(key.substr(base.size()), std::move(id));
    co_return all;
  }
  static asio::awaitable<result<void>> abort_with(s3::client c, std::string key, std::string id) {
    std::optional<failure> bad = co_await c.abort(std::move(key), std::move(id));
    if (bad) co_return *bad;
    co_return result<void>();
  }
  static asio::awaitable<result<void>> create_with(s3::client c) {
    std::optional<failure> bad = co_await c.create_bucket();
    if (bad) co_return *bad;
    co_return result<void>();
  }

  s3::client client_;
  std::string prefix_;
};

static_assert(object_store<s3_store> && lists_uploads<s3_store>);

}  // namespace batchweave
