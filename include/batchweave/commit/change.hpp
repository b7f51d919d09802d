// Commits one change of the stream that is not a batch: reads the newest version, proposes on it, repeats until decided.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/lifecycle.hpp>
#include <batchweave/commit/put_version.hpp>
#include <batchweave/commit/rules.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/manifest/codec.hpp>

#include <memory>
#include <string>
#include <utility>

namespace batchweave::commit {

/// Returns the version in which `wanted` has landed: one's own, or the newest when it was there already. Requests per attempt: LIST + GET
/// of the tail, one conditional PUT; attempts that others win are repeated, after a jittered wait of up to a round trip, for `limit`.
/// `wanted` must outlive the call; it may remember what it proposed.
/// Errors: those of `propose`; undecided when the store neither applied nor refused the PUT within `limit`; retries_exhausted when others
/// won for so long; those of the store. Cancellation: it may or may not have landed; call again, it lands once.
template <class Codecs = manifest::builtin_codecs, class Rules = rules, object_store S, change Change>
asio::awaitable<result<tail_view>> commit_change(S store, manifest::stream_info stream, any_clock clock, random64& random, duration limit,
                                                 Change& wanted) {
  const time_point give_up = clock.now() + limit;
  std::uint64_t known = 0;
  for (unsigned attempts = 1;; ++attempts) {
    const time_point begun = clock.now();
    result<tail_view> newest = co_await await_tail<Codecs>(store, stream, clock, random, limit, known);
    if (!newest) co_return in_context(newest.error(), wanted.what());
    known = newest->version->number;
    if (wanted.landed(*newest->version)) co_return std::move(*newest);
    const id128 nonce = id128::draw(random);
    const std::int64_t now_ns = clock.wall_now().time_since_epoch().count();
    result<manifest::version> next = wanted.propose(*newest->version, nonce, now_ns);
    if (!next) co_return in_context(next.error(), wanted.what());
    const auto encoded = Codecs::encode(*next, stream.codec);
    const const_bytes body(encoded.data(), encoded.size());
    version_put put = co_await put_version<Rules>(store, clock, random, next->number, body, limit, wanted.what());
    if (put.failed) co_return *put.failed;
    if (put.applied) {
      auto mine = std::make_shared<const manifest::version>(std::move(*next));
      co_return tail_view(std::move(mine), encoded.size());
    }
    // Somebody has the key, perhaps an earlier try of this very PUT: what the newest version carries decides.
    const time_point now = clock.now();
    if (now > give_up) {
      co_return failure(errc::retries_exhausted, wanted.what() + ": others won " + std::to_string(attempts) + " times; the log is at version " +
                                                     std::to_string(known));
    }
    co_await clock.wait_for(jittered(now - begun, random, 0, 1));
  }
}

}  // namespace batchweave::commit
