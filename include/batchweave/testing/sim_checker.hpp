// The reference model of a stream: is told of every write, removal, acknowledgement and delivery, and says which invariant broke.
#pragma once

#include <batchweave/base/checksum.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/manifest/stream_info.hpp>
#include <batchweave/slice.hpp>
#include <batchweave/testing/sim_result.hpp>
#include <batchweave/testing/sim_store.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace batchweave::testing {

/// Knows nothing of how the library works: it decodes what is written and holds it against I1 to I9 of the protocol. The first violation
/// stays. Not thread safe.
class sim_checker {
 public:
  /// `slice_bytes`: the least that a slice holds.
  explicit sim_checker(manifest::stream_info stream, std::size_t slice_bytes = 0) : stream_(std::move(stream)), slice_bytes_(slice_bytes) {}

  const std::optional<std::string>& violation() const noexcept { return violation_; }
  void violated(std::string what) {
    if (!violation_) violation_ = std::move(what);
  }

  // ---- what a batch holds: a pure function, so that every reader can tell right bytes from wrong ones --------------------------------

  /// Bytes of slice `k` of the batch that holds item `item` of `producer`'s input, published by incarnation `process`.
  std::string content(std::string_view producer, std::uint64_t item, std::uint32_t process, std::uint32_t k) const {
    std::string text = std::string(producer) + "/" + std::to_string(item) + "/" + std::to_string(process) + "/" + std::to_string(k) + "/";
    random64 r(item * 1000003 + process * 101 + k);
    text.resize(std::max(slice_bytes_, text.size()) + r() % 24, static_cast<char>('a' + r() % 26));
    return text;
  }
  static std::string state_after(std::uint64_t item, std::uint32_t process) {
    return std::to_string(item + 1) + " " + std::to_string(process);
  }

  // ---- what producers say -------------------------------------------------------------------------------------------------------------

  /// An incarnation is open: it may go on from `next_seq` with `state`.
  void opened(const std::string& producer, std::uint64_t epoch, std::uint64_t next_seq, std::string_view state) {
    if (over()) return;
    const auto at = opened_.find({producer, epoch});
    if (at == opened_.end()) return violated("I4: producer " + producer + " is open with epoch " + n(epoch) + ", which the log never gave it");
    if (at->second != next_seq) {
      return violated("I3: producer " + producer + " epoch " + n(epoch) + " goes on at seq " + n(next_seq) + "; when it opened, the log had " +
                      n(at->second));
    }
    std::string expected;
    if (next_seq > 0 && !state_given_up_.contains({producer, epoch})) {
      const placed& last = producers_[producer].batches[next_seq - 1];
      expected = published_[{producer, last.epoch, next_seq - 1}].state;
    }
    if (state != expected) {
      violated("I3: producer " + producer + " epoch " + n(epoch) + " got state '" + std::string(state) + "', committed with seq " +
               n(next_seq) + " - 1 was '" + expected + "'");
    }
  }
  /// It is about to publish.
  void publishes(const std::string& producer, std::uint64_t epoch, std::uint64_t seq, std::uint64_t item, std::uint32_t process) {
    publication& p = published_[{producer, epoch, seq}];
    if (p.known && p.process != process) {
      return violated("I4: two incarnations of producer " + producer + " publish with epoch " + n(epoch) + " and seq " + n(seq));
    }
    p.known = true;
    p.item = item;
    p.process = process;
    p.state = state_after(item, process);
  }
  /// It was told that its batches below `committed` are in the log for good; its own start at `first`.
  void acknowledged(const std::string& producer, std::uint64_t epoch, std::uint64_t first, std::uint64_t committed) {
    if (over()) return;
    const producer_model& p = producers_[producer];
    if (committed > p.batches.size()) {
      return violated("I9: producer " + producer + " epoch " + n(epoch) + " was told that " + n(committed) + " batches are committed, the log has " +
                      n(p.batches.size()));
    }
    for (std::uint64_t seq = first; seq < committed; ++seq) {
      if (p.batches[seq].epoch != epoch) {
        return violated("I9: producer " + producer + " epoch " + n(epoch) + " was told that its seq " + n(seq) +
                        " is committed, the log has that of epoch " + n(p.batches[seq].epoch));
      }
    }
  }
  /// close() returned.
  void closed(const std::string& producer, std::uint64_t epoch) {
    if (!finished_once_.contains({producer, epoch})) violated("I9: producer " + producer + " epoch " + n(epoch) + " was told that it is closed, the log does not say so");
  }

