// One manifest version as a value, and the invariants it must keep.
#pragma once

#include <batchweave/base/error.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/tgb/entry.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace batchweave::manifest {

using tgb_entry = tgb::entry;
using tgb_reference = tgb::reference;
using slice_layout = tgb::slice_layout;

enum class event_kind : std::uint8_t {
  producer_opened,
  producer_finished,
  producer_retired,
  stream_closed,
  checkpoint_complete,
  trimmed,
  sealed,
  group_left,
  group_joined,
  rolled_back,
  checkpoint_forgotten,
};
inline constexpr std::string_view event_names[] = {"producer_opened", "producer_finished", "producer_retired", "stream_closed",
                                                   "checkpoint_complete", "trimmed", "sealed", "group_left", "group_joined",
                                                   "rolled_back", "checkpoint_forgotten"};

/// What a version records besides TGBs. Members that the kind does not use stay empty.
class event {
 public:
  event() {}
  event_kind kind = event_kind::producer_opened;
  std::string producer;
  std::uint64_t epoch = 0;
  id128 owner;
  std::string group;
  std::string checkpoint;
  std::uint64_t step = 0;
  friend bool operator==(const event&, const event&) = default;
};

class producer_entry {
 public:
  producer_entry() {}
  std::string id;
  std::uint64_t epoch = 0;
  id128 owner;                     ///< of the incarnation that opened the epoch
  std::uint64_t next_seq = 0;
  std::uint64_t last_version = 0;  ///< of its last commit
  bool finished = false;
  bool retired = false;
  tgb_reference last_tgb;          ///< the TGB next_seq - 1, whose footer has the state; empty while next_seq is 0
  friend bool operator==(const producer_entry&, const producer_entry&) = default;
};

class checkpoint_entry {
 public:
  checkpoint_entry() {}
  std::string id;
  std::uint64_t step = 0;
  friend bool operator==(const checkpoint_entry&, const checkpoint_entry&) = default;
};

class group_entry {
 public:
  group_entry() {}
  std::string name;
  std::uint32_t world_size = 0;  ///< ranks that mark a checkpoint; 0: the trainer says when it is complete
  std::uint32_t keep = 1;        ///< checkpoints that are retained
  std::uint64_t generation = 0;  ///< the version in which the group joined or last rolled back; older marks and ranks are void
  std::vector<checkpoint_entry> retained;  ///< ascending by step
  friend bool operator==(const group_entry&, const group_entry&) = default;
};

class segment_ref {
 public:
  segment_ref() {}
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  id128 nonce;
  std::uint64_t bytes = 0;  ///< size of the object
  friend bool operator==(const segment_ref&, const segment_ref&) = default;
};

/// The state of the stream after a version. Its size grows with producers and groups, not with history.
class summary {
 public:
  summary() {}
  std::uint64_t next_step = 0;
  std::uint64_t trim_step = 0;
  std::uint64_t oldest_version = 0;
  std::uint64_t sealed_step = 0;
  std::vector<segment_ref> segments;      ///< ascending
  std::vector<producer_entry> producers;  ///< ascending by id
  std::vector<group_entry> groups;
  bool closed = false;
  std::uint64_t final_step = 0;           ///< once closed
  friend bool operator==(const summary&, const summary&) = default;
};

class version {
 public:
  version() {}
  std::uint64_t number = 0;
  id128 stream_id;
  id128 nonce;               ///< of the committer: tells one's own version after an unknown outcome
  std::int64_t unix_ns = 0;  ///< wall clock of the committer; for people, decides nothing
  manifest::summary summary;
  std::uint64_t first_step = 0;  ///< step of entries[0]
  std::vector<tgb_entry> entries;
  std::vector<event> events;
  friend bool operator==(const version&, const version&) = default;
};

