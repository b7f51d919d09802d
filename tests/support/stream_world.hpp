// A stream in memory with scripted faults, and the few moves that tests of its life cycle are made of.
#pragma once

#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/checkpoint.hpp>
#include <batchweave/commit/every.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/reclaim.hpp>
#include <batchweave/store/any_store.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/faulty_store.hpp>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace test {

namespace bw = batchweave;
namespace m = batchweave::manifest;
namespace asio = boost::asio;
using bw::testing::action;
using bw::testing::fault_plan;
using bw::testing::op;
using store_t = bw::any_store;
using producer_t = bw::basic_producer<store_t, bw::commit::every<1>>;

inline constexpr std::uint32_t slices = 2;

inline bw::global_batch batch_of(const std::string& text) {
  std::vector<bw::byte_buffer> s;
  for (std::uint32_t k = 0; k < slices; ++k) s.push_back(bw::byte_buffer::copy_of(bw::as_bytes(text + "/" + std::to_string(k))));
  return bw::global_batch(std::move(s));
}

inline asio::awaitable<void> make_stream(store_t store, std::uint64_t producers = 1) {
  bw::stream_options options;
  options.slices(slices).producers(producers);
  co_await bw::create_stream(store, options);
}

inline std::uint64_t next_seed() {
  static std::uint64_t seed = 100;
  return ++seed;
}

inline asio::awaitable<producer_t> open_producer(store_t store, std::string id) {
  bw::producer_options o(std::move(id));
  o.give_up_after(std::chrono::seconds(20)).seed(next_seed());
  co_return co_await bw::open_producer(store, o, bw::commit::every<1>());
}

// One version for each batch; contents "<id><seq>", state "<id> state <seq>".
template <class Producer>
asio::awaitable<void> publish(Producer& producer, std::string id, int n) {
  for (int i = 0; i < n; ++i) {
    const std::string seq = std::to_string(producer.next_seq());
    co_await producer.publish(batch_of(id + seq), id + " state " + seq);
    co_await producer.flush();
  }
}

inline asio::awaitable<void> checkpoint_at(store_t store, std::string group, std::uint64_t step, std::uint32_t keep = 1) {
  bw::checkpoint_options o(std::move(group));
  o.keep(keep).seed(next_seed());
  auto group_handle = co_await bw::open_checkpoints(store, o);
  const bw::cursor at(group_handle.stream().id, step);
  co_await group_handle.complete("at-" + std::to_string(step), at);
}

inline bw::reclaim_options quick_reclaim() {
  bw::reclaim_options o;
  o.give_up_after(std::chrono::seconds(20)).seed(next_seed()).seal_after(4);
  return o;
}

inline asio::awaitable<bw::reclaim_report> run_reclaim(store_t store) {
  const bw::reclaim_options o = quick_reclaim();
  co_return co_await bw::reclaim(store, o);
}

inline asio::awaitable<bw::consumer<store_t>> consume_from(store_t store, std::uint64_t step) {
  bw::consumer_options o("check");
  o.start_at(step).max_wait(std::chrono::seconds(20)).poll_interval(std::chrono::milliseconds(5)).give_up_after(std::chrono::seconds(5));
  co_return co_await bw::open_consumer(store, o);
}

// Contents of steps [from, end) as rank 0 of a world of 1 sees them.
inline asio::awaitable<std::vector<std::string>> read_steps(store_t store, std::uint64_t from, std::uint64_t end) {
  auto consumer = co_await consume_from(store, from);
  std::vector<std::string> seen;
  for (std::uint64_t step = from; step < end; ++step) {
    std::optional<bw::slice> s = co_await consumer.next();
    if (!s) break;
    CHECK(s->step() == step);
    const std::string text(bw::as_text(s->part(0)));
    seen.push_back(text.substr(0, text.find('/')));
  }
  co_return seen;
}

inline std::vector<std::string> expected(std::uint64_t from, std::uint64_t end, const std::string& id = "p") {
  std::vector<std::string> e;
  for (std::uint64_t i = from; i < end; ++i) e.push_back(id + std::to_string(i));
  return e;
}

inline asio::awaitable<std::map<std::string, std::uint64_t>> objects(store_t store, std::string prefix) {
  std::map<std::string, std::uint64_t> all;
  std::string after;
  for (bool more = true; more;) {
    bw::result<bw::list_page> page = co_await store.list(prefix, after, 1000);
    if (!page) throw bw::error(page.error());
    for (const auto& o : page->objects()) all[o.key()] = o.size();
    more = page->more();
    if (more) after = page->objects().back().key();
  }
  co_return all;
}

inline asio::awaitable<std::shared_ptr<const m::version>> newest(store_t store) {
  const m::stream_info info = co_await bw::open_stream(store);
  bw::result<bw::commit::tail_view> tail = co_await bw::commit::find_tail(store, info, 0);
  if (!tail) throw bw::error(tail.error());
  co_return tail->version;
}

inline asio::awaitable<void> put(store_t store, std::string key, std::string text) {
  const bw::const_buffers body{bw::as_bytes(text)};
  const bw::put_condition always;
  bw::result<bw::put_outcome> done = co_await store.put(key, body, always);
  REQUIRE(done.has_value());
}

// Steps from trim_step on are whole, however a consumer enters; nothing that is needed is gone (I6).
inline asio::awaitable<void> check_whole(store_t store, std::string id = "p") {
  const auto now = co_await newest(store);
  const auto& s = now->summary;
  const std::vector<std::string> seen = co_await read_steps(store, s.trim_step, s.next_step);
  CHECK(seen == expected(s.trim_step, s.next_step, id));
  CHECK(m::check(*now).empty());
}

using faulty = bw::testing::faulty_store<bw::memory_store>;

struct world {
  bw::memory_store memory;
  fault_plan faults;
  store_t store{faulty(memory, faults)};
};

}  // namespace test