  // ---- what ranks say -----------------------------------------------------------------------------------------------------------------

  /// A rank got a slice where it expected `step`.
  void delivered(const std::string& who, std::uint32_t rank, std::uint32_t world, std::uint64_t step, const slice& got) {
    if (over()) return;
    const std::string at = who + ", step " + n(step) + ": ";
    if (got.step() != step) return violated("I2: " + at + "got step " + n(got.step()));
    if (step >= steps_.size()) return violated("I1: " + at + "was delivered before any version holds it");
    const step_model& s = steps_[step];
    if (got.producer() != s.producer) return violated("I2: " + at + "got a batch of " + got.producer() + ", the log has one of " + s.producer);
    const publication& p = published_[{s.producer, s.epoch, s.seq}];
    const std::uint32_t parts = stream_.slices / world;
    if (got.parts() != parts) return violated("I1: " + at + "got " + n(got.parts()) + " slices, expected " + n(parts));
    for (std::uint32_t k = 0; k < parts; ++k) {
      if (as_text(got.part(k)) != content(s.producer, p.item, p.process, rank * parts + k)) {
        return violated("I8: " + at + "slice " + n(k) + " is not what was published as " + s.producer + "/" + n(s.epoch) + "/" + n(s.seq));
      }
    }
  }
  void ended(const std::string& who, std::uint64_t step) {
    if (!closed_ || step != steps_.size()) violated("I2: " + who + " was told that the stream ends at step " + n(step) + "; it has " + n(steps_.size()) + (closed_ ? "" : " and goes on"));
  }

  /// A rank says that its shard of a checkpoint is durable.
  void marks(const std::string& group, std::uint64_t generation, const std::string& id, std::uint64_t step, std::uint32_t rank) {
    marks_[{group, generation, id, step}].insert(rank);
  }
  /// A rank was told that a checkpoint is complete. One that completes when the group retains only newer ones is never retained.
  void completed(const std::string& group, std::uint64_t generation, const std::string& id, std::uint64_t step) {
    const auto floor = full_above_.find({group, generation});
    const bool too_old = floor != full_above_.end() && step < floor->second;
    if (!completed_.contains({group, id, step}) && !too_old) {
      violated("I9: group " + group + " generation " + n(generation) + " was told that checkpoint " + id + " is complete, the log does not say so");
    }
  }
  /// A group was told that it is rolled back to `step`, or to no checkpoint.
  void resumed(const std::string& group, std::uint64_t generation, std::optional<std::uint64_t> step) {
    if (over()) return;
    const auto at = rolled_back_.find({group, generation});
    if (at == rolled_back_.end()) return violated("I9: group " + group + " was told that it is back in generation " + n(generation) + ", the log does not say so");
    if (at->second != step) violated("I3: group " + group + " went back to step " + (step ? n(*step) : "none") + ", the log says " + (at->second ? n(*at->second) : "none"));
  }

  // ---- what the store sees ------------------------------------------------------------------------------------------------------------

  /// A client asks for a write.
  void asked(const sim_request& r) {
    if (over() || r.verb != op::put || !r.key.starts_with("log/") || r.body.empty()) return;
    result<manifest::version> v = manifest::decode_version(r.body);
    if (!v) return violated("I1: a version at " + r.key + " is written that does not decode: " + v.error().what());
    for (const manifest::tgb_entry& e : v->entries) {
      const producer_model& p = producers_[e.producer];
      if (e.seq < p.batches.size() && p.batches[e.seq].epoch == e.epoch) continue;  // in the log already, and perhaps trimmed
      const std::string key = manifest::tgb_key(e.producer, e.epoch, e.seq);
      if (!durable_.contains(key)) return violated("I5: version " + n(v->number) + " is tried before the store acknowledged " + key);
    }
  }
  /// A client was told that its put of a TGB took effect.
  void acknowledged_put(const std::string& key) {
    if (key.starts_with("tgb/")) durable_.insert(key);
  }
  /// A put took effect; `before`: what was under the key, or null.
  void written(const sim_request& r, const std::vector<std::byte>* before) {
    if (over()) return;
    if (r.key.starts_with("log/")) return version_written(r.key, r.body, before);
    if (r.key == manifest::stream_key()) return violated("I2: the description of the stream was written again");
    if (!r.key.starts_with("tgb/")) return;
    if (before && *before != r.body) violated("I2: " + r.key + " was overwritten with other bytes");
  }
  /// A removal took effect; `there`: something was under the key.
  void removed(const std::string& key, bool there) {
    if (!there || over()) return;
    ++removed_;
    if (key.starts_with("log/")) return violated("I2: version key " + key + " became absent");
    if (key == manifest::stream_key()) return violated("I2: the description of the stream was removed");
    if (const auto name = manifest::parse_tgb_key(key)) return tgb_removed(key, *name);
    if (const auto segment = manifest::parse_seg_key(key)) {
      for (const manifest::segment_ref& s : newest_.summary.segments) {
        if (s.first == segment->first && s.end == segment->end && s.nonce == segment->nonce && s.end > newest_.summary.trim_step) {
          violated("I6: segment " + key + " was removed, the newest version needs it");
        }
      }
    }
  }

