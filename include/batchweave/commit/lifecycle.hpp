// What ages a stream, as pure decisions: groups and checkpoints, trimming, sealing, retiring a producer.
#pragma once

#include <batchweave/base/error.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/commit/protocol.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/manifest/stream_info.hpp>
#include <batchweave/manifest/version.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::commit {

/// A change of the stream that is not a batch. `landed(newest)`: its effect is there, whoever's write brought it, so nothing is left to
/// do; decided from state that is carried forward, so the answer is right after an ambiguous PUT and even when the version that brought it
/// was buried since (CW-04). `propose(newest, nonce, unix_ns)`: the version that brings it; an error when it cannot be.
/// `what()`: for messages.
template <class C>
concept change = requires(C& c, const manifest::version& newest, id128 nonce, std::int64_t unix_ns) {
  { c.landed(newest) } -> std::same_as<bool>;
  { c.propose(newest, nonce, unix_ns) } -> std::same_as<result<manifest::version>>;
  { c.what() } -> std::convertible_to<std::string>;
};

template <class Summary>
auto find_group(Summary& s, std::string_view name) -> decltype(&s.groups.front()) {
  for (auto& g : s.groups) {
    if (g.name == name) return &g;
  }
  return nullptr;
}

inline const manifest::checkpoint_entry* find_checkpoint(const manifest::group_entry& g, std::string_view id) {
  for (const auto& c : g.retained) {
    if (c.id == id) return &c;
  }
  return nullptr;
}

/// How far the stream may be trimmed: the oldest checkpoint that any group retains (I6). No group, or one that has no checkpoint yet:
/// not at all.
inline std::uint64_t trim_target(const manifest::summary& s) {
  std::optional<std::uint64_t> lowest;
  for (const manifest::group_entry& g : s.groups) {
    if (g.retained.empty()) return s.trim_step;
    const std::uint64_t oldest = g.retained.front().step;
    if (!lowest || oldest < *lowest) lowest = oldest;
  }
  return std::max(s.trim_step, lowest.value_or(s.trim_step));
}

namespace detail {
inline failure group_is_gone(const std::string& group) {
  return failure(errc::fenced, "group " + group + " is not on the stream; it left, join again").with_fate(fate::did_not_happen);
}
inline manifest::event group_event(manifest::event_kind kind, const std::string& group, const std::string& checkpoint, std::uint64_t step) {
  manifest::event e;
  e.kind = kind;
  e.group = group;
  e.checkpoint = checkpoint;
  e.step = step;
  return e;
}
inline void retain_newest(manifest::group_entry& g) {
  const std::size_t keep = std::max<std::uint32_t>(1, g.keep);
  if (g.retained.size() > keep) g.retained.erase(g.retained.begin(), g.retained.end() - static_cast<std::ptrdiff_t>(keep));
}
}  // namespace detail

/// A group is on the stream and holds it. Another world size starts a new generation, so ranks of the old size can complete nothing.
class join_group {
 public:
  join_group(std::string group, std::uint32_t world_size, std::uint32_t keep)
      : group_(std::move(group)), world_size_(world_size), keep_(std::max<std::uint32_t>(1, keep)) {}
  std::string what() const { return "joining group " + group_; }

  bool landed(const manifest::version& newest) const {
    const manifest::group_entry* g = find_group(newest.summary, group_);
    return g && g->world_size == world_size_ && g->keep == keep_;
  }
  result<manifest::version> propose(const manifest::version& newest, id128 nonce, std::int64_t unix_ns) const {
    manifest::version v = detail::successor(newest, nonce, unix_ns);
    manifest::group_entry* g = find_group(v.summary, group_);
    if (!g) {
      manifest::group_entry fresh;
      fresh.name = group_;
      fresh.generation = v.number;
      v.summary.groups.push_back(std::move(fresh));
      g = &v.summary.groups.back();
    } else if (g->world_size != world_size_) {
      g->generation = v.number;
    }
    g->world_size = world_size_;
    g->keep = keep_;
    detail::retain_newest(*g);
    v.events.push_back(detail::group_event(manifest::event_kind::group_joined, group_, std::string(), 0));
    return v;
  }

