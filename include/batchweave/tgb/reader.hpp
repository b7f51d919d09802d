// One rank's share of a TGB: the one range to ask for, where its bytes go, and the check of what came.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/base/checksum.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/wire.hpp>
#include <batchweave/tgb/footer.hpp>
#include <batchweave/tgb/layout.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::tgb {

/// Slices [first, first + n) of an object, read with one range request: slice bytes land back to back in one buffer, checksums and
/// padding in a side buffer.
class read_plan {
 public:
  read_plan() = default;
  std::uint64_t range_offset() const noexcept { return offset_; }
  std::uint64_t range_length() const noexcept { return length_; }
  std::size_t slice_bytes() const noexcept { return slice_bytes_; }
  std::size_t side_bytes() const noexcept { return static_cast<std::size_t>(length_) - slice_bytes_; }
  const std::vector<std::size_t>& slice_sizes() const noexcept { return sizes_; }

  /// The destination of the range: pieces of `slices` (slice_bytes() long) and `side` (side_bytes() long) in turn.
  mutable_buffers scatter(mutable_bytes slices, mutable_bytes side) const {
    mutable_buffers out;
    out.reserve(2 * sizes_.size());
    std::size_t s = 0, d = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i]) out.push_back(slices.subspan(s, sizes_[i]));
      s += sizes_[i];
      out.push_back(side.subspan(d, side_[i]));
      d += side_[i];
    }
    return out;
  }
  /// Checks every slice against its checksum. Error: damaged, naming the slice.
  result<void> verify(const_bytes slices, const_bytes side) const {
    std::size_t s = 0, d = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      byte_reader stored(side.subspan(d, checksum_bytes));
      const std::uint64_t expected = stored.fixed(8);
      if (expected != xxh3(slices.subspan(s, sizes_[i]))) {
        return failure(errc::damaged, "checksum mismatch in slice " + std::to_string(first_ + i));
      }
      s += sizes_[i];
      d += side_[i];
    }
    return {};
  }

 private:
  friend result<read_plan> plan_read(const slice_layout&, std::uint32_t, std::uint32_t);
  std::uint32_t first_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t length_ = 0;
  std::size_t slice_bytes_ = 0;
  std::vector<std::size_t> sizes_;
  std::vector<std::size_t> side_;
};

/// The share of `rank` in a world of `world`: slices [rank*S/world, (rank+1)*S/world). Errors: invalid_argument, damaged.
inline result<read_plan> plan_read(const slice_layout& l, std::uint32_t rank, std::uint32_t world) {
  const result<void> usable = l.check();
  if (!usable) return usable.error();
  const result<void> divides = check_world_size(l.count, world);
  if (!divides) return divides.error();
  const std::uint32_t share = l.count / world;
  read_plan p;
  p.first_ = rank * share;
  const std::uint32_t last = p.first_ + share - 1;
  p.offset_ = l.offset(p.first_);
  p.length_ = l.end(last) - p.offset_;
  std::uint64_t at = p.offset_;
  for (std::uint32_t i = p.first_; i <= last; ++i) {
    const std::uint64_t size = l.size(i);
    const std::uint64_t stop = i < last ? l.aligned(at + size + checksum_bytes) : at + size + checksum_bytes;
    p.sizes_.push_back(static_cast<std::size_t>(size));
    p.side_.push_back(static_cast<std::size_t>(stop - at - size));
    p.slice_bytes_ += static_cast<std::size_t>(size);
    at = stop;
  }
  return p;
}

}  // namespace batchweave::tgb
