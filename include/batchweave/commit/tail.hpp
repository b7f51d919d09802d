// Reading the log: the stream's identity, one version by number, and the newest version in a bounded number of requests.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/protocol.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/manifest/stream_info.hpp>
#include <batchweave/manifest/version.hpp>
#include <batchweave/store/store.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace batchweave::commit {

inline constexpr std::size_t version_bytes_expected = std::size_t{64} << 10;
inline constexpr std::size_t version_bytes_limit = std::size_t{64} << 20;

/// What lies under a version key.
class log_entry {
 public:
  enum class kind { absent, tombstone, present };
  log_entry() = default;
  explicit log_entry(kind k) : what(k) {}
  log_entry(std::shared_ptr<const manifest::version> v, std::size_t b) : what(kind::present), version(std::move(v)), bytes(b) {}
  kind what = kind::absent;
  std::shared_ptr<const manifest::version> version;
  std::size_t bytes = 0;  ///< encoded size
};

/// The newest version. Before the first commit: the genesis version with number 0.
class tail_view {
 public:
  tail_view() = default;
  tail_view(std::shared_ptr<const manifest::version> v, std::size_t b) : version(std::move(v)), bytes(b) {}
  std::shared_ptr<const manifest::version> version;
  std::size_t bytes = 0;
};

/// Reads and checks version `number` of the stream. Errors: those of the store; damaged, with the key; stream_mismatch.
template <class Codecs = manifest::builtin_codecs, object_store S>
asio::awaitable<result<log_entry>> read_version(S store, manifest::stream_info stream, std::uint64_t number) {
  const std::string key = manifest::log_key(number);
  result<std::optional<byte_buffer>> bytes = co_await read_object(store, key, version_bytes_expected, version_bytes_limit);
  if (!bytes) co_return in_context(bytes.error(), "manifest version " + std::to_string(number));
  if (!bytes->has_value()) co_return log_entry(log_entry::kind::absent);
  if ((*bytes)->empty()) co_return log_entry(log_entry::kind::tombstone);
  result<manifest::version> decoded = Codecs::decode((*bytes)->bytes());
  if (!decoded) co_return in_context(decoded.error(), store.name() + " " + key);
  if (decoded->number != number) {
    co_return failure(errc::damaged, store.name() + " " + key + ": holds version " + std::to_string(decoded->number) +
                                         ", expected " + std::to_string(number));
  }
  if (decoded->stream_id != stream.id) {
    co_return failure(errc::stream_mismatch, store.name() + " " + key + ": belongs to stream " + decoded->stream_id.to_string() +
                                                 ", expected " + stream.id.to_string());
  }
  auto shared = std::make_shared<const manifest::version>(std::move(*decoded));
  co_return log_entry(std::move(shared), (*bytes)->size());
}

namespace detail {
/// The highest existing version number by galloping HEADs from `low` (0, or a version that exists): version keys are dense
/// and never become absent again, so existence is monotone. `low` rises with what is found, also when a later HEAD fails: under a
/// rate limit a search that began anew after each refusal would never end.
template <object_store S>
asio::awaitable<result<std::uint64_t>> gallop(S store, std::uint64_t& low) {
  std::uint64_t step = 1;
  std::uint64_t high = 0;
  for (;;) {
    const std::uint64_t probe = low + step;
    result<std::optional<object_info>> there = co_await store.head(manifest::log_key(probe));
    if (!there) co_return there.error();
    if (!there->has_value()) {
      high = probe;
      break;
    }
    low = probe;
    step *= 2;
  }
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    result<std::optional<object_info>> there = co_await store.head(manifest::log_key(middle));
    if (!there) co_return there.error();
    if (there->has_value()) low = middle;
    else high = middle;
  }
  co_return low;
}