  /// What is in the bucket after a reclaim that nobody disturbed, when nobody runs any more.
  void left_over(const std::string& key, std::uint64_t size) {
    if (over()) return;
    const manifest::summary& s = newest_.summary;
    if (const auto name = manifest::parse_tgb_key(key)) {
      const producer_model& p = producers_[name->producer];
      const bool in_log = name->seq < p.batches.size() && p.batches[name->seq].epoch == name->epoch;
      const bool last = in_log && name->seq + 1 == p.batches.size() && !p.given_up;
      if (in_log ? !last && p.batches[name->seq].step < s.trim_step : name->epoch < p.epoch) violated("reclaim left " + key);
    } else if (const auto number = manifest::parse_log_key(key)) {
      if (*number < s.oldest_version && size > 0) violated("reclaim left version " + n(*number) + ", the oldest retained is " + n(s.oldest_version));
    } else if (const auto g = manifest::parse_seg_key(key)) {
      const bool named = std::any_of(s.segments.begin(), s.segments.end(), [&](const manifest::segment_ref& r) {
        return r.first == g->first && r.end == g->end && r.nonce == g->nonce;
      });
      if (!named && g->end <= s.sealed_step) violated("reclaim left segment " + key);
    }
  }

  // ---- the model ----------------------------------------------------------------------------------------------------------------------

  std::uint64_t steps() const noexcept { return steps_.size(); }
  std::uint64_t versions() const noexcept { return newest_.number; }
  std::uint64_t trim_step() const noexcept { return newest_.summary.trim_step; }
  bool stream_closed() const noexcept { return closed_; }
  const manifest::version& newest() const noexcept { return newest_; }
  std::uint64_t committed(const std::string& producer) { return producers_[producer].batches.size(); }
  /// Nobody waits for it any more.
  bool finished(const std::string& producer) { return producers_[producer].finished || producers_[producer].retired; }
  /// Bytes of batches in `objects` that are not in the log and may still come into it.
  std::uint64_t in_flight(const sim_bucket::objects_map& objects) const {
    std::uint64_t sum = 0;
    const std::string prefix = manifest::tgb_prefix();
    for (auto at = objects.lower_bound(prefix); at != objects.end() && at->first.starts_with(prefix); ++at) {
      const auto name = manifest::parse_tgb_key(at->first);
      const auto p = name ? producers_.find(name->producer) : producers_.end();
      if (p != producers_.end() && name->epoch == p->second.epoch && name->seq >= p->second.batches.size()) sum += at->second.body->size();
    }
    return sum;
  }
  /// Hash of the bytes of version `number`; 0 when it was never written.
  std::uint64_t version_hash(std::uint64_t number) const {
    return number >= 1 && number <= hashes_.size() ? hashes_[number - 1] : 0;
  }
  const manifest::stream_info& stream() const noexcept { return stream_; }
  void add_to(sim_counts& c) const {
    c.checkpoints += completed_.size();
    c.trimmed += trims_;
    c.sealed += seals_;
    c.removed += removed_;
    c.buried += buried_;
  }

 private:
  struct placed {
    std::uint64_t step = 0, epoch = 0;
  };
  struct producer_model {
    std::uint64_t epoch = 0;
    id128 owner;
    bool finished = false, retired = false;
    bool given_up = false;        // retired after its last batch: its state is gone
    std::vector<placed> batches;  // by seq
  };
  struct step_model {
    std::string producer;
    std::uint64_t epoch = 0, seq = 0;
  };
  struct publication {
    bool known = false;
    std::uint64_t item = 0;
    std::uint32_t process = 0;
    std::string state;
  };
  static std::string n(std::uint64_t v) { return std::to_string(v); }
  bool over() const noexcept { return violation_.has_value(); }  // the model may be wrong from here on

