// Slice reads and object writes through a store, a number of them in flight, as a load like the raw client's.
#pragma once

#include "load.hpp"
#include "range_server.hpp"
#include "run.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

namespace detail {

struct store_round {
  range_walk walk;
  std::size_t length;
  double seconds;
  stopwatch watch;
  load result;
};

template <bw::object_store S>
asio::awaitable<void> read_slices(S store, std::string key, store_round* state, bw::mutable_bytes buffer) {
  while (state->watch.wall() < state->seconds) {
    const std::uint64_t offset = state->walk.next();
    const bw::byte_range range(offset, state->length);
    bw::mutable_buffers into{buffer};
    const double started = now_seconds();
    bw::result<bw::read_outcome> got = co_await store.get(key, range, into);
    const double ended = now_seconds();
    if (!got) throw bw::error(got.error());
    std::uint64_t first = 0;
    std::memcpy(&first, buffer.data(), sizeof first);
    if (got->bytes() != state->length || first != pattern_at(offset)) {
      throw std::runtime_error(key + " " + range.to_string() + ": wrong length or bytes");
    }
    state->result.latencies.push_back(ended - started);
    state->result.bytes += got->bytes();
    ++state->result.requests;
  }
}

template <bw::object_store S>
asio::awaitable<void> write_objects(S store, std::string key, store_round* state, bw::const_bytes body) {
  const bw::put_condition always;
  while (state->watch.wall() < state->seconds) {
    bw::const_buffers pieces{body};
    const double started = now_seconds();
    bw::result<bw::put_outcome> put = co_await store.put(key, pieces, always);
    const double ended = now_seconds();
    if (!put) throw bw::error(put.error());
    if (!put->applied()) throw std::runtime_error(key + ": an unconditional put was refused");
    state->result.latencies.push_back(ended - started);
    state->result.bytes += body.size();
    ++state->result.requests;
  }
}

inline load finish(asio::io_context& context, store_round& state, std::vector<asio::awaitable<void>> work) {
  run_all(context, std::move(work));
  state.result.wall = state.watch.wall();
  state.result.cpu = state.watch.cpu();
  return std::move(state.result);
}

}  // namespace detail

/// Reads `key`, an object of `object` bytes of the benchmark server's pattern, in ranges of `length`; one request in flight for each buffer.
template <bw::object_store S>
load get_ranges(asio::io_context& context, S store, const std::string& key, std::uint64_t object, std::size_t length,
                std::vector<std::vector<std::byte>>& buffers, double seconds) {
  detail::store_round state{range_walk(object, length), length, seconds, stopwatch(), load()};
  std::vector<asio::awaitable<void>> work;
  for (auto& b : buffers) work.push_back(detail::read_slices(store, key, &state, bw::mutable_bytes(b)));
  return detail::finish(context, state, std::move(work));
}

/// Writes the keys `key`0, `key`1, ... again and again, `in_flight` of them at one time, all with the same body.
template <bw::object_store S>
load put_objects(asio::io_context& context, S store, const std::string& key, bw::const_bytes body, std::size_t in_flight, double seconds) {
  detail::store_round state{range_walk(body.size(), body.size()), body.size(), seconds, stopwatch(), load()};
  std::vector<asio::awaitable<void>> work;
  for (std::size_t i = 0; i < in_flight; ++i) work.push_back(detail::write_objects(store, key + std::to_string(i), &state, body));
  return detail::finish(context, state, std::move(work));
}

}  // namespace bench
