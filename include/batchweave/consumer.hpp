// The role that reads every step whole, in the one global order, and hands out one rank's share of each.
#pragma once

#include <batchweave/as_result.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/consumer_core.hpp>
#include <batchweave/consumer_options.hpp>
#include <batchweave/cursor.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/slice.hpp>
#include <batchweave/store/store.hpp>
#include <batchweave/tgb/reader.hpp>
#include <batchweave/waiting.hpp>

#include <boost/asio/strand.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace batchweave {

/// A handle to one open consumer; made by open_consumer(). Move-only. Destroying it stops its prefetch. Destroy it before its
/// execution context.
///
/// Follows the log and fetches ahead in coroutines on a strand of the executor that opened it, so that executor may belong to a thread
/// pool. Thread safety: distinct objects are independent; await one operation of an object at a time, from any thread.
template <object_store Store, class Codecs = manifest::builtin_codecs>
class consumer {
 public:
  consumer() = default;
  consumer(consumer&&) noexcept = default;
  consumer& operator=(consumer&& o) noexcept {
    if (this != &o) {
      abandon();
      core_ = std::move(o.core_);
    }
    return *this;
  }
  ~consumer() { abandon(); }

  /// The next step's share of this rank, or nullopt when the stream has ended, at the same step for every rank. Waits until the step is
  /// visible. Every byte was checked against its checksum (I8).
  /// Errors, all with step, rank, key and range: damaged, object_missing, reclaimed, budget_too_small, waited_too_long, those of the
  /// store. After an error the cursor still names the step that failed.
  /// Cancellation: nothing is lost, the next call delivers the same step.
  asio::awaitable<std::optional<slice>> next() { return core::next(core_); }

  /// Moves when a step is handed out, not when it is fetched.
  batchweave::cursor cursor() const {
    const std::lock_guard lock(core_->mutex);
    return batchweave::cursor(core_->stream.id, core_->deliver);
  }
  const manifest::stream_info& stream() const noexcept { return core_->stream; }

  /// Why next() would wait now, in words, or empty: for logs and dashboards.
  std::string waiting_for() const { return wait().text(); }
  /// The same with a reason that a program can read.
  wait_state wait() const {
    const std::lock_guard lock(core_->mutex);
    return core_->waits_for();
  }

 private:
  template <class C, object_store S>
  friend asio::awaitable<consumer<S, C>> open_consumer(S, consumer_options);

  using core = detail::consumer_core<Store, Codecs>;

  explicit consumer(std::shared_ptr<core> c) : core_(std::move(c)) {}
  void abandon() noexcept {
    if (core_) core_->tasks.cancel();
    core_.reset();
  }

  std::shared_ptr<core> core_;
};

/// Opens one rank's view of the stream in `store` at the place that the options name. Requests: GET of the stream description,
/// LIST + GET of the tail; when the step is not in the newest version one or two GETs of the sealed index, or O(log) GETs of the versions
/// that are not sealed yet.
/// Errors: invalid_argument (no start, rank, a world size that does not divide the slices: the message lists those that do),
/// stream_missing, stream_mismatch (cursor of another stream), reclaimed, beyond_end, those of the store; waits with back-off while the
/// store throttles or is down, up to give_up_after. Cancellation: nothing is left behind.
template <class Codecs = manifest::builtin_codecs, object_store Store>
asio::awaitable<consumer<Store, Codecs>> open_consumer(Store store, consumer_options options) {
  using handle = consumer<Store, Codecs>;
  manifest::check_name("group", options.group()).value();
  const std::string who = "group " + options.group() + " rank " + std::to_string(options.rank()) + ": ";
  if (options.rank() >= options.world_size()) {
    throw error(failure(errc::invalid_argument, who + "the rank must be below the world size " + std::to_string(options.world_size()))
                    .with_fate(fate::did_not_happen));
  }
  if (!options.start() && !options.start_at()) {
    throw error(failure(errc::invalid_argument, who + "nothing says where to start: use start(cursor) or start_at(step)")
                    .with_fate(fate::did_not_happen));
  }
  if (options.start() && options.start()->empty()) {
    throw error(failure(errc::invalid_argument, who + "the cursor is empty; a checkpoint without a cursor does not say where to go on, "
                                                      "use start_at(step) to choose")
                    .with_fate(fate::did_not_happen));
  }
  any_clock clock = options.clock();
  random64 random = options.random();
  auto read = [&] { return commit::read_stream_info<Codecs>(store); };
  store_trouble told(options.on_wait(), options.wait_bound(), clock, who + "opening");
  result<manifest::stream_info> info = co_await patiently(clock, random, options.give_up_after(), read, told);
  if (!info) throw error(in_context(info.error(), who + "opening"));
  result<void> divides = tgb::check_world_size(info->slices, options.world_size());
  if (!divides) throw error(in_context(divides.error(), who + "opening"));
  if (options.start() && options.start()->stream() != info->id) {
    throw error(failure(errc::stream_mismatch, who + "the cursor belongs to stream " + options.start()->stream().to_string() +
                                                   ", but " + store.name() + " holds stream " + info->id.to_string())
                    .with_fate(fate::did_not_happen));
  }
  const std::uint64_t step = options.start() ? options.start()->next_step() : *options.start_at();
  const asio::any_io_executor base = co_await asio::this_coro::executor;
  const asio::any_io_executor strand = asio::make_strand(base);
  auto core = std::make_shared<typename handle::core>(std::move(store), std::move(options), std::move(*info), strand);
  core->opening = told;
  core->deliver = core->discover = core->start_fetch = step;
  result<std::uint64_t> number = co_await core->locate(step);
  if (!number) throw error(number.error());
  core->opening.reset();
  const bool ended = core->final_step && step >= *core->final_step;
  if (!ended) core->tasks.spawn(handle::core::follow(core, *number));
  core->tasks.spawn(handle::core::prefetch(core));
  co_return handle(std::move(core));
}

}  // namespace batchweave
