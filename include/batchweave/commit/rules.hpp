// The decisions of the protocol on which its invariants hang, as one replaceable class.
#pragma once

#include <batchweave/commit/protocol.hpp>
#include <batchweave/store/store.hpp>

#include <cstdint>
#include <string_view>

namespace batchweave::commit {

/// The protocol as it is. Roles take it as a template argument for one purpose: a simulation derives from it, breaks one decision, and
/// so proves that its checker notices. Stateless.
struct rules {
  static result<manifest::version> open(const manifest::version& tail, const manifest::stream_info& stream, std::string_view producer,
                                        id128 owner, std::int64_t unix_ns) {
    return propose_open(tail, stream, producer, owner, unix_ns);
  }
  static result<manifest::version> commit(const manifest::version& tail, const manifest::stream_info& stream, const incarnation& me,
                                          const commit_request& request) {
    return propose_commit(tail, stream, me, request);
  }
  /// Whether this incarnation may go on.
  static bool current(const manifest::producer_entry* known, const incarnation& me) { return is_current(known, me); }
  /// Whether a version whose PUT had an unknown outcome took effect.
  static bool landed(const manifest::version& newest, const manifest::version& proposed, const incarnation& me) {
    return contains(newest, proposed, me);
  }
  /// Whether a failed conditional PUT did not happen and never will. Otherwise it may have happened, or may succeed later: the same bytes
  /// to the same key again.
  static bool hopeless(const failure& f) { return f.fate() == fate::did_not_happen && f.kind() != error_kind::retry_later; }
  static put_condition version_condition() { return put_condition::if_absent(); }
  /// A batch may be committed only after the store acknowledged its bytes (I5).
  static constexpr bool durable_first = true;

  /// Reclaim: a dead version becomes a tombstone and never absent.
  static constexpr bool tombstones = true;
  /// Reclaim: the trim event is committed before anything is deleted.
  static constexpr bool trim_first = true;
  /// Reclaim: whether an uncommitted object of `epoch` is an orphan (I7).
  static constexpr bool orphan(std::uint64_t epoch, std::uint64_t committed_epoch) { return epoch < committed_epoch; }
};

}  // namespace batchweave::commit