  void version_written(const std::string& key, const std::vector<std::byte>& body, const std::vector<std::byte>* before) {
    const auto number = manifest::parse_log_key(key);
    if (!number) return violated("I2: " + key + " is no version");
    const std::string which = "version " + n(*number);
    if (before) {
      if (*before == body) return;
      const bool dead = *number < newest_.summary.oldest_version;
      if (!body.empty()) return violated("I2: " + which + (before->empty() ? ", a tombstone," : "") + " was overwritten with other bytes");
      ++buried_;
      if (!dead) violated("I6: " + which + " became a tombstone, the oldest retained version is " + n(newest_.summary.oldest_version));
      return;
    }
    if (*number != newest_.number + 1) return violated("I2: " + which + " was written, the newest is " + n(newest_.number));
    result<manifest::version> decoded = manifest::decode_version(body);
    if (!decoded) return violated("I1: " + which + " does not decode: " + decoded.error().what());
    manifest::version& v = *decoded;
    if (v.number != *number) return violated("I2: " + which + " says that it is version " + n(v.number));
    if (v.stream_id != stream_.id) return violated("I2: " + which + " belongs to another stream");
    if (closed_ && !v.entries.empty()) return violated("I2: " + which + " adds steps to a stream that has ended");
    if (v.first_step != steps_.size()) return violated("I2: " + which + " starts at step " + n(v.first_step) + ", the log has " + n(steps_.size()) + " steps");
    for (const manifest::event& e : v.events) take_event(which, v, e);
    for (const manifest::tgb_entry& e : v.entries) take_entry(which, e);
    if (!over()) check_summary(which, v);
    hashes_.push_back(xxh3(body));
    newest_ = std::move(v);
  }

  void take_event(const std::string& which, const manifest::version& v, const manifest::event& e) {
    using kind = manifest::event_kind;
    if (e.kind == kind::producer_opened) {
      producer_model& p = producers_[e.producer];
      if (e.epoch != p.epoch + 1) return violated("I4: " + which + " opens producer " + e.producer + " with epoch " + n(e.epoch) + " after " + n(p.epoch));
      p.epoch = e.epoch;
      p.owner = e.owner;
      p.finished = p.retired = false;
      opened_[{e.producer, e.epoch}] = p.batches.size();
      if (p.given_up) state_given_up_.insert({e.producer, e.epoch});
    } else if (e.kind == kind::producer_finished) {
      producer_model& p = producers_[e.producer];
      if (e.epoch != p.epoch || e.owner != p.owner) return violated("I4: " + which + " ends producer " + e.producer + " with epoch " + n(e.epoch) + ", its epoch is " + n(p.epoch));
      p.finished = true;
      finished_once_.insert({e.producer, e.epoch});
    } else if (e.kind == kind::producer_retired) {
      producer_model& p = producers_[e.producer];
      if (e.epoch != p.epoch + 1) return violated("I4: " + which + " retires producer " + e.producer + " with epoch " + n(e.epoch) + " after " + n(p.epoch));
      p.epoch = e.epoch;
      p.owner = e.owner;
      p.retired = p.given_up = true;
    } else if (e.kind == kind::checkpoint_complete) {
      checkpoint_completed(which, v, e);
    } else if (e.kind == kind::rolled_back) {
      const manifest::group_entry* now = find_group(v.summary, e.group);
      const manifest::group_entry* before = find_group(newest_.summary, e.group);
      if (!now || !before || now->generation != v.number) return violated("I4: " + which + " rolls group " + e.group + " back without a new generation");
      std::optional<std::uint64_t> step;
      if (!now->retained.empty()) step = now->retained.back().step;
      for (const manifest::checkpoint_entry& c : now->retained) {
        if (std::find(before->retained.begin(), before->retained.end(), c) == before->retained.end()) violated("I6: " + which + " rolls group " + e.group + " back to a checkpoint that it does not retain");
      }
      rolled_back_[{e.group, v.number}] = step;
    } else if (e.kind == kind::trimmed) {
      ++trims_;
    } else if (e.kind == kind::sealed) {
      ++seals_;
    } else if (e.kind == kind::stream_closed) {
      closed_ = true;
      if (e.step != v.summary.next_step) violated("I2: " + which + " ends the stream at step " + n(e.step) + ", it has " + n(v.summary.next_step));
    }
  }

