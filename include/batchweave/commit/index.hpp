// Reading the index of the stream: sealed segments, whole or block by block, and runs of versions.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/parallel.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/manifest/segment.hpp>
#include <batchweave/store/store.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::commit {

inline constexpr std::size_t segment_bytes_expected = std::size_t{64} << 10;

/// A segment whose head was read, with the bytes that came along.
class open_segment {
 public:
  open_segment() {}
  manifest::segment_ref ref;
  std::string key;
  std::uint64_t head_bytes = 0;
  manifest::segment_index index;
  byte_buffer start;  ///< the first bytes of the object
};

namespace detail {
inline failure segment_mismatch(const std::string& store, const std::string& key) {
  return failure(errc::damaged, store + " " + key + ": the segment holds something else than its name says");
}
inline bool holds(const manifest::segment_index& i, const manifest::segment_ref& ref, id128 stream) {
  return i.first == ref.first && i.end == ref.end && i.stream_id == stream;
}
}  // namespace detail

/// Reads the head of a segment: one GET, two when the head is above 64 KiB. nullopt: the segment is gone, it was merged or trimmed.
/// Errors: damaged, with the key; those of the store.
template <object_store S>
asio::awaitable<result<std::optional<open_segment>>> read_segment_head(S store, manifest::stream_info stream, manifest::segment_ref ref) {
  open_segment out;
  out.ref = ref;
  out.key = manifest::seg_key(ref.first, ref.end, ref.nonce);
  std::uint64_t wanted = std::min<std::uint64_t>(ref.bytes, segment_bytes_expected);
  for (;;) {
    byte_buffer start(wanted);
    const mutable_buffers into{start.bytes()};
    const byte_range range(0, wanted);
    result<read_outcome> got = co_await store.get(out.key, range, into);
    if (!got) co_return in_context(got.error(), "reading an index segment");
    if (!got->found()) co_return std::optional<open_segment>();
    if (got->object_size() != ref.bytes || got->bytes() != wanted) co_return detail::segment_mismatch(store.name(), out.key);
    const result<std::uint64_t> head = manifest::segment_head_bytes(start.bytes());
    if (!head) co_return in_context(head.error(), store.name() + " " + out.key);
    if (*head > ref.bytes) co_return detail::segment_mismatch(store.name(), out.key);
    if (*head > wanted) {
      wanted = *head;
      continue;
    }
    result<manifest::segment_index> index = manifest::decode_segment_index(const_bytes(start.bytes()).first(*head), ref.bytes);
    if (!index) co_return in_context(index.error(), store.name() + " " + out.key);
    if (!detail::holds(*index, ref, stream.id)) co_return detail::segment_mismatch(store.name(), out.key);
    out.head_bytes = *head;
    out.index = std::move(*index);
    out.start = std::move(start);
    co_return std::optional<open_segment>(std::move(out));
  }
}

/// Entries of one block: no request when it came along with the head, else one GET. nullopt: the segment is gone.
/// `segment` must outlive the call. Errors: damaged, with the key; those of the store.
template <object_store S>
asio::awaitable<result<std::optional<std::vector<manifest::tgb_entry>>>> read_segment_block(S store, const open_segment& segment,
                                                                                            std::size_t block) {
  const manifest::segment_block where = segment.index.blocks[block];
  const std::uint64_t at = segment.head_bytes + where.offset;
  byte_buffer own;
  const_bytes bytes;
  if (at + where.bytes <= segment.start.size()) {
    bytes = const_bytes(segment.start.bytes()).subspan(at, where.bytes);
  } else {
    own = byte_buffer(where.bytes);
    const mutable_buffers into{own.bytes()};
    const byte_range range(at, where.bytes);
    result<read_outcome> got = co_await store.get(segment.key, range, into);
    if (!got) co_return in_context(got.error(), "reading an index segment");
    if (!got->found()) co_return std::optional<std::vector<manifest::tgb_entry>>();
    if (got->bytes() != where.bytes) co_return detail::segment_mismatch(store.name(), segment.key);
    bytes = own.bytes();
  }
  result<std::vector<manifest::tgb_entry>> entries = manifest::decode_segment_block(segment.index, block, bytes);
  if (!entries) co_return in_context(entries.error(), store.name() + " " + segment.key);
  co_return std::optional<std::vector<manifest::tgb_entry>>(std::move(*entries));
}

