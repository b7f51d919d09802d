// The role that ties a training run's checkpoints to the stream: what a group retains is what reclaim must leave alone.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/patient_options.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/as_result.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/change.hpp>
#include <batchweave/commit/lifecycle.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/cursor.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/store/store.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace batchweave {

/// Settings of one group's checkpoints.
class checkpoint_options : public patient_options<checkpoint_options> {
 public:
  /// `group`: the training run or evaluator, 1 to 128 characters of [A-Za-z0-9._-].
  explicit checkpoint_options(std::string group) : group_(std::move(group)) {}

  /// How many ranks mark a checkpoint before it is complete. 0 (default): nobody marks, the trainer has a barrier of its own and calls
  /// complete(). Another number than the group had fences the ranks of the old size.
  checkpoint_options& world_size(std::uint32_t n) { world_ = n; return *this; }
  /// Checkpoints that are retained: those with the highest steps. At least 1; default 2.
  checkpoint_options& keep(std::uint32_t n) { keep_ = std::max<std::uint32_t>(1, n); return *this; }
  /// Open only in this generation of the group: what the process that called resume() or roll_back() got from generation() and told the
  /// others. So a process that was stalled while it opened cannot join a run that went on without it. Default: whatever it is now.
  checkpoint_options& generation(std::uint64_t g) { generation_ = g; return *this; }

  const std::string& group() const noexcept { return group_; }
  std::uint32_t world_size() const noexcept { return world_; }
  std::uint32_t keep() const noexcept { return keep_; }
  const std::optional<std::uint64_t>& generation() const noexcept { return generation_; }

 private:
  std::string group_;
  std::uint32_t world_ = 0;
  std::uint32_t keep_ = 2;
  std::optional<std::uint64_t> generation_;
};
static_assert(!std::is_aggregate_v<checkpoint_options>);

/// A complete checkpoint that its group retains: every step from its cursor on is still there.
class retained_checkpoint {
 public:
  retained_checkpoint() = default;
  retained_checkpoint(std::string id, batchweave::cursor at) : id_(std::move(id)), cursor_(at) {}
  const std::string& id() const noexcept { return id_; }
  /// Where consumers go on.
  const batchweave::cursor& cursor() const noexcept { return cursor_; }
  std::uint64_t step() const noexcept { return cursor_.next_step(); }
  friend bool operator==(const retained_checkpoint&, const retained_checkpoint&) = default;

 private:
  std::string id_;
  batchweave::cursor cursor_;
};

/// A handle to one group on a stream; made by open_checkpoints(). Any process may hold one: one rank, all ranks, or the trainer's
/// coordinator. Nothing runs in the background.
///
/// The life of a run. A restart: ONE process calls resume() or roll_back(), the others open after it (behind the trainer's barrier), so
/// that all are of the same generation. What a killed run of an older generation still does, should it wake up, counts for nothing: its
/// marks lie apart from the newer ones, and its attempt to complete a checkpoint is refused as fenced.
/// Then every so often: all ranks write their shards and call mark(), or the coordinator calls complete() when all have.
///
/// Thread safety: distinct objects are independent; await one operation of an object at a time, from any thread. Every operation throws
/// batchweave::error. Every one may be repeated after a failure or cancellation; it takes effect once.
template <object_store Store, class Codecs = manifest::builtin_codecs>
class checkpoints {
 public:
  checkpoints() = default;

  /// This rank's shard of checkpoint `id` is durable; all later steps of the rank start at `at`. True when the checkpoint is complete,
  /// which the last rank sees, and with equal timing several. Requests: one PUT, one LIST per 1000 ranks; for the last rank the commit.
  /// Errors: invalid_argument (no world size, rank, id, or another rank marked `id` at another step: names both), stream_mismatch, fenced
  /// (rolled back or resized since; only the last rank notices), reclaimed (`at` is below the trim step), those of the store.
  asio::awaitable<bool> mark(std::string id, batchweave::cursor at, std::uint32_t rank) {
    return core::mark(core_, std::move(id), at, rank);
  }

  /// Every shard of checkpoint `id` is durable: said once, by whoever knows. Requests: LIST, GET, conditional PUT.
  /// Errors: as for mark().
  asio::awaitable<void> complete(std::string id, batchweave::cursor at) { return core::complete(core_, std::move(id), at); }

  /// What the group retains, ascending by step. Completes first what all ranks have marked, in case the last one was killed in between.
  /// Requests: LIST of the marks, LIST + GET of the tail. Errors: fenced (the group left), those of the store.
  asio::awaitable<std::vector<retained_checkpoint>> retained() { return core::retained(core_); }