  static const manifest::group_entry* find_group(const manifest::summary& s, std::string_view name) {
    for (const manifest::group_entry& g : s.groups) {
      if (g.name == name) return &g;
    }
    return nullptr;
  }

  void checkpoint_completed(const std::string& which, const manifest::version& v, const manifest::event& e) {
    const manifest::group_entry* g = find_group(newest_.summary, e.group);
    if (!g) return violated("I6: " + which + " completes a checkpoint of group " + e.group + ", which is not there");
    const std::set<std::uint32_t>& ranks = marks_[{e.group, g->generation, e.checkpoint, e.step}];
    if (ranks.size() < g->world_size) {
      return violated("I6: " + which + " completes checkpoint " + e.checkpoint + " of group " + e.group + " at step " + n(e.step) + ", only " +
                      n(ranks.size()) + " of " + n(g->world_size) + " ranks have marked it in generation " + n(g->generation));
    }
    if (e.step < v.summary.trim_step || e.step > v.summary.next_step) violated("I6: " + which + " completes a checkpoint at step " + n(e.step) + ", which cannot be restored");
    completed_.insert({e.group, e.checkpoint, e.step});
  }

  // What a group retains goes only when newer ones push it out, or when somebody says so.
  void check_retained(const std::string& which, const manifest::version& v, const manifest::group_entry& before) {
    using kind = manifest::event_kind;
    bool said = false, complete = false;
    for (const manifest::event& e : v.events) {
      if (e.group != before.name) continue;
      said = said || e.kind == kind::rolled_back || e.kind == kind::group_left || e.kind == kind::checkpoint_forgotten || e.kind == kind::group_joined;
      complete = complete || e.kind == kind::checkpoint_complete;
    }
    const manifest::group_entry* now = find_group(v.summary, before.name);
    if (!now) {
      if (!said) violated("I6: " + which + " loses group " + before.name);
      return;
    }
    for (const manifest::checkpoint_entry& c : before.retained) {
      if (said || std::find(now->retained.begin(), now->retained.end(), c) != now->retained.end()) continue;
      const bool pushed_out = complete && now->retained.size() >= now->keep && c.step <= now->retained.front().step;
      if (!pushed_out) violated("I6: " + which + " loses checkpoint " + c.id + " of group " + before.name);
    }
  }

  void take_entry(const std::string& which, const manifest::tgb_entry& e) {
    producer_model& p = producers_[e.producer];
    const std::string batch = e.producer + "/" + n(e.epoch) + "/" + n(e.seq);
    if (e.epoch != p.epoch) return violated("I4: " + which + " commits " + batch + ", the epoch of that producer is " + n(p.epoch));
    if (e.seq != p.batches.size()) return violated("I3: " + which + " commits " + batch + ", the next seq of that producer is " + n(p.batches.size()));
    const auto at = published_.find({e.producer, e.epoch, e.seq});
    if (at == published_.end()) return violated("I1: " + which + " commits " + batch + ", which nobody published");
    if (at->second.item != e.seq) {
      return violated("I3: " + which + " commits item " + n(at->second.item) + " of the input of producer " + e.producer + " as its batch " +
                      n(e.seq) + "; an item is lost or doubled");
    }
    placed where;
    where.step = steps_.size();
    where.epoch = e.epoch;
    p.batches.push_back(where);
    p.given_up = false;
    step_model s;
    s.producer = e.producer;
    s.epoch = e.epoch;
    s.seq = e.seq;
    steps_.push_back(std::move(s));
  }