/// Every invariant that `v` breaks, in words; empty when it is sound.
inline std::vector<std::string> check(const version& v) {
  std::vector<std::string> wrong;
  const auto demand = [&](bool holds, std::string what) {
    if (!holds) wrong.push_back(std::move(what));
  };
  const auto n = [](std::uint64_t x) { return std::to_string(x); };
  const manifest::summary& s = v.summary;

  demand(v.number > 0, "the version number is 0");
  demand(s.oldest_version <= v.number, "oldest_version " + n(s.oldest_version) + " is above the version " + n(v.number));
  demand(v.first_step <= s.next_step && s.next_step - v.first_step == v.entries.size(),
         "first_step " + n(v.first_step) + " plus " + n(v.entries.size()) + " entries is not next_step " + n(s.next_step));
  demand(s.trim_step <= s.next_step, "trim_step " + n(s.trim_step) + " is above next_step " + n(s.next_step));
  demand(s.sealed_step <= s.next_step, "sealed_step " + n(s.sealed_step) + " is above next_step " + n(s.next_step));
  demand(!s.closed || s.final_step == s.next_step, "closed at " + n(s.final_step) + " but next_step is " + n(s.next_step));

  for (std::size_t i = 0; i < s.segments.size(); ++i) {
    const segment_ref& g = s.segments[i];
    demand(g.first < g.end && g.end <= s.sealed_step, "segment " + n(i) + " is empty or beyond sealed_step");
    demand(i == 0 || s.segments[i - 1].end <= g.first, "segments " + n(i - 1) + " and " + n(i) + " overlap");
  }
  for (std::size_t i = 0; i < s.producers.size(); ++i) {
    const producer_entry& p = s.producers[i];
    if (const auto named = check_name("producer id", p.id); !named) demand(false, named.error().what());
    demand(i == 0 || s.producers[i - 1].id < p.id, "producer '" + p.id + "' is out of order or doubled");
    demand(p.last_version <= v.number, "producer '" + p.id + "' committed in the future");
    demand(p.last_tgb.footer_offset <= p.last_tgb.bytes, "producer '" + p.id + "': the last footer lies outside its object");
    demand(p.last_tgb.producer.empty() || (p.last_tgb.producer == p.id && p.last_tgb.seq < p.next_seq && p.last_tgb.epoch <= p.epoch),
           "producer '" + p.id + "': the last TGB is not one of its own");
  }
  std::set<std::string_view> groups;
  for (const group_entry& g : s.groups) {
    if (const auto named = check_name("group", g.name); !named) demand(false, named.error().what());
    demand(groups.insert(g.name).second, "group '" + g.name + "' is doubled");
    demand(std::is_sorted(g.retained.begin(), g.retained.end(), [](const auto& a, const auto& b) { return a.step < b.step; }),
           "group '" + g.name + "': the retained checkpoints are out of order");
    for (const checkpoint_entry& c : g.retained) {
      demand(c.step <= s.next_step, "group '" + g.name + "': checkpoint '" + c.id + "' is beyond next_step");
      demand(c.step >= s.trim_step, "group '" + g.name + "': checkpoint '" + c.id + "' is below trim_step");  // I6
    }
  }
  for (std::size_t i = 0; i < v.entries.size(); ++i) {
    const tgb_entry& e = v.entries[i];
    const std::string who = "entry " + n(i);
    const auto at = std::lower_bound(s.producers.begin(), s.producers.end(), e.producer,
                                     [](const producer_entry& p, const std::string& id) { return p.id < id; });
    const bool known = at != s.producers.end() && at->id == e.producer;
    demand(known, who + ": unknown producer '" + e.producer + "'");
    demand(!known || (e.seq < at->next_seq && e.epoch <= at->epoch), who + ": its seq or epoch is beyond the producer's");
    demand(e.parts >= 1, who + ": no object");
    demand(e.footer_offset <= e.bytes, who + ": the footer lies outside the object");
    if (const auto sound = e.layout.check(); !sound) demand(false, who + ": " + sound.error().what());
    else demand(e.layout.data_end() <= e.footer_offset || e.layout.count == 0, who + ": the slices reach into the footer");
  }
  return wrong;
}

/// check() as a result. Error: damaged, naming the first broken invariant and how many there are.
inline result<void> validate(const version& v) {
  const std::vector<std::string> wrong = check(v);
  if (wrong.empty()) return {};
  return failure(errc::damaged, "manifest version " + std::to_string(v.number) + ": " + wrong.front() +
                                    (wrong.size() > 1 ? " (and " + std::to_string(wrong.size() - 1) + " more)" : ""));
}

}  // namespace batchweave::manifest