/// All entries of a segment with one GET. nullopt: the segment is gone. Errors: damaged, with the key; those of the store.
template <object_store S>
asio::awaitable<result<std::optional<std::vector<manifest::tgb_entry>>>> read_segment(S store, manifest::stream_info stream,
                                                                                      manifest::segment_ref ref) {
  using entries_type = std::vector<manifest::tgb_entry>;
  const std::string key = manifest::seg_key(ref.first, ref.end, ref.nonce);
  byte_buffer all(ref.bytes);
  const mutable_buffers into{all.bytes()};
  const byte_range range(0, ref.bytes);
  result<read_outcome> got = co_await store.get(key, range, into);
  if (!got) co_return in_context(got.error(), "reading an index segment");
  if (!got->found()) co_return std::optional<entries_type>();
  if (got->object_size() != ref.bytes || got->bytes() != ref.bytes) co_return detail::segment_mismatch(store.name(), key);
  const const_bytes bytes = all.bytes();
  const result<std::uint64_t> head = manifest::segment_head_bytes(bytes);
  if (!head) co_return in_context(head.error(), store.name() + " " + key);
  if (*head > bytes.size()) co_return detail::segment_mismatch(store.name(), key);
  const result<manifest::segment_index> index = manifest::decode_segment_index(bytes.first(*head), ref.bytes);
  if (!index) co_return in_context(index.error(), store.name() + " " + key);
  if (!detail::holds(*index, ref, stream.id)) co_return detail::segment_mismatch(store.name(), key);
  entries_type out;
  for (std::size_t b = 0; b < index->blocks.size(); ++b) {
    const const_bytes block = bytes.subspan(*head + index->blocks[b].offset, index->blocks[b].bytes);
    result<entries_type> entries = manifest::decode_segment_block(*index, b, block);
    if (!entries) co_return in_context(entries.error(), store.name() + " " + key);
    std::move(entries->begin(), entries->end(), std::back_inserter(out));
  }
  co_return std::optional<entries_type>(std::move(out));
}

namespace detail {
template <class Codecs, object_store S>
class version_reads {
 public:
  version_reads(S s, manifest::stream_info i, any_clock c, duration l, std::uint64_t f, std::size_t n)
      : store(std::move(s)), stream(std::move(i)), clock(std::move(c)), limit(l), first(f), found(n) {}
  S store;
  manifest::stream_info stream;
  any_clock clock;
  duration limit;
  std::uint64_t first;
  std::vector<std::shared_ptr<const manifest::version>> found;
  std::optional<failure> failed;

  static asio::awaitable<bool> one(std::shared_ptr<version_reads> r, std::size_t i) {
    random64 jitter(r->first + i);
    const std::uint64_t number = r->first + i;
    auto read = [&] { return read_version<Codecs>(r->store, r->stream, number); };
    result<log_entry> entry = co_await patiently(r->clock, jitter, r->limit, read);
    if (!entry) {
      if (!r->failed) r->failed = entry.error();
      co_return false;
    }
    r->found[i] = entry->version;
    co_return entry->what == log_entry::kind::present;
  }
};

template <class Reads>
class read_one_version {
 public:
  explicit read_one_version(std::shared_ptr<Reads> r) : reads(std::move(r)) {}
  asio::awaitable<bool> operator()(std::size_t i) { return Reads::one(reads, i); }
  std::shared_ptr<Reads> reads;
};
}  // namespace detail

/// Versions `first` to `last`, both included, up to 16 at a time. nullopt: one of them was buried. Errors: those of read_version, after
/// waiting up to `limit` for a store that is down.
template <class Codecs = manifest::builtin_codecs, object_store S>
asio::awaitable<result<std::optional<std::vector<std::shared_ptr<const manifest::version>>>>> read_versions(
    S store, manifest::stream_info stream, any_clock clock, duration limit, std::uint64_t first, std::uint64_t last) {
  using list = std::vector<std::shared_ptr<const manifest::version>>;
  using reads_type = detail::version_reads<Codecs, S>;
  const std::size_t n = last < first ? 0 : static_cast<std::size_t>(last - first + 1);
  auto reads = std::make_shared<reads_type>(std::move(store), std::move(stream), std::move(clock), limit, first, n);
  detail::read_one_version<reads_type> job(reads);
  co_await parallel_for(n, 16, job);
  if (reads->failed) co_return *reads->failed;
  for (const auto& v : reads->found) {
    if (!v) co_return std::optional<list>();
  }
  co_return std::optional<list>(std::move(reads->found));
}

}  // namespace batchweave::commit