 private:
  std::string group_;
  std::uint32_t world_size_, keep_;
};

/// A checkpoint of a group is complete; the group retains those with the `keep` highest steps. A checkpoint that is older than all of
/// them when it completes is not retained, and that is no error.
class complete_checkpoint {
 public:
  /// `generation`: of the group as the caller knows it.
  complete_checkpoint(std::string group, std::uint64_t generation, std::string id, std::uint64_t step)
      : group_(std::move(group)), id_(std::move(id)), generation_(generation), step_(step) {}
  std::string what() const { return "completing checkpoint " + id_ + " of group " + group_ + " at step " + std::to_string(step_); }

  bool landed(const manifest::version& newest) const {
    const manifest::group_entry* g = find_group(newest.summary, group_);
    if (!g) return false;
    const manifest::checkpoint_entry* c = find_checkpoint(*g, id_);
    if (c) return c->step == step_;
    return g->generation == generation_ && g->retained.size() >= std::max<std::uint32_t>(1, g->keep) && step_ < g->retained.front().step;
  }
  result<manifest::version> propose(const manifest::version& newest, id128 nonce, std::int64_t unix_ns) const {
    const manifest::group_entry* known = find_group(newest.summary, group_);
    if (!known) return detail::group_is_gone(group_);
    const auto refused = [](errc code, std::string why) { return failure(code, std::move(why)).with_fate(fate::did_not_happen); };
    if (known->generation != generation_) {
      return refused(errc::fenced, "group " + group_ + " was rolled back or resized (generation " + std::to_string(known->generation) +
                                       ") since it was opened here (generation " + std::to_string(generation_) + "); open it again");
    }
    if (const manifest::checkpoint_entry* c = find_checkpoint(*known, id_)) {
      return refused(errc::invalid_argument, "group " + group_ + " retains a checkpoint " + id_ + " at step " + std::to_string(c->step) +
                                                 "; use another name for the one at step " + std::to_string(step_));
    }
    if (step_ > newest.summary.next_step) {
      return refused(errc::beyond_end, "step " + std::to_string(step_) + " is beyond the stream's " +
                                           std::to_string(newest.summary.next_step) + " steps");
    }
    if (step_ < newest.summary.trim_step) {
      return refused(errc::reclaimed, "step " + std::to_string(step_) + " was reclaimed, the oldest step left is " +
                                          std::to_string(newest.summary.trim_step) + "; a checkpoint there could not be restored");
    }
    manifest::version v = detail::successor(newest, nonce, unix_ns);
    manifest::group_entry* g = find_group(v.summary, group_);
    manifest::checkpoint_entry c;
    c.id = id_;
    c.step = step_;
    const auto after = std::upper_bound(g->retained.begin(), g->retained.end(), step_,
                                        [](std::uint64_t s, const manifest::checkpoint_entry& e) { return s < e.step; });
    g->retained.insert(after, std::move(c));
    detail::retain_newest(*g);
    v.events.push_back(detail::group_event(manifest::event_kind::checkpoint_complete, group_, id_, step_));
    return v;
  }

 private:
  std::string group_, id_;
  std::uint64_t generation_, step_;
};

/// A group goes back to one of its retained checkpoints, or to none: those after it are forgotten, and a new generation begins, in which
/// nothing counts that ranks of the older one still do.
class roll_back {
 public:
  /// Without an id: to the newest retained checkpoint; when there is none, to the state before the first.
  explicit roll_back(std::string group, std::optional<std::string> id = std::nullopt) : group_(std::move(group)), id_(std::move(id)) {}
  std::string what() const { return "rolling back group " + group_ + (id_ ? " to checkpoint " + *id_ : std::string()); }