  /// Goes back to the newest retained checkpoint and starts a new generation; nullopt when there is none: start at the first step.
  /// For ONE process per restart. Completes first what all ranks have marked. Errors: fenced (the group left), those of the store.
  asio::awaitable<std::optional<retained_checkpoint>> resume() { return core::resume(core_, std::nullopt); }

  /// As resume(), to the retained checkpoint `id`; those after it are forgotten. Error: invalid_argument that lists what is retained.
  asio::awaitable<retained_checkpoint> roll_back(std::string id) { return core::roll_back(core_, std::move(id)); }

  /// The group retains `id` no longer, if it did.
  asio::awaitable<void> forget(std::string id) { return core::forget(core_, std::move(id)); }

  /// The group is done with the stream: it holds nothing, and its marks may go. Fences its ranks.
  asio::awaitable<void> leave() { return core::leave(core_); }

  /// The version at which the group joined, was resized or last rolled back.
  std::uint64_t generation() const noexcept { return core_->generation; }
  const manifest::stream_info& stream() const noexcept { return core_->stream; }

 private:
  template <class C, object_store S>
  friend asio::awaitable<checkpoints<S, C>> open_checkpoints(S, checkpoint_options);

  struct core {
    core(Store s, checkpoint_options o, manifest::stream_info i)
        : store(std::move(s)), options(std::move(o)), stream(std::move(i)), clock(options.clock()), random(options.random()) {}
    using self_ptr = std::shared_ptr<core>;

    Store store;
    checkpoint_options options;
    manifest::stream_info stream;
    any_clock clock;
    random64 random;
    std::uint64_t generation = 0;

    std::string who() const { return "group " + options.group() + ": "; }

    template <commit::change Change>
    asio::awaitable<commit::tail_view> commit(Change& wanted) {
      result<commit::tail_view> done =
          co_await commit::commit_change<Codecs>(store, stream, clock, random, options.give_up_after(), wanted);
      if (!done) throw error(in_context(done.error(), store.name()));
      co_return std::move(*done);
    }

    failure not_of_generation(const manifest::group_entry* there) const {
      return failure(errc::fenced, "group " + options.group() + " is " +
                                       (there ? "in generation " + std::to_string(there->generation) : std::string("not on the stream")) +
                                       ", this process belongs to generation " + std::to_string(*options.generation()) + "; it must stop")
          .with_fate(fate::did_not_happen);
    }

    asio::awaitable<commit::tail_view> newest() {
      result<commit::tail_view> tail = co_await commit::await_tail<Codecs>(store, stream, clock, random, options.give_up_after(), 0);
      if (!tail) throw error(in_context(tail.error(), "group " + options.group()));
      co_return std::move(*tail);
    }

    void check(const std::string& id, const batchweave::cursor& at) const {
      manifest::check_name("checkpoint id", id).value();
      if (at.stream() == stream.id) return;
      throw error(failure(errc::stream_mismatch, who() + "checkpoint " + id + ": the cursor belongs to stream " + at.stream().to_string() +
                                                     ", but " + store.name() + " holds stream " + stream.id.to_string())
                      .with_fate(fate::did_not_happen));
    }

    // Ranks that have marked, by checkpoint and step, of one generation; `id` empty: every checkpoint.
    using marks = std::map<std::pair<std::string, std::uint64_t>, std::set<std::uint32_t>>;
    asio::awaitable<marks> list_marks(std::string id, std::uint64_t of_generation) {
      marks found;
      std::string prefix = manifest::ckpt_prefix(options.group());
      if (!id.empty()) prefix += id + "@" + std::to_string(of_generation) + "-";
      std::string after;
      for (bool more = true; more;) {
        auto read = [&] { return store.list(prefix, after, 1000); };
        result<list_page> page = co_await patiently(clock, random, options.give_up_after(), read);
        if (!page) throw error(in_context(page.error(), who() + "listing marks"));
        for (const object_info& o : page->objects()) {
          const std::optional<manifest::mark_name> m = manifest::parse_ckpt_key(o.key());
          if (m && m->generation == of_generation) found[{m->checkpoint, m->step}].insert(m->rank);
        }
        more = page->more() && !page->objects().empty();
        if (more) after = page->objects().back().key();
      }
      co_return found;
    }

    static bool all_there(const std::set<std::uint32_t>& ranks, std::uint32_t world) {
      return world != 0 && ranks.size() >= world && *std::next(ranks.begin(), world - 1) == world - 1;
    }

