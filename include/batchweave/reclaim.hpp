// Giving back the storage of steps that no group needs any more: trim first, delete after.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/parallel.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/base/retry.hpp>
#include <batchweave/commit/change.hpp>
#include <batchweave/commit/index.hpp>
#include <batchweave/commit/lifecycle.hpp>
#include <batchweave/commit/liveness.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/reclaim_report.hpp>
#include <batchweave/seal.hpp>
#include <batchweave/store/store.hpp>
#include <batchweave/store/uploads.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

namespace detail {

/// One run. Shared with the coroutines that bury versions, which may outlive a cancelled caller.
template <object_store S, class Codecs, class Rules>
class reclaim_run : public std::enable_shared_from_this<reclaim_run<S, Codecs, Rules>> {
 public:
  reclaim_run(S s, reclaim_options o)
      : store_(std::move(s)), options_(std::move(o)), clock_(options_.clock()), random_(options_.random()), limit_(options_.give_up_after()) {}

  asio::awaitable<reclaim_report> run() {
    auto describe = [&] { return commit::read_stream_info<Codecs>(store_); };
    result<manifest::stream_info> stream = co_await patiently(clock_, random_, limit_, describe);
    if (!stream) throw error(in_context(stream.error(), "reclaiming"));
    stream_ = std::move(*stream);
    report_.dry_run = options_.dry_run();
    pace_ = clock_.now();
    if (!options_.dry_run()) {
      if constexpr (Rules::trim_first) co_await commit_trim();
      co_await seal_versions();
    }
    const auto live = co_await judge();
    report_.trim_step = live->newest().summary.trim_step;
    report_.sealed_step = live->newest().summary.sealed_step;
    report_.next_step = live->newest().summary.next_step;
    report_.held_by = holder(live->newest().summary);
    co_await sweep_batches(*live);
    co_await sweep_announcements(*live);
    co_await sweep_segments(*live);
    co_await sweep_marks(*live);
    co_await bury_versions(*live);
    if constexpr (lists_uploads<S>) co_await abort_uploads(*live);
    if constexpr (!Rules::trim_first) {
      if (!options_.dry_run()) co_await commit_trim();
    }
    co_return std::move(report_);
  }

 private:
  using live_ptr = std::shared_ptr<const commit::liveness<Rules>>;

  // ---- commit ----------------------------------------------------------------------------------------------------

  asio::awaitable<void> commit_trim() {
    commit::trim wanted;
    const result<commit::tail_view> done =
        co_await commit::commit_change<Codecs, Rules>(store_, stream_, clock_, random_, limit_, wanted);
    if (!done) throw error(in_context(done.error(), store_.name()));
    known_ = std::max(known_, done->version->number);
  }

  asio::awaitable<void> seal_versions() {
    seal_options o;
    o.after_versions(options_.seal_after()).give_up_after(limit_).clock(clock_).seed(random_());
    co_await seal<Codecs, Rules>(store_, o);
  }

  static std::string holder(const manifest::summary& s) {
    const manifest::group_entry* slowest = nullptr;
    for (const manifest::group_entry& g : s.groups) {
      if (g.retained.empty()) return g.name;
      if (!slowest || g.retained.front().step < slowest->retained.front().step) slowest = &g;
    }
    return slowest ? slowest->name : std::string();
  }

  // ---- what is needed --------------------------------------------------------------------------------------------

  asio::awaitable<live_ptr> judge() {
    for (unsigned attempt = 0; attempt < 16; ++attempt) {
      const result<commit::tail_view> tail = co_await commit::await_tail<Codecs>(store_, stream_, clock_, random_, limit_, known_);
      if (!tail) throw error(in_context(tail.error(), "reclaiming"));
      known_ = tail->version->number;
      std::shared_ptr<const manifest::version> newest = tail->version;
      if (options_.dry_run() || !Rules::trim_first) {  // as if the trim were committed
        auto trimmed = std::make_shared<manifest::version>(*newest);
        trimmed->summary.trim_step = commit::trim_target(newest->summary);
        newest = std::move(trimmed);
      }
      auto live = std::make_shared<commit::liveness<Rules>>(newest);
      const bool whole = co_await gather(*live);
      if (whole) co_return live;
    }
    throw error(failure(errc::undecided, store_.name() + ": the index kept changing while reclaim read it; run it again"));
  }

