// Which objects of a stream are needed, judged by one version: pure decisions of reclaim.
#pragma once

#include <batchweave/commit/lifecycle.hpp>
#include <batchweave/commit/protocol.hpp>
#include <batchweave/commit/rules.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/manifest/segment.hpp>
#include <batchweave/manifest/version.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::commit {

/// What becomes of an object.
enum class sentence {
  keep,
  dead,    ///< committed and given up
  orphan,  ///< never committed, and can never be
};

/// Every answer but `keep` holds for all later versions too: trim_step, sealed_step, epochs and next_seqs only rise, and steps keep their
/// TGB. So a sweep needs no second look before it removes, however long it takes (RC-02), and no clock (I7).
template <class Rules = rules>
class liveness {
 public:
  /// Judges by `newest`. Feed it the entries of all steps in [trim_step, next_step) in order, by add() or add_run().
  explicit liveness(std::shared_ptr<const manifest::version> newest) : newest_(std::move(newest)) {}

  const manifest::version& newest() const noexcept { return *newest_; }

  void add(const manifest::tgb_reference& e) { manifest::extend(live_[e.producer], e); }
  void add_run(const manifest::seq_run& r) {
    std::vector<manifest::seq_run>& runs = live_[r.producer];
    if (!runs.empty() && runs.back().epoch == r.epoch && runs.back().end_seq == r.first_seq) runs.back().end_seq = r.end_seq;
    else runs.push_back(r);
  }

  sentence judge_tgb(const manifest::batch_name& n) const {
    const manifest::producer_entry* p = find_producer(newest_->summary, n.producer);
    if (!p) return sentence::keep;  // opened after `newest`, or not of this stream
    if (live_run(n)) return sentence::keep;
    const manifest::tgb_reference& last = p->last_tgb;
    if (last.producer == n.producer && last.epoch == n.epoch && last.seq == n.seq) return sentence::keep;  // it holds the state
    const auto runs = live_.find(n.producer);
    const std::uint64_t first_live = runs == live_.end() || runs->second.empty() ? p->next_seq : runs->second.front().first_seq;
    if (n.epoch <= p->epoch && n.seq < first_live) return sentence::dead;
    return Rules::orphan(n.epoch, p->epoch) ? sentence::orphan : sentence::keep;
  }

  /// Where the listing of a producer's objects may go on after a kept one; empty: with the next key.
  std::string skip_after(const manifest::batch_name& n) const {
    if (const manifest::seq_run* r = live_run(n)) return manifest::tgb_key(n.producer, n.epoch, r->end_seq - 1) + "/";  // '/' is above '.'
    const manifest::producer_entry* p = find_producer(newest_->summary, n.producer);
    if (!p || n.epoch >= p->epoch) return manifest::tgb_prefix() + n.producer + "0";  // '0' is above '/': with the next producer
    return {};
  }

  bool announcement_is_dead(const manifest::batch_name& n) const {
    const manifest::producer_entry* p = find_producer(newest_->summary, n.producer);
    return p && (n.epoch < p->epoch || (n.epoch == p->epoch && n.seq < p->next_seq));
  }

  /// A segment that nothing names was merged, trimmed, or lost a race: one that can still be named ends above sealed_step.
  bool segment_is_dead(const manifest::segment_name& n) const {
    const manifest::summary& s = newest_->summary;
    const auto named = [&](const manifest::segment_ref& g) { return g.first == n.first && g.end == n.end && g.nonce == n.nonce; };
    return n.end <= s.sealed_step && std::none_of(s.segments.begin(), s.segments.end(), named);
  }

  bool mark_is_dead(const manifest::mark_name& n) const {
    if (n.generation > newest_->number) return false;
    const manifest::group_entry* g = find_group(newest_->summary, n.group);
    if (!g || n.generation < g->generation || n.step < newest_->summary.trim_step) return true;
    const complete_checkpoint wanted(n.group, n.generation, n.checkpoint, n.step);
    return wanted.landed(*newest_);
  }

  bool upload_is_dead(const manifest::batch_name& n) const {
    const manifest::producer_entry* p = find_producer(newest_->summary, n.producer);
    return p && Rules::orphan(n.epoch, p->epoch);
  }

  bool version_is_dead(std::uint64_t number) const { return number < newest_->summary.oldest_version && number < newest_->number; }

 private:
  const manifest::seq_run* live_run(const manifest::batch_name& n) const {
    const auto runs = live_.find(n.producer);
    if (runs == live_.end()) return nullptr;
    const auto& list = runs->second;
    auto at = std::upper_bound(list.begin(), list.end(), n.seq, [](std::uint64_t s, const manifest::seq_run& r) { return s < r.first_seq; });
    if (at == list.begin()) return nullptr;
    --at;
    return n.seq < at->end_seq && at->epoch == n.epoch ? &*at : nullptr;
  }

  std::shared_ptr<const manifest::version> newest_;
  std::map<std::string, std::vector<manifest::seq_run>, std::less<>> live_;
};

}  // namespace batchweave::commit
