// The role that uploads global batches and publishes them in one global order, exactly once.
#pragma once

#include <batchweave/as_result.hpp>
#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/policy.hpp>
#include <batchweave/commit/rules.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/global_batch.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/producer_core.hpp>
#include <batchweave/producer_options.hpp>
#include <batchweave/store/store.hpp>

#include <boost/asio/strand.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave {

/// A handle to one open producer; made by open_producer(). Move-only. Destroying it without close() or detach() abandons what is not
/// committed: the next incarnation continues after the last committed batch. Destroy it before its execution context.
///
/// Uploads and commits run in coroutines on a strand of the executor that opened the producer, so that executor may belong to a
/// thread pool. Thread safety: distinct objects are independent; the operations of one object may be awaited from any thread.
/// Every operation throws batchweave::error; as_result() turns that into a value. After fenced, or another failure that stops the
/// producer, every operation reports that failure. Cancelling an operation only ends the wait: a batch that was
/// accepted is uploaded and committed all the same, in order.
template <object_store Store, commit::commit_policy Policy = commit::dac, class Codecs = manifest::builtin_codecs,
          class Rules = commit::rules>
class basic_producer {
 public:
  basic_producer() = default;
  basic_producer(basic_producer&&) noexcept = default;
  basic_producer& operator=(basic_producer&& o) noexcept {
    if (this != &o) {
      abandon();
      core_ = std::move(o.core_);
    }
    return *this;
  }
  ~basic_producer() { abandon(); }

  /// The state that was committed with the last batch of this producer, by whichever incarnation; empty before the first.
  std::string_view state() const noexcept { return core_->restored_state; }
  std::uint64_t epoch() const noexcept { return core_->me.epoch; }
  /// Sequence number of the next batch.
  std::uint64_t next_seq() const {
    const std::lock_guard lock(core_->mutex);
    return core_->next_seq;
  }
  /// Batches [0, committed_seq()) are in the log for good.
  std::uint64_t committed_seq() const {
    const std::lock_guard lock(core_->mutex);
    return core_->committed;
  }
  producer_stats stats() const {
    const std::lock_guard lock(core_->mutex);
    return core_->stats;
  }
  /// Why publish(), flush() or close() would wait now, in words, or empty: for logs and dashboards.
  std::string waiting_for() const { return wait().text(); }
  /// The same with a reason that a program can read.
  wait_state wait() const {
    const std::lock_guard lock(core_->mutex);
    return core_->waits_for();
  }

  /// Accepts one batch with the producer state to be committed with it, and returns its sequence number when it is durable (see
  /// uploads_in_flight). One PUT, or a multipart upload; slices are sent from where they lie. The batch becomes visible with a
  /// later commit; flush() waits for that. With a cooperative policy or a round_robin stream, and others active, one more small PUT
  /// announces it. Waits while the lead over the slowest group is too large (max_lead_steps), looking at the tail about once a second.
  /// Errors: invalid_argument (number of slices, alignment, tag), budget_too_small, fenced, stream_closed, closed, those of the store.
  /// Cancellation: before the batch was accepted nothing happened; after that it only ends the wait.
  asio::awaitable<std::uint64_t> publish(global_batch batch, std::string state = std::string()) {
    return core::publish(core_, std::move(batch), std::move(state));
  }

  /// Returns when every batch accepted so far is committed; bypasses the commit policy's interval.
  asio::awaitable<void> flush() { return core::flush(core_, false); }

  /// Flushes, then ends this producer: when all (and at least stream_options::producers) have closed, the stream ends at one step for
  /// every rank. The handle takes no more batches. Cancelled: call it again.
  asio::awaitable<void> close() { return core::flush(core_, true); }

  /// Flushes and leaves without ending: a later incarnation goes on.
  asio::awaitable<void> detach() { return core::leave(core_); }

 private:
  template <class C, class R, object_store S, commit::commit_policy P>
  friend asio::awaitable<basic_producer<S, P, C, R>> open_producer(S, producer_options, P);

  using core = detail::producer_core<Store, Policy, Codecs, Rules>;

  explicit basic_producer(std::shared_ptr<core> c) : core_(std::move(c)) {}
  void abandon() noexcept {
    if (core_) core_->tasks.cancel();
    core_.reset();
  }

  std::shared_ptr<core> core_;
};

/// Opens `options.id()` on the stream in `store`: raises its epoch, which fences every older incarnation, and restores the state that
/// was committed last. Requests: GET of the stream description, LIST + GET of the tail, one conditional PUT, one GET of the footer.
/// Errors: stream_missing, stream_closed, fenced (another incarnation opened at the same time), invalid_argument, those of the store;
/// waits with back-off while the store throttles or is down, up to give_up_after.
/// Cancellation: the epoch may or may not be raised; open again.
/// `Codecs`: the manifest codecs it knows, `open_producer<manifest::codec_set<mine, manifest::binary>>(...)` for one of your own.
template <class Codecs = manifest::builtin_codecs, class Rules = commit::rules, object_store Store, commit::commit_policy Policy>
asio::awaitable<basic_producer<Store, Policy, Codecs, Rules>> open_producer(Store store, producer_options options, Policy policy) {
  using handle = basic_producer<Store, Policy, Codecs, Rules>;
  manifest::check_name("producer id", options.id()).value();
  any_clock clock = options.clock();
  random64 random = options.random();
  auto read = [&] { return commit::read_stream_info<Codecs>(store); };
  store_trouble told(options.on_wait(), options.wait_bound(), clock, "producer " + options.id() + ": opening");
  result<manifest::stream_info> info = co_await patiently(clock, random, options.give_up_after(), read, told);
  if (!info) throw error(in_context(info.error(), "opening producer " + options.id()));
  const asio::any_io_executor base = co_await asio::this_coro::executor;
  const asio::any_io_executor strand = asio::make_strand(base);
  auto core = std::make_shared<typename handle::core>(std::move(store), std::move(policy), std::move(options), std::move(*info), strand);
  core->opening = std::move(told);
  co_await core->recover();
  core->opening.reset();
  core->tasks.spawn(handle::core::commit_loop(core));
  co_return handle(std::move(core));
}

template <class Codecs = manifest::builtin_codecs, object_store Store>
asio::awaitable<basic_producer<Store, commit::dac, Codecs>> open_producer(Store store, producer_options options) {
  return open_producer<Codecs>(std::move(store), std::move(options), commit::dac());
}

}  // namespace batchweave
