// Creating and describing a stream.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/manifest/stream_info.hpp>
#include <batchweave/store/probe.hpp>
#include <batchweave/store/store.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace batchweave {

/// How steps get their order.
enum class stream_order {
  commit,       ///< as batches are committed: the fastest
  round_robin,  ///< one batch of each producer in turn, in the order of their ids: reproducible whatever the timing
};

/// Settings of a stream, fixed for its life.
class stream_options {
 public:
  stream_options() = default;
  /// Slices in every TGB: the largest number of data-parallel ranks; every divisor works as a world size. 1 to 65536, default 1.
  stream_options& slices(std::uint32_t n) { slices_ = n; return *this; }
  /// Default commit. With round_robin the stream is for exactly producers() producers: no step is visible before all have opened, and
  /// each step waits for the producer whose turn it is, until that one closes.
  stream_options& order(stream_order o) { order_ = o; return *this; }
  /// The stream ends when at least this many producers are known and all of them have closed. Default 1.
  stream_options& producers(std::uint64_t n) { producers_ = n; return *this; }
  /// Manifest codec by name: "binary" (default), "json", or one of your own (see manifest::codec_set).
  stream_options& codec(std::string name) { codec_ = std::move(name); return *this; }
  /// Where randomness comes from; the operating system by default.
  stream_options& random(random64 r) { random_ = r; return *this; }

  std::uint32_t slices() const noexcept { return slices_; }
  std::uint64_t producers() const noexcept { return producers_; }
  stream_order order() const noexcept { return order_; }
  const std::string& codec() const noexcept { return codec_; }
  random64 random() const noexcept { return random_; }

 private:
  std::uint32_t slices_ = 1;
  std::uint64_t producers_ = 1;
  stream_order order_ = stream_order::commit;
  std::string codec_ = "binary";
  random64 random_;
};
static_assert(!std::is_aggregate_v<stream_options>);

namespace detail {
inline std::string_view order_name(stream_order o) {
  return o == stream_order::round_robin ? manifest::order_round_robin : manifest::order_commit;
}

template <class Codecs>
result<void> check(const stream_options& o) {
  if (o.slices() == 0 || o.slices() > 65536) {
    return failure(errc::invalid_argument, "stream_options.slices is " + std::to_string(o.slices()) + ", must be 1 to 65536")
        .with_fate(fate::did_not_happen);
  }
  if (o.producers() == 0) {
    return failure(errc::invalid_argument, "stream_options.producers is 0, must be at least 1").with_fate(fate::did_not_happen);
  }
  if (!Codecs::knows(o.codec())) {
    return failure(errc::invalid_argument, "stream_options.codec is '" + o.codec() + "', must be one of " + Codecs::names())
        .with_fate(fate::did_not_happen);
  }
  return {};
}

inline result<manifest::stream_info> same_settings(const manifest::stream_info& there, const stream_options& o,
                                                   const std::string& store) {
  std::string differs;
  if (there.slices != o.slices()) {
    differs += " slices " + std::to_string(there.slices) + " (asked for " + std::to_string(o.slices()) + ")";
  }
  if (there.producers != o.producers()) {
    differs += " producers " + std::to_string(there.producers) + " (asked for " + std::to_string(o.producers()) + ")";
  }
  if (there.order != order_name(o.order())) {
    differs += " order " + there.order + " (asked for " + std::string(order_name(o.order())) + ")";
  }
  if (there.codec != o.codec()) differs += " codec " + there.codec + " (asked for " + o.codec() + ")";
  if (differs.empty()) return there;
  return failure(errc::invalid_argument, store + ": a stream with other settings exists:" + differs + "; use another prefix")
      .with_fate(fate::did_not_happen);
}
}  // namespace detail

/// Makes the stream under the store's prefix, or finds the one with the same settings (any number may try at once).
/// Probes the store first: 2 + 32 small conditional PUTs and their removal. Errors: invalid_argument (settings; another stream exists),
/// store_unsafe (does not honour If-None-Match; names the store), those of the store.
/// Cancellation: safe, call again. Thread safety: distinct calls are independent.
template <class Codecs = manifest::builtin_codecs, object_store S>
asio::awaitable<manifest::stream_info> create_stream(S store, stream_options options) {
  detail::check<Codecs>(options).value();
  if (!store.capabilities().conditional_create) {
    throw error(failure(errc::not_supported, store.name() + ": the store states that it has no conditional create"));
  }
  random64 random = options.random();
  const std::string key = manifest::stream_key();
  result<manifest::stream_info> there = co_await commit::read_stream_info<Codecs>(store);
  if (there) co_return detail::same_settings(*there, options, store.name()).value();
  if (there.error().code() != errc::stream_missing) throw error(there.error());

  result<void> probed = co_await probe_store(store, random64(random()));
  if (!probed) throw error(probed.error());

  manifest::stream_info info;
  info.id = id128::draw(random);
  info.slices = options.slices();
  info.producers = options.producers();
  info.order = detail::order_name(options.order());
  info.codec = options.codec();
  const std::string text = manifest::encode_stream_info(info);
  const const_buffers body{as_bytes(text)};
  const put_condition absent = put_condition::if_absent();
  result<put_outcome> put = co_await store.put(key, body, absent);
  if (!put && put.error().fate() == fate::did_not_happen) throw error(put.error());
  // Written, lost or unknown: what is there now decides.
  there = co_await commit::read_stream_info<Codecs>(store);
  if (!there) throw error(put ? there.error() : put.error());
  co_return detail::same_settings(*there, options, store.name()).value();
}

/// Reads the identity and settings of the stream under the store's prefix. Errors: stream_missing, damaged, those of the store.
template <class Codecs = manifest::builtin_codecs, object_store S>
asio::awaitable<manifest::stream_info> open_stream(S store) {
  result<manifest::stream_info> there = co_await commit::read_stream_info<Codecs>(store);
  if (!there) throw error(there.error());
  co_return std::move(*there);
}

}  // namespace batchweave