  // Feeds every step of [trim_step, next_step); false when part of the index was merged or buried meanwhile.
  asio::awaitable<bool> gather(commit::liveness<Rules>& live) {
    const manifest::version& newest = live.newest();
    const manifest::summary& s = newest.summary;
    for (const manifest::segment_ref& ref : s.segments) {
      if (ref.end <= s.trim_step) continue;
      auto read = [&] { return commit::read_segment_head(store_, stream_, ref); };
      const auto segment = co_await patiently(clock_, random_, limit_, read);
      if (!segment) throw error(in_context(segment.error(), "reclaiming"));
      if (!segment->has_value()) co_return false;
      const commit::open_segment& open = **segment;
      if (ref.first >= s.trim_step) {
        for (const manifest::seq_run& r : open.index.runs) live.add_run(r);
        continue;
      }
      for (std::size_t b = open.index.block_of(s.trim_step); b < open.index.blocks.size(); ++b) {
        auto read_block = [&] { return commit::read_segment_block(store_, open, b); };
        const auto entries = co_await patiently(clock_, random_, limit_, read_block);
        if (!entries) throw error(in_context(entries.error(), "reclaiming"));
        if (!entries->has_value()) co_return false;
        std::uint64_t step = open.index.first_of(b);
        for (const manifest::tgb_entry& e : **entries) {
          if (step++ >= s.trim_step) live.add(e);
        }
      }
    }
    // The versions that are not sealed, 512 at a time.
    const std::uint64_t floor = std::max(s.trim_step, s.sealed_step);
    std::uint64_t step = floor;
    for (std::uint64_t first = s.oldest_version; first <= newest.number; first += 512) {
      const std::uint64_t last = std::min(newest.number, first + 511);
      const auto versions = co_await commit::read_versions<Codecs>(store_, stream_, clock_, limit_, first, last);
      if (!versions) throw error(in_context(versions.error(), "reclaiming"));
      if (!versions->has_value()) co_return false;
      for (const auto& v : **versions) {
        for (std::size_t i = 0; i < v->entries.size(); ++i) {
          if (v->first_step + i != step) continue;
          live.add(v->entries[i]);
          ++step;
        }
      }
    }
    if (step != std::max(floor, s.next_step)) {
      throw error(failure(errc::damaged, store_.name() + ": the log holds steps up to " + std::to_string(step) + " of " +
                                             std::to_string(s.next_step) + "; nothing is removed while it is not whole"));
    }
    co_return true;
  }

  // ---- removing --------------------------------------------------------------------------------------------------

  class doomed {
   public:
    doomed(std::string k, std::uint64_t b, reclaim_count* c) : key(std::move(k)), bytes(b), count(c) {}
    std::string key;
    std::uint64_t bytes;
    reclaim_count* count;
  };

  // Waits until the next `n` keys may go.
  asio::awaitable<void> pace(std::size_t n) {
    if (options_.keys_per_second() <= 0) co_return;
    const time_point due = std::max(pace_, clock_.now());
    pace_ = due + std::chrono::duration_cast<duration>(std::chrono::duration<double>(static_cast<double>(n) / options_.keys_per_second()));
    co_await clock_.wait_until(due);
  }

  void failed(remove_failure f) {
    ++report_.failed_keys;
    if (report_.failures.size() < 1000) report_.failures.push_back(std::move(f));
  }

  asio::awaitable<void> doom(std::string key, std::uint64_t bytes, reclaim_count& count) {
    doomed_.emplace_back(std::move(key), bytes, &count);
    std::size_t full = options_.batch();
    if (options_.keys_per_second() > 0) full = std::min<std::size_t>(full, static_cast<std::size_t>(options_.keys_per_second()) + 1);
    if (doomed_.size() >= full) co_await remove_doomed();
  }