  bool landed(const manifest::version& newest) const {
    const manifest::group_entry* g = find_group(newest.summary, group_);
    if (!g || std::find(tried_.begin(), tried_.end(), g->generation) == tried_.end()) return false;
    return !id_ || (!g->retained.empty() && g->retained.back().id == *id_);
  }
  result<manifest::version> propose(const manifest::version& newest, id128 nonce, std::int64_t unix_ns) {
    manifest::version v = detail::successor(newest, nonce, unix_ns);
    manifest::group_entry* g = find_group(v.summary, group_);
    if (!g) return detail::group_is_gone(group_);
    const manifest::checkpoint_entry* target = g->retained.empty() ? nullptr : &g->retained.back();
    if (id_) {
      target = find_checkpoint(*g, *id_);
      if (!target) {
        std::string there;
        for (const auto& c : g->retained) there += (there.empty() ? "" : ", ") + c.id;
        return failure(errc::invalid_argument, "group " + group_ + " does not retain checkpoint " + *id_ + "; it retains " +
                                                   (there.empty() ? std::string("none") : there))
            .with_fate(fate::did_not_happen);
      }
    }
    manifest::event e = detail::group_event(manifest::event_kind::rolled_back, group_, target ? target->id : std::string(),
                                            target ? target->step : 0);
    if (target) g->retained.erase(g->retained.begin() + (target - g->retained.data()) + 1, g->retained.end());
    g->generation = v.number;
    v.events.push_back(std::move(e));
    tried_.push_back(v.number);
    return v;
  }

 private:
  std::string group_;
  std::optional<std::string> id_;
  std::vector<std::uint64_t> tried_;
};

/// A group no longer retains one checkpoint.
class forget_checkpoint {
 public:
  forget_checkpoint(std::string group, std::string id) : group_(std::move(group)), id_(std::move(id)) {}
  std::string what() const { return "forgetting checkpoint " + id_ + " of group " + group_; }

  bool landed(const manifest::version& newest) const {
    const manifest::group_entry* g = find_group(newest.summary, group_);
    return !g || !find_checkpoint(*g, id_);
  }
  result<manifest::version> propose(const manifest::version& newest, id128 nonce, std::int64_t unix_ns) const {
    manifest::version v = detail::successor(newest, nonce, unix_ns);
    manifest::group_entry* g = find_group(v.summary, group_);
    if (!g) return detail::group_is_gone(group_);
    const auto at = std::find_if(g->retained.begin(), g->retained.end(), [&](const auto& c) { return c.id == id_; });
    if (at == g->retained.end()) return failure(errc::bug, "checkpoint " + id_ + " is not there");
    v.events.push_back(detail::group_event(manifest::event_kind::checkpoint_forgotten, group_, id_, at->step));
    g->retained.erase(at);
    return v;
  }

 private:
  std::string group_, id_;
};

/// A group is done with the stream and holds nothing any more.
class leave_group {
 public:
  explicit leave_group(std::string group) : group_(std::move(group)) {}
  std::string what() const { return "leaving as group " + group_; }

  bool landed(const manifest::version& newest) const { return !find_group(newest.summary, group_); }
  result<manifest::version> propose(const manifest::version& newest, id128 nonce, std::int64_t unix_ns) const {
    manifest::version v = detail::successor(newest, nonce, unix_ns);
    std::erase_if(v.summary.groups, [&](const manifest::group_entry& g) { return g.name == group_; });
    v.events.push_back(detail::group_event(manifest::event_kind::group_left, group_, std::string(), 0));
    return v;
  }

 private:
  std::string group_;
};

/// Steps below what every group retains are given up. Computed from the version that it follows, so a checkpoint that completes or a
/// group that joins at the same moment is heeded.
class trim {
 public:
  trim() {}
  std::string what() const { return "trimming"; }

  bool landed(const manifest::version& newest) const { return trim_target(newest.summary) <= newest.summary.trim_step; }
  result<manifest::version> propose(const manifest::version& newest, id128 nonce, std::int64_t unix_ns) const {
    manifest::version v = detail::successor(newest, nonce, unix_ns);
    manifest::summary& s = v.summary;
    s.trim_step = trim_target(newest.summary);
    std::erase_if(s.segments, [&](const manifest::segment_ref& g) { return g.end <= s.trim_step; });
    manifest::event e;
    e.kind = manifest::event_kind::trimmed;
    e.step = s.trim_step;
    v.events.push_back(std::move(e));
    return v;
  }
};

