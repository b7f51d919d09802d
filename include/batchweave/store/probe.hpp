// Proof, at the time a stream is created, that a store honours If-None-Match.
#pragma once

#include <batchweave/aio/task_group.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/store/store.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

namespace detail {

/// What the racers on one key found. Shared by them, on one executor.
struct create_race {
  std::string key;
  std::vector<std::string> bodies;
  std::vector<unsigned> winners;
  std::optional<failure> failed;
};

template <object_store S>
asio::awaitable<void> race_once(S store, std::shared_ptr<create_race> race, unsigned racer) {
  const const_buffers body{as_bytes(race->bodies[racer])};
  const put_condition absent = put_condition::if_absent();
  result<put_outcome> put = co_await store.put(race->key, body, absent);
  if (!put) race->failed = put.error();
  else if (put->applied()) race->winners.push_back(racer);
}

/// `racers` creates of `key` at the same moment, all joined. Bodies of at least `size` bytes.
template <object_store S>
asio::awaitable<std::shared_ptr<create_race>> race_to_create(S store, std::string key, unsigned racers, id128 mark, std::size_t size = 0) {
  auto race = std::make_shared<create_race>();
  race->key = std::move(key);
  for (unsigned i = 0; i < racers; ++i) {
    std::string body = mark.to_string() + " racer " + std::to_string(i);
    if (body.size() < size) body.resize(size, static_cast<char>('a' + i % 26));
    race->bodies.push_back(std::move(body));
  }
  task_group group(co_await asio::this_coro::executor);
  for (unsigned i = 0; i < racers; ++i) group.spawn(race_once(store, race, i));
  co_await group.join();
  co_return race;
}

inline failure unsafe_store(const std::string& name, const std::string& seen) {
  return failure(errc::store_unsafe, name + " does not honour If-None-Match: " + seen +
                                         ". A stream there could lose data without a sign; use a store that creates objects atomically.")
      .with_fate(fate::did_not_happen);
}

/// One race on an unused key: no more than one racer may win, and its bytes must be there.
template <object_store S>
asio::awaitable<result<void>> probe_race(S store, std::string key, unsigned racers, id128 mark, std::size_t size) {
  std::shared_ptr<create_race> race = co_await race_to_create(store, key, racers, mark, size);
  if (race->winners.size() > 1) {
    co_return unsafe_store(store.name(), std::to_string(race->winners.size()) + " of " + std::to_string(racers) +
                                             " simultaneous creates of " + key + " succeeded");
  }
  if (race->failed) co_return in_context(*race->failed, "probe of " + store.name() + ", " + std::to_string(racers) + " racing creates");
  const std::size_t expect = std::max<std::size_t>(size, 256), limit = expect + 4096;
  result<std::optional<byte_buffer>> won = co_await read_object(store, key, expect, limit);
  if (!won) co_return in_context(won.error(), "probe of " + store.name() + ", read of the winner");
  if (race->winners.empty()) {
    // A retry inside the store after a lost answer may have been told that the key is taken: by its own first attempt. The bytes decide.
    bool one_of_ours = false;
    if (*won) {
      for (const std::string& b : race->bodies) one_of_ours = one_of_ours || as_text((*won)->bytes()) == b;
    }
    if (!one_of_ours) co_return unsafe_store(store.name(), "none of " + std::to_string(racers) + " creates of " + key + " succeeded");
  } else if (!*won || as_text((*won)->bytes()) != race->bodies[race->winners.front()]) {
    co_return unsafe_store(store.name(), "the bytes under " + key + " are not the winner's");
  }
  co_return result<void>();
}

/// Everything but the cleaning up: keys that were written are appended to `made`.
template <object_store S>
asio::awaitable<result<void>> probe_keys(S store, random64 random, std::shared_ptr<std::vector<std::string>> made) {
  const std::string base = "probe-" + id128::draw(random).to_string();
  const std::string twice = base + "/twice";
  const std::size_t expect = 256, limit = 4096;
  const put_condition absent = put_condition::if_absent();

  const std::string first = "first " + id128::draw(random).to_string();
  const std::string second = "second " + id128::draw(random).to_string();
  made->push_back(twice);
  const const_buffers first_body{as_bytes(first)};
  result<put_outcome> created = co_await store.put(twice, first_body, absent);
  if (!created) co_return in_context(created.error(), "probe of " + store.name() + ", first create");
  if (!created->applied()) co_return unsafe_store(store.name(), "a create of the unused key " + twice + " was refused");
  const const_buffers second_body{as_bytes(second)};
  result<put_outcome> again = co_await store.put(twice, second_body, absent);
  if (!again) co_return in_context(again.error(), "probe of " + store.name() + ", second create");
  if (again->applied()) co_return unsafe_store(store.name(), "a second create of " + twice + " succeeded");
  result<std::optional<byte_buffer>> kept = co_await read_object(store, twice, expect, limit);
  if (!kept) co_return in_context(kept.error(), "probe of " + store.name() + ", read back");
  if (!*kept || as_text((*kept)->bytes()) != first) {
    co_return unsafe_store(store.name(), "a refused create replaced the bytes of " + twice);
  }

  // A store that looks and then writes shows it only when two racers meet between the two: many racers, several races, and bodies that take
  // a while to arrive. The first race also opens the connections on which the others start together.
  const std::pair<unsigned, std::size_t> races[] = {{32, 0}, {32, 16384}, {32, 16384}, {32, 16384}, {32, 16384}, {32, 16384}};
  unsigned number = 0;
  for (const auto& [racers, size] : races) {
    const std::string key = base + "/race-" + std::to_string(++number);
    made->push_back(key);
    const id128 mark = id128::draw(random);
    result<void> one = co_await probe_race(store, key, racers, mark, size);
    if (!one) co_return one;
  }
  co_return result<void>();
}

}  // namespace detail

/// Creates one random key twice in a row, then lets 32 racers create another one, six times: one may win and its bytes must be there.
/// Removes its keys (`probe-<random>/...`). About 200 requests and 2.6 MB, a fraction of a second; where a lost race is slow (SeaweedFS, up to
/// 1 s for each racer), a minute (72 s seen). A store with conditional_create == false is refused by name.
/// Errors: errc::store_unsafe when the store gave in, errc::not_supported without conditional_create, else the store's own failure.
/// Cancellation: the probe's keys stay behind. Runs on one executor, which must be single-threaded or a strand.
template <object_store S>
asio::awaitable<result<void>> probe_store(S store, random64 random) {
  if (!store_capabilities(store.capabilities()).conditional_create) {
    co_return failure(errc::not_supported, store.name() + " cannot create an object only if it is absent, which commits need")
        .with_fate(fate::did_not_happen);
  }
  auto made = std::make_shared<std::vector<std::string>>();
  result<void> verdict = co_await detail::probe_keys(store, random, made);
  const std::vector<std::string> keys = *made;
  result<std::vector<remove_failure>> removed = co_await store.remove(keys);
  if (!verdict) co_return verdict;
  if (!removed) co_return in_context(removed.error(), "probe of " + store.name() + ", removal of its keys");
  if (!removed->empty()) co_return in_context(removed->front().why(), "probe of " + store.name() + ", removal of " + removed->front().key());
  co_return verdict;
}

}  // namespace batchweave