  // Removes what is doomed with one request, and what failed for a reason that passes with further ones.
  asio::awaitable<void> remove_doomed() {
    std::vector<doomed> batch = std::move(doomed_);
    doomed_.clear();
    if (batch.empty()) co_return;
    if (options_.dry_run()) {
      for (const doomed& d : batch) count(d);
      co_return;
    }
    retry_policy pause;
    pause.base(std::chrono::milliseconds(100)).cap(std::chrono::seconds(10));
    const time_point give_up = clock_.now() + limit_;
    for (unsigned attempt = 1; !batch.empty(); ++attempt) {
      co_await pace(batch.size());
      std::vector<std::string> keys;
      for (const doomed& d : batch) keys.push_back(d.key);
      auto remove = [&] { return store_.remove(keys); };
      const result<std::vector<remove_failure>> removed = co_await patiently(clock_, random_, limit_, remove);
      if (!removed) {
        for (const doomed& d : batch) failed(remove_failure(d.key, removed.error()));
        co_return;
      }
      std::vector<doomed> again;
      const duration wait = pause.delay(attempt, random_);
      for (doomed& d : batch) {
        const auto why = std::find_if(removed->begin(), removed->end(), [&](const remove_failure& f) { return f.key() == d.key; });
        if (why == removed->end()) count(d);
        else if (why->why().kind() == error_kind::retry_later && clock_.now() + wait <= give_up) again.push_back(std::move(d));
        else failed(*why);
      }
      batch = std::move(again);
      if (!batch.empty()) co_await clock_.wait_for(wait);
    }
  }

  static void count(const doomed& d) {
    ++d.count->keys;
    d.count->bytes += d.bytes;
  }

  asio::awaitable<list_page> list(std::string prefix, std::string after) {
    auto read = [&] { return store_.list(prefix, after, 1000); };
    result<list_page> page = co_await patiently(clock_, random_, limit_, read);
    if (!page) throw error(in_context(page.error(), "reclaiming: listing " + prefix));
    co_return std::move(*page);
  }

  // ---- sweeps ----------------------------------------------------------------------------------------------------

  asio::awaitable<void> sweep_batches(const commit::liveness<Rules>& live) {
    const bool ordered = store_.capabilities().ordered_list;
    std::string after;
    for (bool more = true; more;) {
      const list_page page = co_await list(manifest::tgb_prefix(), after);
      more = page.more() && !page.objects().empty();
      std::string skip;
      for (const object_info& o : page.objects()) {
        after = o.key();
        if (!skip.empty() && o.key() <= skip) continue;
        const std::optional<manifest::batch_name> n = manifest::parse_tgb_key(o.key());
        if (!n) {
          ++report_.unknown_keys;
          continue;
        }
        const commit::sentence s = live.judge_tgb(*n);
        if (s == commit::sentence::keep) {
          if (ordered) skip = live.skip_after(*n);
        } else {
          reclaim_count& as = s == commit::sentence::dead ? report_.batches : report_.orphans;
          co_await doom(o.key(), o.size(), as);
        }
      }
      if (after < skip) after = skip;  // the keys up to there are needed: do not list them
    }
    co_await remove_doomed();
  }

  // Every key under `prefix` that `judge` takes: with no value when it is none of ours, else whether it is dead.
  template <class Judge>
  asio::awaitable<void> sweep(std::string prefix, reclaim_count& count_as, Judge& judge) {
    std::string after;
    for (bool more = true; more;) {
      const list_page page = co_await list(prefix, after);
      for (const object_info& o : page.objects()) {
        const std::optional<bool> dead = judge(o.key());
        if (!dead) ++report_.unknown_keys;
        else if (*dead) co_await doom(o.key(), o.size(), count_as);
      }
      more = page.more() && !page.objects().empty();
      if (more) after = page.objects().back().key();
    }
    co_await remove_doomed();
  }

  asio::awaitable<void> sweep_announcements(const commit::liveness<Rules>& live) {
    auto judge = [&](const std::string& key) -> std::optional<bool> {
      const auto n = manifest::parse_inbox_key(key);
      if (!n) return std::nullopt;
      return live.announcement_is_dead(*n);
    };
    co_await sweep(manifest::inbox_prefix(), report_.announcements, judge);
  }

