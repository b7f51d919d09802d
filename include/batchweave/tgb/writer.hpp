// A TGB object as a list of pieces to send: the slices from where they lie, checksums, padding, footer.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/base/checksum.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/tgb/footer.hpp>
#include <batchweave/tgb/layout.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::tgb {

/// An object ready to be sent. Refers to the slices, which must outlive it; owns the rest. Move-only.
class object {
 public:
  object() = default;
  object(object&&) noexcept = default;
  object& operator=(object&&) noexcept = default;

  const const_buffers& pieces() const noexcept { return pieces_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t footer_offset() const noexcept { return footer_offset_; }
  const slice_layout& layout() const noexcept { return layout_; }

 private:
  friend result<object> write(std::span<const const_bytes>, footer, std::uint32_t);
  slice_layout layout_;
  std::vector<std::byte> side_;    // checksum and padding of every slice
  std::vector<std::byte> footer_;
  const_buffers pieces_;
  std::uint64_t bytes_ = 0;
  std::uint64_t footer_offset_ = 0;
};

/// Plans the object of one step; hashes each slice once and copies none. Error: invalid_argument (alignment not a power of two up to
/// 1 MiB, no or too many slices).
inline result<object> write(std::span<const const_bytes> slices, footer f, std::uint32_t alignment) {
  const auto invalid = [&](std::string why) {
    return failure(errc::invalid_argument, "batch " + std::to_string(f.seq) + " of producer " + f.producer + ": " + std::move(why))
        .with_fate(fate::did_not_happen);
  };
  if (slices.empty() || slices.size() > 65536) return invalid(std::to_string(slices.size()) + " slices, must be 1 to 65536");
  object o;
  slice_layout& l = o.layout_;
  l.count = static_cast<std::uint32_t>(slices.size());
  l.alignment = alignment;
  l.fixed_size = slices[0].size();
  const bool same = std::all_of(slices.begin(), slices.end(), [&](const_bytes s) { return s.size() == l.fixed_size; });
  if (!same) {
    l.fixed_size = 0;
    for (const_bytes s : slices) l.sizes.push_back(s.size());
  }
  if (!l.check()) return invalid("alignment " + std::to_string(alignment) + " is not a power of two up to 1048576");

  std::vector<std::size_t> side_sizes;
  std::size_t side_total = 0;
  for (std::uint32_t i = 0; i < l.count; ++i) {
    const std::uint64_t stop = i + 1 < l.count ? l.aligned(l.end(i)) : l.end(i);
    side_sizes.push_back(static_cast<std::size_t>(stop - l.offset(i) - l.size(i)));
    side_total += side_sizes.back();
  }
  o.side_.resize(side_total);
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < l.count; ++i) {
    const std::uint64_t sum = xxh3(slices[i]);
    for (unsigned k = 0; k < checksum_bytes; ++k) o.side_[at + k] = static_cast<std::byte>(sum >> (8 * k));
    if (!slices[i].empty()) o.pieces_.push_back(slices[i]);
    o.pieces_.push_back(const_bytes(o.side_).subspan(at, side_sizes[i]));
    at += side_sizes[i];
  }
  o.footer_offset_ = l.data_end();
  f.layout = l;
  o.footer_ = encode_footer(f);
  o.pieces_.push_back(const_bytes(o.footer_));
  o.bytes_ = o.footer_offset_ + o.footer_.size();
  return o;
}

}  // namespace batchweave::tgb