  void check_summary(const std::string& which, const manifest::version& v) {
    const manifest::summary& s = v.summary;
    const manifest::summary& old = newest_.summary;
    if (s.next_step != steps_.size()) violated("I2: " + which + " says that there are " + n(s.next_step) + " steps, there are " + n(steps_.size()));
    if (s.closed != closed_) violated("I2: " + which + (s.closed ? " says" : " does not say") + " that the stream has ended");
    if (s.trim_step < old.trim_step) violated("I6: " + which + " moves the trim step back to " + n(s.trim_step) + " from " + n(old.trim_step));
    if (s.oldest_version < old.oldest_version) violated("I6: " + which + " moves the oldest version back");
    for (const manifest::group_entry& g : s.groups) {
      if (g.retained.size() < g.keep) continue;
      std::uint64_t& oldest = full_above_[{g.name, g.generation}];
      oldest = std::max(oldest, g.retained.front().step);
    }
    for (const manifest::group_entry& g : s.groups) {
      if (!g.retained.empty() && s.trim_step > g.retained.front().step) {
        violated("I6: " + which + " trims to " + n(s.trim_step) + ", group " + g.name + " retains a checkpoint at " + n(g.retained.front().step));
      }
    }
    for (const manifest::group_entry& g : old.groups) {
      check_retained(which, v, g);
      if (s.trim_step > old.trim_step && g.retained.empty() && find_group(s, g.name)) violated("I6: " + which + " trims, group " + g.name + " has no checkpoint yet");
    }
    if (s.sealed_step < old.sealed_step) violated("I6: " + which + " moves the sealed step back");
    if (s.trim_step > old.trim_step && old.groups.empty()) violated("I6: " + which + " trims a stream on which no group has a checkpoint");
    std::size_t known = 0;
    for (const auto& [id, p] : producers_) known += p.epoch > 0;
    if (known != s.producers.size()) violated("I4: " + which + " knows " + n(s.producers.size()) + " producers, there were " + n(known));
    for (const manifest::producer_entry& e : s.producers) {
      const producer_model& p = producers_[e.id];
      if (e.epoch != p.epoch || e.owner != p.owner) violated("I4: " + which + " gives producer " + e.id + " epoch " + n(e.epoch) + ", the log gave it " + n(p.epoch));
      if (e.next_seq != p.batches.size()) return violated("I3: " + which + " gives producer " + e.id + " next_seq " + n(e.next_seq) + ", the log has " + n(p.batches.size()));
      if (e.next_seq > 0 && !p.given_up && (e.last_tgb.seq + 1 != e.next_seq || e.last_tgb.epoch != p.batches.back().epoch)) violated("I3: " + which + " names a wrong last batch of producer " + e.id);
      if (e.finished != p.finished) violated("I2: " + which + (e.finished ? " ends" : " revives") + " producer " + e.id + " without an event");
    }
  }

  void tgb_removed(const std::string& key, const manifest::batch_name& name) {
    const producer_model& p = producers_[name.producer];
    const bool in_log = name.seq < p.batches.size() && p.batches[name.seq].epoch == name.epoch;
    if (!in_log) {
      if (name.epoch >= p.epoch) violated("I7: " + key + " was removed; it is not committed and the epoch of its producer is " + n(p.epoch));
      return;
    }
    const std::uint64_t step = p.batches[name.seq].step;
    if (step >= newest_.summary.trim_step) {
      violated("I6: " + key + " was removed; it is step " + n(step) + " and the trim step is " + n(newest_.summary.trim_step));
    } else if (name.seq + 1 == p.batches.size() && !p.given_up) {
      violated("I3: " + key + " was removed; it holds the state of producer " + name.producer);
    }
  }

  manifest::stream_info stream_;
  std::size_t slice_bytes_;
  std::optional<std::string> violation_;
  std::map<std::string, producer_model, std::less<>> producers_;
  std::vector<step_model> steps_;
  std::map<std::tuple<std::string, std::uint64_t, std::uint64_t>, publication> published_;
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> opened_;  // producer, epoch -> batches in the log then
  std::set<std::pair<std::string, std::uint64_t>> finished_once_, state_given_up_;  // producer, epoch
  std::set<std::string, std::less<>> durable_;
  std::map<std::tuple<std::string, std::uint64_t, std::string, std::uint64_t>, std::set<std::uint32_t>> marks_;
  std::set<std::tuple<std::string, std::string, std::uint64_t>> completed_;
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> full_above_;  // of a group's generation: oldest step of a full retained list
  std::map<std::pair<std::string, std::uint64_t>, std::optional<std::uint64_t>> rolled_back_;  // group, generation -> step
  std::uint64_t trims_ = 0, seals_ = 0, removed_ = 0, buried_ = 0;
  std::vector<std::uint64_t> hashes_;  // of versions 1, 2, ...
  manifest::version newest_;           // number 0 before the first
  bool closed_ = false;
};

}  // namespace batchweave::testing