  asio::awaitable<void> sweep_segments(const commit::liveness<Rules>& live) {
    auto judge = [&](const std::string& key) -> std::optional<bool> {
      const auto n = manifest::parse_seg_key(key);
      if (!n) return std::nullopt;
      return live.segment_is_dead(*n);
    };
    co_await sweep(manifest::seg_prefix(), report_.segments, judge);
  }

  asio::awaitable<void> sweep_marks(const commit::liveness<Rules>& live) {
    auto judge = [&](const std::string& key) -> std::optional<bool> {
      const auto n = manifest::parse_ckpt_key(key);
      if (!n) return std::nullopt;
      return live.mark_is_dead(*n);
    };
    co_await sweep(manifest::ckpt_prefix(), report_.marks, judge);
  }

  // ---- tombstones ------------------------------------------------------------------------------------------------

  // Versions n with the same n / buried_at_once are buried at once, and no higher ones before all of them are.
  static constexpr std::uint64_t buried_at_once = 16;

  // Dead versions that still have bytes, descending. They lie right below oldest_version, because they are buried in ascending order:
  // a page with nothing but tombstones ends the search, so its cost does not grow with history.
  asio::awaitable<std::vector<object_info>> dead_versions(const commit::liveness<Rules>& live) {
    constexpr std::size_t tombstones_in_a_row = 4 * buried_at_once;
    std::vector<object_info> found;
    if (store_.capabilities().ordered_list) {
      std::string after = manifest::log_key(live.newest().summary.oldest_version);
      for (bool more = true; more;) {
        const list_page page = co_await list(manifest::log_prefix(), after);
        bool any = false;
        for (const object_info& o : page.objects()) {
          const std::optional<std::uint64_t> number = manifest::parse_log_key(o.key());
          if (!number) ++report_.unknown_keys;
          if (!number || !live.version_is_dead(*number) || o.size() == 0) continue;
          any = true;
          found.push_back(o);
        }
        more = page.more() && any;
        if (more) after = page.objects().back().key();
      }
      co_return found;
    }
    std::size_t buried = 0;
    for (std::uint64_t n = live.newest().summary.oldest_version; n-- > 1 && buried < tombstones_in_a_row;) {
      if (!live.version_is_dead(n)) continue;
      const std::string key = manifest::log_key(n);
      auto look = [&] { return store_.head(key); };
      const result<std::optional<object_info>> there = co_await patiently(clock_, random_, limit_, look);
      if (!there) throw error(in_context(there.error(), "reclaiming"));
      if (!there->has_value()) continue;  // somebody deleted it: reading the log will say so
      if ((*there)->size() == 0) {
        ++buried;
      } else {
        buried = 0;
        found.emplace_back(key, (*there)->size());
      }
    }
    co_return found;
  }

  class bury_one {
   public:
    explicit bury_one(std::shared_ptr<reclaim_run> r, std::vector<object_info> v) : run(std::move(r)), versions(std::move(v)) {}
    asio::awaitable<bool> operator()(std::size_t i) { return bury(run, versions[i]); }
    std::shared_ptr<reclaim_run> run;
    std::vector<object_info> versions;
  };

  static asio::awaitable<bool> bury(std::shared_ptr<reclaim_run> self, object_info version) {
    co_await self->pace(1);
    const std::string key = version.key();
    std::optional<failure> why;
    if constexpr (Rules::tombstones) {
      const const_buffers nothing{const_bytes()};
      const put_condition always;
      auto write = [&] { return self->store_.put(key, nothing, always); };
      const result<put_outcome> put = co_await patiently(self->clock_, self->random_, self->limit_, write);
      if (!put) why = put.error();
    } else {
      const std::vector<std::string> keys{key};
      auto remove = [&] { return self->store_.remove(keys); };
      const result<std::vector<remove_failure>> removed = co_await patiently(self->clock_, self->random_, self->limit_, remove);
      if (!removed) why = removed.error();
    }
    if (why) {
      self->failed(remove_failure(key, *why));
      self->all_buried_ = false;
      co_return false;
    }
    ++self->report_.versions.keys;
    self->report_.versions.bytes += version.size();
    co_return true;
  }

