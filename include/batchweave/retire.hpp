// Giving up a producer for good.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/patient_options.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/change.hpp>
#include <batchweave/commit/lifecycle.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/store/store.hpp>

#include <string>
#include <type_traits>
#include <utility>

namespace batchweave {

class retire_options : public patient_options<retire_options> {
 public:
  /// `producer`: its id.
  explicit retire_options(std::string producer) : producer_(std::move(producer)) {}

  const std::string& producer() const noexcept { return producer_; }

 private:
  std::string producer_;
};
static_assert(!std::is_aggregate_v<retire_options>);

/// The producer will not come back: its incarnation is fenced, the stream does not wait for it any more, and its state is given up, so
/// that reclaim() may remove its last batch and what it never committed. Its steps stay. When all others have finished, the stream ends.
/// Should it be opened again all the same, it goes on with the next sequence number and an empty state.
/// Nothing but this drops the state of a producer, however long it is idle. Retiring one that is retired does nothing.
/// Requests: GET of the stream description, LIST + GET of the tail, one conditional PUT.
/// Errors: invalid_argument (no such producer), stream_missing, undecided, retries_exhausted, those of the store.
/// Cancellation: it may or may not be retired; call again.
template <class Codecs = manifest::builtin_codecs, object_store Store>
asio::awaitable<void> retire(Store store, retire_options options) {
  manifest::check_name("producer id", options.producer()).value();
  any_clock clock = options.clock();
  random64 random = options.random();
  auto read = [&] { return commit::read_stream_info<Codecs>(store); };
  const result<manifest::stream_info> stream = co_await patiently(clock, random, options.give_up_after(), read);
  if (!stream) throw error(in_context(stream.error(), "retiring producer " + options.producer()));
  commit::retire_producer wanted(*stream, options.producer());
  const result<commit::tail_view> done =
      co_await commit::commit_change<Codecs>(store, *stream, clock, random, options.give_up_after(), wanted);
  if (!done) throw error(in_context(done.error(), store.name()));
}

}  // namespace batchweave
