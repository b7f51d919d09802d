// Runs coroutines to their end, counts what they ask a store for, and opens stores by URL.
#pragma once

#include <batchweave/store/store.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

namespace bw = batchweave;
namespace asio = boost::asio;

/// Runs all coroutines on the context until the last is done; throws what the first failed one threw.
inline void run_all(asio::io_context& context, std::vector<asio::awaitable<void>> work) {
  std::exception_ptr thrown;
  std::size_t left = work.size();
  for (auto& w : work) {
    asio::co_spawn(context, std::move(w), [&](std::exception_ptr e) {
      if (e && !thrown) thrown = e;
      if (--left == 0 || e) context.stop();
    });
  }
  context.restart();
  context.run();
  if (thrown) std::rethrow_exception(thrown);
}

inline void run(asio::io_context& context, asio::awaitable<void> work) {
  std::vector<asio::awaitable<void>> one;
  one.push_back(std::move(work));
  run_all(context, std::move(one));
}

/// Requests and body bytes of one kind of object.
struct traffic {
  std::uint64_t gets = 0, puts = 0, heads = 0, lists = 0, removes = 0;
  std::uint64_t bytes_read = 0, bytes_written = 0;
  std::uint64_t requests() const { return gets + puts + heads + lists + removes; }
  std::uint64_t bytes() const { return bytes_read + bytes_written; }
  friend traffic operator-(traffic a, const traffic& b) {
    a.gets -= b.gets, a.puts -= b.puts, a.heads -= b.heads, a.lists -= b.lists, a.removes -= b.removes;
    a.bytes_read -= b.bytes_read, a.bytes_written -= b.bytes_written;
    return a;
  }
};

/// A store that counts: everything under "log/" apart from the rest. Listed keys count as bytes read.
template <bw::object_store S>
class counted_store {
 public:
  struct counters {
    traffic log, other;
  };

  explicit counted_store(S inner) : inner_(std::move(inner)), counters_(std::make_shared<counters>()) {}
  const counters& counts() const { return *counters_; }

  asio::awaitable<bw::result<bw::read_outcome>> get(std::string key, bw::byte_range range, bw::mutable_buffers into) {
    traffic& t = of(key);
    ++t.gets;
    bw::result<bw::read_outcome> r = co_await inner_.get(key, range, into);
    if (r && r->found()) t.bytes_read += r->bytes();
    co_return r;
  }
  asio::awaitable<bw::result<bw::put_outcome>> put(std::string key, bw::const_buffers body, bw::put_condition condition) {
    traffic& t = of(key);
    ++t.puts;
    t.bytes_written += bw::total_size(body);
    co_return co_await inner_.put(key, body, condition);
  }
  asio::awaitable<bw::result<std::optional<bw::object_info>>> head(std::string key) {
    ++of(key).heads;
    co_return co_await inner_.head(key);
  }
  asio::awaitable<bw::result<bw::list_page>> list(std::string prefix, std::string after, std::size_t max) {
    traffic& t = of(prefix);
    ++t.lists;
    bw::result<bw::list_page> r = co_await inner_.list(prefix, after, max);
    if (r) {
      for (const auto& o : r->objects()) t.bytes_read += o.key().size();
    }
    co_return r;
  }
  asio::awaitable<bw::result<std::vector<bw::remove_failure>>> remove(std::vector<std::string> keys) {
    if (!keys.empty()) ++of(keys.front()).removes;
    co_return co_await inner_.remove(keys);
  }
  bw::store_capabilities capabilities() const { return inner_.capabilities(); }
  std::string name() const { return inner_.name(); }

 private:
  traffic& of(std::string_view key) { return key.starts_with("log/") ? counters_->log : counters_->other; }
  S inner_;
  std::shared_ptr<counters> counters_;
};

}  // namespace bench
