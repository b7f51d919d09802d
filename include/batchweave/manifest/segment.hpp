// A sealed piece of the index: the entries of a run of steps, in blocks that can be read one by one.
#pragma once

#include <batchweave/base/checksum.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/wire.hpp>
#include <batchweave/manifest/binary.hpp>
#include <batchweave/manifest/fields.hpp>
#include <batchweave/manifest/version.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::manifest {

/// Batches [first_seq, end_seq) of a producer that were committed by one epoch.
class seq_run {
 public:
  seq_run() {}
  std::string producer;
  std::uint64_t epoch = 0;
  std::uint64_t first_seq = 0;
  std::uint64_t end_seq = 0;
  friend bool operator==(const seq_run&, const seq_run&) = default;
};

/// Adds the next batch of a producer, in seq order, to its runs.
inline void extend(std::vector<seq_run>& runs, const tgb_reference& e) {
  if (!runs.empty() && runs.back().epoch == e.epoch && runs.back().end_seq == e.seq) {
    ++runs.back().end_seq;
    return;
  }
  seq_run r;
  r.producer = e.producer;
  r.epoch = e.epoch;
  r.first_seq = e.seq;
  r.end_seq = e.seq + 1;
  runs.push_back(std::move(r));
}

/// Where a block of entries lies in its segment, checksum included.
class segment_block {
 public:
  segment_block() {}
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const segment_block&, const segment_block&) = default;
};

/// The head of a segment.
class segment_index {
 public:
  segment_index() {}
  id128 stream_id;
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  std::uint64_t block_steps = 1;       ///< entries in each block but the last
  std::vector<seq_run> runs;           ///< what the segment holds of each producer
  std::vector<segment_block> blocks;
  /// The block that holds `step`, for first <= step < end.
  std::size_t block_of(std::uint64_t step) const { return static_cast<std::size_t>((step - first) / block_steps); }
  std::uint64_t first_of(std::size_t block) const { return first + block * block_steps; }
  std::uint64_t end_of(std::size_t block) const { return std::min(end, first_of(block) + block_steps); }
  friend bool operator==(const segment_index&, const segment_index&) = default;
};

namespace detail {
template <class A, maybe_const<seq_run> T>
void describe(A& a, T& x) {
  a("producer", x.producer);
  a("epoch", x.epoch);
  a("first_seq", x.first_seq);
  a("end_seq", x.end_seq);
}
template <class A, maybe_const<segment_block> T>
void describe(A& a, T& x) {
  a("offset", x.offset);
  a("bytes", x.bytes);
}
template <class A, maybe_const<segment_index> T>
void describe(A& a, T& x) {
  a("stream_id", x.stream_id);
  a("first", x.first);
  a("end", x.end);
  a("block_steps", x.block_steps);
  a("runs", x.runs);
  a("blocks", x.blocks);
}
inline failure segment_damaged(const std::string& why) { return failure(errc::damaged, "index segment: " + why); }
}  // namespace detail

/// Layout: magic "BWSG", format, size of the head (8 + 8 bytes), the head, its XXH3-64; then the blocks, each with its own.
/// Block offsets count from the end of the head.
struct segment_format {
  static constexpr std::string_view magic = "BWSG";
  static constexpr std::uint32_t format = 1;
  static constexpr std::size_t prefix_bytes = 16;
  static constexpr std::size_t checksum_bytes = 8;
  static constexpr std::uint64_t block_steps = 512;
  static constexpr std::uint64_t head_limit = std::uint64_t{256} << 20;
};

/// The object that holds the entries of steps [first, first + entries.size()).
inline std::vector<std::byte> encode_segment(id128 stream_id, std::uint64_t first, std::span<const tgb_entry> entries) {
  segment_index index;
  index.stream_id = stream_id;
  index.first = first;
  index.end = first + entries.size();
  index.block_steps = segment_format::block_steps;
  std::map<std::string_view, std::vector<seq_run>> runs;
  for (const tgb_entry& e : entries) extend(runs[e.producer], e);
  for (auto& [producer, list] : runs) {
    for (seq_run& r : list) index.runs.push_back(std::move(r));
  }
  std::vector<std::byte> body;
  for (std::size_t at = 0; at < entries.size(); at += segment_format::block_steps) {
    byte_writer block;
    detail::binary_writer fields(block);
    const std::size_t n = std::min<std::size_t>(segment_format::block_steps, entries.size() - at);
    for (const tgb_entry& e : entries.subspan(at, n)) detail::describe(fields, e);
    block.fixed64(xxh3(block.bytes()));
    segment_block where;
    where.offset = body.size();
    where.bytes = block.bytes().size();
    index.blocks.push_back(where);
    body.insert(body.end(), block.bytes().begin(), block.bytes().end());
  }
  byte_writer head;
  detail::binary_writer fields(head);
  detail::describe(fields, index);
  byte_writer out;
  out.raw(as_bytes(segment_format::magic));
  out.fixed32(segment_format::format);
  out.fixed64(segment_format::prefix_bytes + head.bytes().size() + segment_format::checksum_bytes);
  out.raw(head.bytes());
  out.fixed64(xxh3(out.bytes()));
  out.raw(body);
  return out.take();
}