    static asio::awaitable<bool> mark(self_ptr self, std::string id, batchweave::cursor at, std::uint32_t rank) {
      self->check(id, at);
      const std::uint32_t world = self->options.world_size();
      const auto refused = [&](std::string why) {
        return error(failure(errc::invalid_argument, self->who() + "checkpoint " + id + ": " + why).with_fate(fate::did_not_happen));
      };
      if (world == 0) throw refused("the group has no world size, so ranks do not mark; set checkpoint_options::world_size or call complete()");
      if (rank >= world) throw refused("rank " + std::to_string(rank) + " must be below the world size " + std::to_string(world));
      const std::string key = manifest::ckpt_key(self->options.group(), id, self->generation, at.next_step(), rank);
      const std::string text = "rank " + std::to_string(rank) + " of " + std::to_string(world) + " at " + at.to_string() + "\n";
      const put_condition always;
      const const_buffers body{as_bytes(text)};
      auto write = [&] { return self->store.put(key, body, always); };
      result<put_outcome> put = co_await patiently(self->clock, self->random, self->options.give_up_after(), write);
      if (!put) throw error(in_context(put.error(), self->who() + "marking checkpoint " + id));
      const marks found = co_await self->list_marks(id, self->generation);
      for (const auto& [what, ranks] : found) {
        if (what.first != id || what.second == at.next_step()) continue;
        throw refused("rank " + std::to_string(rank) + " is at step " + std::to_string(at.next_step()) + ", but rank " +
                      std::to_string(*ranks.begin()) + " marked it at step " + std::to_string(what.second) +
                      "; all ranks of a checkpoint stand at one step");
      }
      const auto ours = found.find({id, at.next_step()});
      if (ours == found.end() || !all_there(ours->second, world)) co_return false;
      commit::complete_checkpoint wanted(self->options.group(), self->generation, id, at.next_step());
      co_await self->commit(wanted);
      co_return true;
    }

    static asio::awaitable<void> complete(self_ptr self, std::string id, batchweave::cursor at) {
      self->check(id, at);
      commit::complete_checkpoint wanted(self->options.group(), self->generation, id, at.next_step());
      co_await self->commit(wanted);
    }

    // The last rank may have been killed between its mark and the commit: whoever looks next commits for it.
    asio::awaitable<void> complete_marked() {
      const commit::tail_view tail = co_await newest();
      const manifest::group_entry* g = commit::find_group(tail.version->summary, options.group());
      if (!g || g->world_size == 0) co_return;
      const std::uint64_t of_generation = g->generation;
      const std::uint32_t world = g->world_size;
      const marks found = co_await list_marks(std::string(), of_generation);
      std::vector<std::pair<std::uint64_t, std::string>> whole;
      for (const auto& [what, ranks] : found) {
        // Older ones were complete, and were pushed out or forgotten since.
        const bool newer = g->retained.empty() || what.second > g->retained.back().step;
        if (newer && all_there(ranks, world)) whole.emplace_back(what.second, what.first);
      }
      std::sort(whole.begin(), whole.end());
      for (const auto& [step, id] : whole) {
        commit::complete_checkpoint wanted(options.group(), of_generation, id, step);
        if (wanted.landed(*tail.version)) continue;
        result<commit::tail_view> done =
            co_await commit::commit_change<Codecs>(store, stream, clock, random, options.give_up_after(), wanted);
        if (done) continue;
        // Overtaken by a roll-back, by the trim step or by another checkpoint of that name: then it is none.
        const errc code = done.error().code();
        if (code != errc::fenced && code != errc::reclaimed && code != errc::invalid_argument) throw error(done.error());
      }
    }

    std::vector<retained_checkpoint> retained_in(const manifest::version& v) const {
      const manifest::group_entry* g = commit::find_group(v.summary, options.group());
      if (!g) throw error(commit::detail::group_is_gone(options.group()));
      std::vector<retained_checkpoint> all;
      for (const auto& c : g->retained) all.emplace_back(c.id, batchweave::cursor(stream.id, c.step));
      return all;
    }

    static asio::awaitable<std::vector<retained_checkpoint>> retained(self_ptr self) {
      co_await self->complete_marked();
      const commit::tail_view tail = co_await self->newest();
      co_return self->retained_in(*tail.version);
    }