  asio::awaitable<void> bury_versions(const commit::liveness<Rules>& live) {
    std::vector<object_info> versions = co_await dead_versions(live);
    if (options_.dry_run()) {
      for (const object_info& v : versions) {
        ++report_.versions.keys;
        report_.versions.bytes += v.size();
      }
      co_return;
    }
    const auto group_of = [](const object_info& v) { return manifest::parse_log_key(v.key()).value_or(0) / buried_at_once; };
    while (!versions.empty() && all_buried_) {  // where one of a group could not be buried, what is above stays, so that the next run finds it
      std::vector<object_info> group;
      while (!versions.empty() && (group.empty() || group_of(versions.back()) == group_of(group.back()))) {
        group.push_back(std::move(versions.back()));
        versions.pop_back();
      }
      const std::size_t n = group.size();
      bury_one job(this->shared_from_this(), std::move(group));
      co_await parallel_for(n, options_.keys_per_second() > 0 ? 1 : n, job);
    }
  }

  // ---- uploads ---------------------------------------------------------------------------------------------------

  asio::awaitable<void> abort_uploads(const commit::liveness<Rules>& live) {
    const std::string prefix = manifest::tgb_prefix();
    auto read = [&] { return store_.list_uploads(prefix); };
    const result<std::vector<open_upload>> uploads = co_await patiently(clock_, random_, limit_, read);
    if (!uploads) {
      const errc code = uploads.error().code();  // no part of the stream is at stake, and not every server can tell
      if (code != errc::not_supported && code != errc::rejected) failed(remove_failure(prefix, uploads.error()));
      co_return;
    }
    for (const open_upload& u : *uploads) {
      const std::optional<manifest::batch_name> n = manifest::parse_tgb_key(u.key);
      if (!n) {
        ++report_.unknown_keys;
        continue;
      }
      if (!live.upload_is_dead(*n)) continue;
      if (!options_.dry_run()) {
        co_await pace(1);
        auto abort = [&] { return store_.abort_upload(u); };
        const result<void> aborted = co_await patiently(clock_, random_, limit_, abort);
        if (!aborted) {
          failed(remove_failure(u.key, aborted.error()));
          continue;
        }
      }
      ++report_.uploads;
    }
  }

  S store_;
  reclaim_options options_;
  manifest::stream_info stream_;
  any_clock clock_;
  random64 random_;
  duration limit_;
  reclaim_report report_;
  std::uint64_t known_ = 0;
  time_point pace_{};
  std::vector<doomed> doomed_;
  bool all_buried_ = true;
};

}  // namespace detail

/// Gives back what no group needs: commits the trim step (the oldest checkpoint that any group retains) and seals the log if enough of it
/// is not, then removes batches below the trim step (except the last of each producer, which holds its state), objects of fenced
/// incarnations that were never committed, index segments that nothing names, marks and announcements that are done with, aborts
/// multipart uploads of fenced incarnations where the store can list them, and replaces dead versions by empty objects, which keep their
/// numbers taken. Without a group nothing is trimmed. Keys that it does not know are left alone. No clock decides anything.
///
/// Anyone may run it, any number of times, concurrently, and be killed: what is left is found by the next run. A bucket with versioning
/// keeps the removed bytes until a lifecycle rule expires noncurrent versions; that rule must not expire current ones.
/// Requests: LIST + GET of the tail, one conditional PUT when there is something to trim, GETs of segment heads and of versions that are
/// not sealed, LISTs, one removal per 1000 keys, one PUT per buried version. Memory grows with producers, segments and dead keys.
/// Errors: stream_missing; damaged (the log is not whole: nothing was removed); undecided; those of the store. Keys that could not be
/// removed are no error but part of the report. Cancellation: as if killed.
/// `Rules`: see commit::rules; leave it alone.
template <class Codecs = manifest::builtin_codecs, class Rules = commit::rules, object_store Store>
asio::awaitable<reclaim_report> reclaim(Store store, reclaim_options options) {
  auto run = std::make_shared<detail::reclaim_run<Store, Codecs, Rules>>(std::move(store), std::move(options));
  co_return co_await run->run();
}

}  // namespace batchweave