/// The entries of all steps below `made.end` lie in segments; `made` takes the place of those it covers. Versions below `next_version`
/// are dead then: whoever needs their entries finds them there.
class seal_steps {
 public:
  seal_steps(manifest::segment_ref made, std::uint64_t next_version) : made_(std::move(made)), next_version_(next_version) {}
  std::string what() const { return "sealing steps " + std::to_string(made_.first) + " to " + std::to_string(made_.end); }

  bool landed(const manifest::version& newest) const { return newest.summary.sealed_step >= made_.end; }
  /// Error: object_changed when another sealer was faster and the segments no longer fit; nothing is lost, plan anew.
  result<manifest::version> propose(const manifest::version& newest, id128 nonce, std::int64_t unix_ns) const {
    manifest::version v = detail::successor(newest, nonce, unix_ns);
    manifest::summary& s = v.summary;
    // One that a trim cut through is covered all the same: what lies below `made` is given up.
    const auto overlaps = [&](const manifest::segment_ref& g) { return g.end > made_.first && g.first < made_.first && made_.first > s.trim_step; };
    if (made_.first > std::max(s.sealed_step, s.trim_step) || made_.end > s.next_step ||
        std::any_of(s.segments.begin(), s.segments.end(), overlaps)) {
      return failure(errc::object_changed, "steps were sealed by somebody else meanwhile").with_fate(fate::did_not_happen);
    }
    std::erase_if(s.segments, [&](const manifest::segment_ref& g) { return g.end > made_.first; });
    if (made_.end > s.trim_step) s.segments.push_back(made_);
    s.sealed_step = made_.end;
    s.oldest_version = std::max(s.oldest_version, next_version_);
    manifest::event e;
    e.kind = manifest::event_kind::sealed;
    e.step = s.sealed_step;
    v.events.push_back(std::move(e));
    return v;
  }

 private:
  manifest::segment_ref made_;
  std::uint64_t next_version_;
};

/// A producer is gone for good: its incarnation is fenced, its state is given up, and the stream no longer waits for it. Its epoch and
/// next_seq stay, so that no key is ever used twice. When all others have finished, the stream closes.
class retire_producer {
 public:
  retire_producer(manifest::stream_info stream, std::string producer) : stream_(std::move(stream)), producer_(std::move(producer)) {}
  std::string what() const { return "retiring producer " + producer_; }

  bool landed(const manifest::version& newest) const {
    const manifest::producer_entry* p = find_producer(newest.summary, producer_);
    return p && p->retired;
  }
  result<manifest::version> propose(const manifest::version& newest, id128 nonce, std::int64_t unix_ns) const {
    if (!find_producer(newest.summary, producer_)) {
      return failure(errc::invalid_argument, "the stream knows no producer " + producer_).with_fate(fate::did_not_happen);
    }
    manifest::version v = detail::successor(newest, nonce, unix_ns);
    manifest::producer_entry& p = detail::entry_of(v.summary, producer_);
    ++p.epoch;
    p.owner = nonce;
    p.retired = true;
    p.last_version = v.number;
    p.last_tgb = manifest::tgb_reference();
    manifest::event e;
    e.kind = manifest::event_kind::producer_retired;
    e.producer = producer_;
    e.epoch = p.epoch;
    e.owner = nonce;
    v.events.push_back(std::move(e));
    detail::close_when_over(v, stream_);
    return v;
  }

 private:
  manifest::stream_info stream_;
  std::string producer_;
};

static_assert(change<join_group> && change<complete_checkpoint> && change<roll_back> && change<forget_checkpoint> &&
              change<leave_group> && change<trim> && change<seal_steps> && change<retire_producer>);

}  // namespace batchweave::commit