    static asio::awaitable<std::optional<retained_checkpoint>> resume(self_ptr self, std::optional<std::string> id) {
      co_await self->complete_marked();
      commit::roll_back wanted(self->options.group(), std::move(id));
      const commit::tail_view now = co_await self->commit(wanted);
      const manifest::group_entry* g = commit::find_group(now.version->summary, self->options.group());
      self->generation = g->generation;
      const std::vector<retained_checkpoint> left = self->retained_in(*now.version);
      std::optional<retained_checkpoint> newest;
      if (!left.empty()) newest = left.back();
      co_return newest;
    }

    static asio::awaitable<retained_checkpoint> roll_back(self_ptr self, std::string id) {
      std::optional<retained_checkpoint> there = co_await resume(self, std::move(id));
      co_return std::move(*there);
    }

    // Those of `id` and of what came before it: they would complete it again.
    asio::awaitable<void> remove_marks(std::string id) {
      const commit::tail_view tail = co_await newest();
      const manifest::group_entry* g = commit::find_group(tail.version->summary, options.group());
      const manifest::checkpoint_entry* c = g ? commit::find_checkpoint(*g, id) : nullptr;
      if (!c || g->world_size == 0) co_return;
      const std::uint64_t of_generation = g->generation;
      const marks found = co_await list_marks(std::string(), of_generation);
      std::vector<std::string> keys;
      for (const auto& [what, ranks] : found) {
        if (what.second > c->step || !all_there(ranks, g->world_size)) continue;
        for (const std::uint32_t rank : ranks) keys.push_back(manifest::ckpt_key(options.group(), what.first, of_generation, what.second, rank));
      }
      for (std::size_t at = 0; at < keys.size(); at += 1000) {
        const std::vector<std::string> some(keys.begin() + static_cast<std::ptrdiff_t>(at),
                                            keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), at + 1000)));
        auto remove = [&] { return store.remove(some); };
        const result<std::vector<remove_failure>> removed = co_await patiently(clock, random, options.give_up_after(), remove);
        if (!removed) throw error(in_context(removed.error(), "group " + options.group() + ": removing marks of checkpoint " + id));
        if (!removed->empty()) throw error(in_context(removed->front().why(), removed->front().key()));
      }
    }

    static asio::awaitable<void> forget(self_ptr self, std::string id) {
      manifest::check_name("checkpoint id", id).value();
      co_await self->remove_marks(id);
      commit::forget_checkpoint wanted(self->options.group(), std::move(id));
      co_await self->commit(wanted);
    }

    static asio::awaitable<void> leave(self_ptr self) {
      commit::leave_group wanted(self->options.group());
      co_await self->commit(wanted);
    }
  };

  explicit checkpoints(std::shared_ptr<core> c) : core_(std::move(c)) {}

  std::shared_ptr<core> core_;
};

/// Puts `options.group()` on the stream in `store`, or finds it there with the same settings. From then on, and until its first checkpoint
/// is complete, nothing is trimmed; after that nothing at or above the oldest checkpoint that it retains.
/// Requests: GET of the stream description, LIST + GET of the tail, LIST of the group's marks; one conditional PUT when the group is new
/// or its settings differ. Errors: invalid_argument (the name), fenced (not of the generation that was asked for), stream_missing, those of
/// the store. Cancellation: open again.
template <class Codecs = manifest::builtin_codecs, object_store Store>
asio::awaitable<checkpoints<Store, Codecs>> open_checkpoints(Store store, checkpoint_options options) {
  using handle = checkpoints<Store, Codecs>;
  manifest::check_name("group", options.group()).value();
  any_clock clock = options.clock();
  random64 random = options.random();
  auto read = [&] { return commit::read_stream_info<Codecs>(store); };
  result<manifest::stream_info> info = co_await patiently(clock, random, options.give_up_after(), read);
  if (!info) throw error(in_context(info.error(), "opening the checkpoints of group " + options.group()));
  auto core = std::make_shared<typename handle::core>(std::move(store), std::move(options), std::move(*info));
  if (core->options.generation()) {  // before anything is changed: another world size would fence the ranks of the run
    const commit::tail_view newest = co_await core->newest();
    const manifest::group_entry* g = commit::find_group(newest.version->summary, core->options.group());
    if (!g || g->generation != *core->options.generation()) throw error(core->not_of_generation(g));
  }
  co_await core->complete_marked();
  commit::join_group wanted(core->options.group(), core->options.world_size(), core->options.keep());
  const commit::tail_view now = co_await core->commit(wanted);
  const manifest::group_entry* joined = commit::find_group(now.version->summary, core->options.group());
  if (core->options.generation().value_or(joined->generation) != joined->generation) throw error(core->not_of_generation(joined));
  core->generation = joined->generation;
  co_return handle(std::move(core));
}

}  // namespace batchweave
