// A folder or an S3 bucket, chosen by URL at run time: an object_store that forwards to one of two.
#pragma once

#include <batchweave/store/file.hpp>
#include <batchweave/store/s3.hpp>
#include <batchweave/store/store.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace quickstart {

namespace bw = batchweave;
namespace asio = boost::asio;

class any_store {
 public:
  explicit any_store(bw::file_store s) : held_(std::move(s)) {}
  explicit any_store(bw::s3_store s) : held_(std::move(s)) {}

  asio::awaitable<bw::result<bw::read_outcome>> get(std::string key, bw::byte_range range, bw::mutable_buffers into) {
    return std::visit([&](auto& s) { return s.get(std::move(key), range, std::move(into)); }, held_);
  }
  asio::awaitable<bw::result<bw::put_outcome>> put(std::string key, bw::const_buffers body, bw::put_condition condition) {
    return std::visit([&](auto& s) { return s.put(std::move(key), std::move(body), std::move(condition)); }, held_);
  }
  asio::awaitable<bw::result<std::optional<bw::object_info>>> head(std::string key) {
    return std::visit([&](auto& s) { return s.head(std::move(key)); }, held_);
  }
  asio::awaitable<bw::result<bw::list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return std::visit([&](auto& s) { return s.list(std::move(prefix), std::move(after), max); }, held_);
  }
  asio::awaitable<bw::result<std::vector<bw::remove_failure>>> remove(std::vector<std::string> keys) {
    return std::visit([&](auto& s) { return s.remove(std::move(keys)); }, held_);
  }
  bw::store_capabilities capabilities() const {
    return std::visit([](const auto& s) { return bw::store_capabilities(s.capabilities()); }, held_);
  }
  std::string name() const {
    return std::visit([](const auto& s) { return std::string(s.name()); }, held_);
  }

 private:
  std::variant<bw::file_store, bw::s3_store> held_;
};
static_assert(bw::object_store<any_store>);

/// Removes every object of `store`. Throws batchweave::error.
inline asio::awaitable<void> remove_everything(any_store store) {
  for (;;) {
    const std::string all, first;
    bw::result<bw::list_page> page = co_await store.list(all, first, 1000);
    if (!page) throw bw::error(page.error());
    if (page->objects().empty()) co_return;
    std::vector<std::string> keys;
    for (const bw::object_info& o : page->objects()) keys.push_back(o.key());
    bw::result<std::vector<bw::remove_failure>> removed = co_await store.remove(std::move(keys));
    if (!removed) throw bw::error(removed.error());
    if (!removed->empty()) throw bw::error(removed->front().why());
  }
}

}  // namespace quickstart