template <object_store S>
asio::awaitable<result<std::uint64_t>> newest_number(S store, std::uint64_t& known) {
  if (!store.capabilities().ordered_list) co_return co_await gallop(store, known);
  const std::string prefix = manifest::log_prefix();
  const std::string after;
  result<list_page> page = co_await store.list(prefix, after, 1);
  if (!page) co_return page.error();
  if (page->objects().empty()) co_return std::uint64_t{0};
  const std::string& key = page->objects().front().key();
  const std::optional<std::uint64_t> number = manifest::parse_log_key(key);
  if (!number) co_return failure(errc::damaged, store.name() + " " + key + ": not a manifest version; remove it from the log");
  co_return *number;
}
/// find_tail(); `known` rises with what is found, also when it fails.
template <class Codecs, object_store S>
asio::awaitable<result<tail_view>> find_tail_from(S store, manifest::stream_info stream, std::uint64_t& known) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    result<std::uint64_t> number = co_await newest_number(store, known);
    if (!number) co_return in_context(number.error(), "finding the newest manifest version");
    // A listing that lags behind what was seen is no reason to go back, nor to look at the same tombstone again: look on from there.
    if (*number < known || (attempt > 0 && *number == known)) number = co_await gallop(store, known);
    if (!number) co_return in_context(number.error(), "finding the newest manifest version");
    if (*number == 0) {
      auto first = std::make_shared<const manifest::version>(genesis(stream));
      co_return tail_view(std::move(first), 0);
    }
    result<log_entry> entry = co_await read_version<Codecs>(store, stream, *number);
    if (!entry) co_return entry.error();
    if (entry->what == log_entry::kind::present) co_return tail_view(entry->version, entry->bytes);
    if (entry->what == log_entry::kind::absent) {
      co_return failure(errc::damaged, store.name() + " " + manifest::log_key(*number) + ": version " + std::to_string(*number) +
                                           " was seen and is gone; versions must never be deleted");
    }
    // Others moved on and a reclaimer buried this version between the two requests.
    known = *number;
  }
  co_return failure(errc::undecided, store.name() + ": the newest manifest version kept being reclaimed while it was read");
}
}  // namespace detail

/// Finds the newest version: LIST 1 + GET 1 on stores with an ordered list, else O(log distance) HEADs from `known` + GET 1.
/// `known`: the number of any version that is known to exist, or 0.
template <class Codecs = manifest::builtin_codecs, object_store S>
asio::awaitable<result<tail_view>> find_tail(S store, manifest::stream_info stream, std::uint64_t known) {
  co_return co_await detail::find_tail_from<Codecs>(store, stream, known);
}

/// find_tail(), repeated for `limit` while the store's failures are of the kind that passes: patiently(), which calls `told`. An attempt
/// goes on from where the one before it failed. `random` must outlive the call.
template <class Codecs = manifest::builtin_codecs, object_store S, class Told>
asio::awaitable<result<tail_view>> await_tail(S store, manifest::stream_info stream, any_clock clock, random64& random, duration limit,
                                              std::uint64_t known, Told told) {
  auto read = [&] { return detail::find_tail_from<Codecs>(store, stream, known); };
  co_return co_await patiently(clock, random, limit, read, std::move(told));
}

template <class Codecs = manifest::builtin_codecs, object_store S>
asio::awaitable<result<tail_view>> await_tail(S store, manifest::stream_info stream, any_clock clock, random64& random, duration limit,
                                              std::uint64_t known) {
  return await_tail<Codecs>(std::move(store), std::move(stream), std::move(clock), random, limit, known, [](const failure*) {});
}

/// await_tail() without a listing, for whoever knows that there is more than a listing showed: HEADs from `known`, which exists or is 0.
template <class Codecs = manifest::builtin_codecs, object_store S>
asio::awaitable<result<tail_view>> await_tail_by_number(S store, manifest::stream_info stream, any_clock clock, random64& random,
                                                        duration limit, std::uint64_t known) {
  auto look = [&] { return detail::gallop(store, known); };
  const result<std::uint64_t> number = co_await patiently(clock, random, limit, look);
  if (!number) co_return in_context(number.error(), "finding the newest manifest version");
  co_return co_await await_tail<Codecs>(store, stream, clock, random, limit, *number);
}

/// Reads the stream's identity. Errors: stream_missing; damaged; not_supported when its codec is not among `Codecs`.
template <class Codecs = manifest::builtin_codecs, object_store S>
asio::awaitable<result<manifest::stream_info>> read_stream_info(S store) {
  const std::string key = manifest::stream_key();
  result<std::optional<byte_buffer>> bytes = co_await read_object(store, key, 4096, 65536);
  if (!bytes) co_return in_context(bytes.error(), "reading the stream description");
  if (!bytes->has_value()) {
    co_return failure(errc::stream_missing, store.name() + ": there is no stream here; create_stream makes one")
        .with_fate(fate::did_not_happen);
  }
  result<manifest::stream_info> info = manifest::decode_stream_info((*bytes)->bytes());
  if (!info) co_return in_context(info.error(), store.name() + " " + key);
  if (!Codecs::knows(info->codec)) {
    co_return failure(errc::not_supported, store.name() + ": the stream uses manifest codec '" + info->codec +
                                               "', which is not among the known ones (" + Codecs::names() + ")");
  }
  co_return std::move(*info);
}

}  // namespace batchweave::commit
