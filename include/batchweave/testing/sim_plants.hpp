// Known protocol bugs, planted on purpose: a checker that finds none of them proves nothing.
#pragma once

#include <batchweave/commit/rules.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace batchweave::testing {

/// Each breaks one decision, of the library (through commit::rules) or of a process around it.
enum class sim_plant : std::uint8_t {
  none,
  skip_landed_check,    ///< an ambiguous commit that met a taken key counts as one's own, whoever's nonce is there
  overwrite_version,    ///< versions are written without If-None-Match
  early_commit,         ///< a batch is committed before its upload is acknowledged
  forget_epoch,         ///< a commit does not look at the epoch in the tail
  open_without_epoch,   ///< opening takes over without raising the epoch
  next_key_after_unknown,  ///< after an unknown outcome the same batches are planned anew under the next version
  conflict_is_lost,     ///< 409 is taken for "somebody else has this key": the next version is written
  clean_after_unknown,  ///< the batches of a commit with an unknown outcome are deleted
  forget_state,         ///< a restarted producer does not use the restored state
  delete_versions,      ///< a janitor deletes old versions instead of burying them
  cursor_ahead,         ///< a rank saves its cursor before it has used the step
  no_tombstones,        ///< reclaim deletes dead versions
  delete_before_trim,   ///< reclaim deletes first and commits the trim step after
  orphans_of_any_epoch  ///< reclaim takes every uncommitted object for an orphan
};
inline constexpr std::array<std::string_view, 15> sim_plant_names{
    "none",                   "skip_landed_check", "overwrite_version",   "early_commit", "forget_epoch",    "open_without_epoch",
    "next_key_after_unknown", "conflict_is_lost",  "clean_after_unknown", "forget_state", "delete_versions", "cursor_ahead",
    "no_tombstones",          "delete_before_trim", "orphans_of_any_epoch"};

inline std::optional<sim_plant> parse_sim_plant(std::string_view name) {
  for (std::size_t i = 0; i < sim_plant_names.size(); ++i) {
    if (sim_plant_names[i] == name) return static_cast<sim_plant>(i);
  }
  return std::nullopt;
}

/// Whether a plant breaks a decision of producers, or of reclaim; else it is a wrong process.
constexpr bool breaks_producers(sim_plant p) {
  return p == sim_plant::skip_landed_check || p == sim_plant::overwrite_version || p == sim_plant::early_commit ||
         p == sim_plant::forget_epoch || p == sim_plant::open_without_epoch;
}
constexpr bool breaks_reclaim(sim_plant p) {
  return p == sim_plant::no_tombstones || p == sim_plant::delete_before_trim || p == sim_plant::orphans_of_any_epoch;
}

/// The protocol with one decision broken.
template <sim_plant Plant>
struct planted_rules : commit::rules {
  static result<manifest::version> open(const manifest::version& tail, const manifest::stream_info& stream, std::string_view producer,
                                        id128 owner, std::int64_t unix_ns) {
    result<manifest::version> v = commit::rules::open(tail, stream, producer, owner, unix_ns);
    const manifest::producer_entry* there = commit::find_producer(tail.summary, producer);
    if (Plant == sim_plant::open_without_epoch && v && there) {
      commit::detail::entry_of(v->summary, producer).epoch = there->epoch;
      v->events.back().epoch = there->epoch;
    }
    return v;
  }
  static result<manifest::version> commit(const manifest::version& tail, const manifest::stream_info& stream,
                                          const commit::incarnation& me, const commit::commit_request& request) {
    if (Plant != sim_plant::forget_epoch) return commit::rules::commit(tail, stream, me, request);
    manifest::version blind = tail;
    manifest::producer_entry& mine = commit::detail::entry_of(blind.summary, me.producer);
    mine.epoch = me.epoch;
    mine.owner = me.owner;
    return commit::rules::commit(blind, stream, me, request);
  }
  static bool current(const manifest::producer_entry* known, const commit::incarnation& me) {
    return Plant == sim_plant::forget_epoch || commit::rules::current(known, me);
  }
  static bool landed(const manifest::version& newest, const manifest::version& proposed, const commit::incarnation& me) {
    return Plant == sim_plant::skip_landed_check || commit::rules::landed(newest, proposed, me);
  }
  static put_condition version_condition() {
    return Plant == sim_plant::overwrite_version ? put_condition() : commit::rules::version_condition();
  }
  static constexpr bool durable_first = Plant != sim_plant::early_commit;
  static constexpr bool tombstones = Plant != sim_plant::no_tombstones;
  static constexpr bool trim_first = Plant != sim_plant::delete_before_trim;
  static constexpr bool orphan(std::uint64_t epoch, std::uint64_t committed_epoch) {
    return Plant == sim_plant::orphans_of_any_epoch || commit::rules::orphan(epoch, committed_epoch);
  }
};

}  // namespace batchweave::testing