/// Size of the head, told by the first 16 bytes; blocks begin there. Errors: damaged; not_supported for a newer format.
inline result<std::uint64_t> segment_head_bytes(const_bytes start) {
  if (start.size() < segment_format::prefix_bytes) return detail::segment_damaged("it is too short");
  byte_reader in(start.first(segment_format::prefix_bytes));
  if (as_text(in.raw(segment_format::magic.size())) != segment_format::magic) return detail::segment_damaged("the magic is missing");
  const std::uint64_t format = in.fixed(4);
  if (format > segment_format::format) return detail::newer_format("index segment", format, segment_format::format);
  const std::uint64_t head = in.fixed(8);
  if (format == 0 || head < segment_format::prefix_bytes + segment_format::checksum_bytes || head > segment_format::head_limit) {
    return detail::segment_damaged("its head cannot be");
  }
  return head;
}

/// Reads the head; `head` is exactly segment_head_bytes() long, `object_bytes` the size of the object. Errors: damaged.
inline result<segment_index> decode_segment_index(const_bytes head, std::uint64_t object_bytes) {
  const result<std::uint64_t> size = segment_head_bytes(head);
  if (!size) return size.error();
  if (*size != head.size()) return detail::segment_damaged("its head is cut off");
  const const_bytes covered = head.first(head.size() - segment_format::checksum_bytes);
  byte_reader sum(head.last(segment_format::checksum_bytes));
  if (xxh3(covered) != sum.fixed(8)) return detail::segment_damaged("the checksum of its head does not match");
  byte_reader in(covered.subspan(segment_format::prefix_bytes));
  segment_index index;
  detail::binary_reader fields(in);
  detail::describe(fields, index);
  if (!in.ok() || in.left() != 0) return detail::segment_damaged("field '" + std::string(fields.failed()) + "' cannot be read");
  if (index.end <= index.first || index.block_steps == 0) return detail::segment_damaged("it holds no steps");
  const std::uint64_t steps = index.end - index.first;
  if (index.blocks.size() != (steps - 1) / index.block_steps + 1) return detail::segment_damaged("its number of blocks is wrong");
  std::uint64_t at = 0;
  for (const segment_block& b : index.blocks) {
    if (b.offset != at || b.bytes < segment_format::checksum_bytes || b.bytes > object_bytes) {
      return detail::segment_damaged("its blocks do not follow each other");
    }
    at += b.bytes;
  }
  if (object_bytes < head.size() || at != object_bytes - head.size()) return detail::segment_damaged("its size is not that of its blocks");
  return index;
}

/// Entries of one block. Errors: damaged.
inline result<std::vector<tgb_entry>> decode_segment_block(const segment_index& index, std::size_t block, const_bytes bytes) {
  if (bytes.size() != index.blocks[block].bytes) return detail::segment_damaged("a block is cut off");
  const const_bytes covered = bytes.first(bytes.size() - segment_format::checksum_bytes);
  byte_reader sum(bytes.last(segment_format::checksum_bytes));
  if (xxh3(covered) != sum.fixed(8)) return detail::segment_damaged("the checksum of a block does not match");
  byte_reader in(covered);
  detail::binary_reader fields(in);
  std::vector<tgb_entry> entries;
  const std::uint64_t n = index.end_of(block) - index.first_of(block);
  for (std::uint64_t i = 0; i < n && in.ok(); ++i) {
    tgb_entry e;
    detail::describe(fields, e);
    if (const result<void> sound = e.layout.check(); in.ok() && !sound) return sound.error();
    entries.push_back(std::move(e));
  }
  if (!in.ok() || in.left() != 0) return detail::segment_damaged("an entry cannot be read");
  return entries;
}

}  // namespace batchweave::manifest
