// The inbox: durable TGBs that producers announce, so that whoever commits next publishes them all.
#pragma once

#include <batchweave/commit/protocol.hpp>
#include <batchweave/manifest/announcement.hpp>
#include <batchweave/store/store.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::commit {

/// Announces a TGB whose bytes the store has acknowledged. One PUT, without a body when the entry fits into the key.
/// An announcement speeds a commit up and decides nothing: losing one, or finding an old one, is harmless.
template <object_store S>
asio::awaitable<result<put_outcome>> announce(S store, manifest::tgb_entry entry) {
  const manifest::announcement a(entry);
  const put_condition always;
  const const_buffers body{const_bytes(a.body.data(), a.body.size())};
  co_return co_await store.put(a.key, body, always);
}

/// What the inbox holds against the tail.
class inbox {
 public:
  inbox() {}
  std::vector<manifest::tgb_entry> entries;  ///< not yet committed, of their producer's current epoch
  std::vector<std::string> keys;             ///< of `entries`, in the same order
  std::vector<std::string> stale;            ///< committed, or of an epoch that is over: anybody may remove them
};

namespace detail {
/// Whether the announcement of `n` may still matter.
inline bool is_stale(const manifest::summary& s, const manifest::batch_name& n) {
  const manifest::producer_entry* p = find_producer(s, n.producer);
  return p && (p->retired || n.epoch < p->epoch || (n.epoch == p->epoch && n.seq < p->next_seq));
}
}  // namespace detail

/// Lists up to 1000 keys of the inbox and, when there are more, up to 3000 from those of `me` on, so that no producer's announcements
/// starve; reads at most 32 bodies. Keys that it does not know are left alone. `tail`: what counts as committed.
template <object_store S>
asio::awaitable<result<inbox>> read_inbox(S store, manifest::summary tail, std::string me) {
  constexpr std::size_t page_size = 1000;
  inbox out;
  int bodies = 32;
  const std::string prefix = manifest::inbox_prefix();
  std::string after;
  for (int n = 0; n < 4; ++n) {
    result<list_page> page = co_await store.list(prefix, after, page_size);
    if (!page) co_return in_context(page.error(), "reading the inbox");
    for (const object_info& o : page->objects()) {
      const auto name = manifest::parse_inbox_key(o.key());
      if (!name) continue;
      if (detail::is_stale(tail, *name)) {
        out.stale.push_back(o.key());
        continue;
      }
      if (name->producer == me) continue;
      std::optional<manifest::tgb_entry> e = manifest::parse_announcement(o.key());
      if (!e && o.size() > 0 && bodies-- > 0) {
        result<std::optional<byte_buffer>> body = co_await read_object(store, o.key(), std::size_t{16} << 10, std::size_t{4} << 20);
        if (!body) co_return in_context(body.error(), "reading the inbox");
        if (*body) {
          result<manifest::tgb_entry> decoded = manifest::decode_announcement(*name, (*body)->bytes());
          if (decoded) e = std::move(*decoded);
        }
      }
      if (!e) continue;
      out.entries.push_back(std::move(*e));
      out.keys.push_back(o.key());
    }
    if (!page->more() || page->objects().empty()) break;
    after = n == 0 ? manifest::inbox_prefix(me) : page->objects().back().key();
  }
  co_return out;
}

}  // namespace batchweave::commit
