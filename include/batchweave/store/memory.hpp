// An object store in the memory of this process, for tests, simulations and dry runs.
#pragma once

#include <batchweave/store/key.hpp>
#include <batchweave/store/store.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

/// Objects in an ordered map behind a mutex. Copies refer to the same objects; the objects live as long as the last copy.
/// Thread safe. Every operation goes once through the caller's executor, so that coroutines take turns as they do on a network;
/// the operation itself is one atomic step. Cancellation is noticed before that step, so a cancelled put has not happened.
/// Bytes are copied once in and once out. Errors: errc::invalid_argument for a key that no store takes.
class memory_store {
 public:
  memory_store() : state_(std::make_shared<state>()) {}

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return get_from(state_, std::move(key), range, std::move(into));
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return put_to(state_, std::move(key), std::move(body), std::move(condition));
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) { return head_of(state_, std::move(key)); }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return list_of(state_, std::move(prefix), std::move(after), max);
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) {
    return remove_from(state_, std::move(keys));
  }
  store_capabilities capabilities() const noexcept { return store_capabilities(); }
  std::string name() const { return "memory:"; }

  /// Number of objects now.
  std::size_t size() const {
    const std::lock_guard lock(state_->mutex);
    return state_->objects.size();
  }
  /// Bytes in all objects now.
  std::uint64_t bytes() const {
    const std::lock_guard lock(state_->mutex);
    std::uint64_t sum = 0;
    for (const auto& [key, o] : state_->objects) sum += o.body->size();
    return sum;
  }

 private:
  using body_ptr = std::shared_ptr<const std::vector<std::byte>>;
  struct object {
    body_ptr body;
    std::string etag;
  };
  struct state {
    std::mutex mutex;
    std::map<std::string, object, std::less<>> objects;
    std::uint64_t writes = 0;
  };
  using state_ptr = std::shared_ptr<state>;

  static asio::awaitable<void> take_turn() {
    auto executor = co_await asio::this_coro::executor;
    co_await asio::post(executor, asio::use_awaitable);
  }

  static asio::awaitable<result<read_outcome>> get_from(state_ptr s, std::string key, byte_range range, mutable_buffers into) {
    co_await take_turn();
    if (auto wrong = detail::check_key("memory:", key)) co_return *wrong;
    if (total_size(into) < range.length()) {
      co_return failure(errc::invalid_argument, "memory: get " + key + ": the destination is smaller than the range")
          .with_fate(fate::did_not_happen);
    }
    object found;
    {
      const std::lock_guard lock(s->mutex);
      const auto at = s->objects.find(key);
      if (at == s->objects.end()) co_return read_outcome();
      found = at->second;
    }
    const std::uint64_t size = found.body->size();
    const std::uint64_t first = std::min(range.offset(), size);
    const std::uint64_t wanted = std::min(range.length(), size - first);
    std::uint64_t done = 0;
    for (const mutable_bytes piece : into) {
      const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), wanted - done));
      if (n) std::memcpy(piece.data(), found.body->data() + first + done, n);
      done += n;
    }
    co_return read_outcome(wanted, size, found.etag);
  }

  static asio::awaitable<result<put_outcome>> put_to(state_ptr s, std::string key, const_buffers body, put_condition condition) {
    co_await take_turn();
    if (auto wrong = detail::check_key("memory:", key)) co_return *wrong;
    auto joined = std::make_shared<std::vector<std::byte>>();
    joined->reserve(total_size(body));
    for (const const_bytes piece : body) joined->insert(joined->end(), piece.begin(), piece.end());
    const std::lock_guard lock(s->mutex);
    const auto at = s->objects.find(key);
    const bool there = at != s->objects.end();
    if (condition.absent() && there) co_return put_outcome::condition_failed();
    if (condition.etag() && (!there || at->second.etag != *condition.etag())) co_return put_outcome::condition_failed();
    object o;
    o.body = std::move(joined);
    o.etag = "\"m" + std::to_string(++s->writes) + "\"";
    std::string etag = o.etag;
    if (there) at->second = std::move(o);
    else s->objects.emplace(std::move(key), std::move(o));
    co_return put_outcome::done(std::move(etag));
  }

  static asio::awaitable<result<std::optional<object_info>>> head_of(state_ptr s, std::string key) {
    co_await take_turn();
    if (auto wrong = detail::check_key("memory:", key)) co_return *wrong;
    const std::lock_guard lock(s->mutex);
    const auto at = s->objects.find(key);
    if (at == s->objects.end()) co_return std::optional<object_info>();
    co_return std::optional<object_info>(object_info(at->first, at->second.body->size(), at->second.etag));
  }

  static asio::awaitable<result<list_page>> list_of(state_ptr s, std::string prefix, std::string after, std::size_t max) {
    co_await take_turn();
    list_page page;
    const std::lock_guard lock(s->mutex);
    auto at = after < prefix ? s->objects.lower_bound(prefix) : s->objects.upper_bound(after);
    for (; at != s->objects.end() && at->first.starts_with(prefix); ++at) {
      if (page.objects().size() == max) {
        page.more(true);
        break;
      }
      page.objects().emplace_back(at->first, at->second.body->size(), at->second.etag);
    }
    co_return page;
  }

  static asio::awaitable<result<std::vector<remove_failure>>> remove_from(state_ptr s, std::vector<std::string> keys) {
    co_await take_turn();
    const std::lock_guard lock(s->mutex);
    for (const std::string& key : keys) s->objects.erase(key);
    co_return std::vector<remove_failure>();
  }

  state_ptr state_;
};

static_assert(object_store<memory_store>);

}  // namespace batchweave
