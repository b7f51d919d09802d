// A store whose kind is known only at run time: a copyable handle to any object_store.
#pragma once

#include <batchweave/store/store.hpp>
#include <batchweave/store/uploads.hpp>

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

/// Forwards every operation with one virtual call and no extra coroutine. Copies refer to the same store. Cancellation, errors and
/// thread safety are those of the store that is held.
class any_store {
 public:
  // Not a type constraint on S: asking whether an any_store is copyable must not ask for the concept again.
  template <class S>
    requires(!std::same_as<S, any_store>) && object_store<S>
  any_store(S store) : self_(std::make_shared<model<S>>(std::move(store))) {}

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return self_->get(std::move(key), range, std::move(into));
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return self_->put(std::move(key), std::move(body), std::move(condition));
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) { return self_->head(std::move(key)); }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return self_->list(std::move(prefix), std::move(after), max);
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) { return self_->remove(std::move(keys)); }
  /// See lists_uploads; a store without that capability has none to tell of.
  asio::awaitable<result<std::vector<open_upload>>> list_uploads(std::string prefix) { return self_->list_uploads(std::move(prefix)); }
  asio::awaitable<result<void>> abort_upload(open_upload u) { return self_->abort_upload(std::move(u)); }
  store_capabilities capabilities() const { return self_->capabilities(); }
  std::string name() const { return self_->name(); }

 private:
  struct interface {
    virtual ~interface() = default;
    virtual asio::awaitable<result<read_outcome>> get(std::string, byte_range, mutable_buffers) = 0;
    virtual asio::awaitable<result<put_outcome>> put(std::string, const_buffers, put_condition) = 0;
    virtual asio::awaitable<result<std::optional<object_info>>> head(std::string) = 0;
    virtual asio::awaitable<result<list_page>> list(std::string, std::string, std::size_t) = 0;
    virtual asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string>) = 0;
    virtual asio::awaitable<result<std::vector<open_upload>>> list_uploads(std::string) = 0;
    virtual asio::awaitable<result<void>> abort_upload(open_upload) = 0;
    virtual store_capabilities capabilities() = 0;
    virtual std::string name() = 0;
  };
  template <class S>
  struct model final : interface {
    explicit model(S s) : held(std::move(s)) {}
    asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) override {
      return held.get(std::move(key), range, std::move(into));
    }
    asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) override {
      return held.put(std::move(key), std::move(body), std::move(condition));
    }
    asio::awaitable<result<std::optional<object_info>>> head(std::string key) override { return held.head(std::move(key)); }
    asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) override {
      return held.list(std::move(prefix), std::move(after), max);
    }
    asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) override { return held.remove(std::move(keys)); }
    asio::awaitable<result<std::vector<open_upload>>> list_uploads(std::string prefix) override {
      if constexpr (lists_uploads<S>) return held.list_uploads(std::move(prefix));
      else return no_uploads();
    }
    asio::awaitable<result<void>> abort_upload(open_upload u) override {
      if constexpr (lists_uploads<S>) return held.abort_upload(std::move(u));
      else return nothing_to_abort();
    }
    static asio::awaitable<result<std::vector<open_upload>>> no_uploads() { co_return std::vector<open_upload>(); }
    static asio::awaitable<result<void>> nothing_to_abort() { co_return result<void>(); }
    store_capabilities capabilities() override { return held.capabilities(); }
    std::string name() override { return held.name(); }
    S held;
  };
  std::shared_ptr<interface> self_;
};

static_assert(object_store<any_store>);

}  // namespace batchweave
