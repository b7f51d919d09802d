// Where the slices of a TGB lie in its object.
#pragma once

#include <batchweave/base/error.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace batchweave::tgb {

inline constexpr std::uint32_t max_slices = 65536;
inline constexpr std::uint32_t max_alignment = 1u << 20;
inline constexpr std::uint64_t max_slice_bytes = std::uint64_t{1} << 42;  // keeps every offset below 2^63
inline constexpr std::uint64_t checksum_bytes = 8;

/// Slices back to back from offset 0, each followed by its checksum, each started at a multiple of `alignment`. Pure values, bytes.
/// offset() costs O(1) for slices of one size and O(i) otherwise.
class slice_layout {
 public:
  slice_layout() {}
  std::uint32_t count = 0;
  std::uint32_t alignment = 1;        ///< power of two
  std::uint64_t fixed_size = 0;       ///< size of every slice when `sizes` is empty
  std::vector<std::uint64_t> sizes;   ///< one per slice, or empty

  friend bool operator==(const slice_layout&, const slice_layout&) = default;

  std::uint64_t size(std::uint32_t i) const { return sizes.empty() ? fixed_size : sizes[i]; }
  std::uint64_t aligned(std::uint64_t at) const { return (at + alignment - 1) & ~std::uint64_t{alignment - 1}; }
  /// Start of slice i.
  std::uint64_t offset(std::uint32_t i) const {
    if (sizes.empty()) return i * aligned(fixed_size + checksum_bytes);
    std::uint64_t at = 0;
    for (std::uint32_t k = 0; k < i; ++k) at = aligned(at + sizes[k] + checksum_bytes);
    return at;
  }
  /// Start of the checksum of slice i, which is the end of its bytes.
  std::uint64_t checksum_offset(std::uint32_t i) const { return offset(i) + size(i); }
  /// End of slice i and its checksum.
  std::uint64_t end(std::uint32_t i) const { return checksum_offset(i) + checksum_bytes; }
  /// End of the last slice and its checksum; the footer follows.
  std::uint64_t data_end() const { return count == 0 ? 0 : end(count - 1); }

  /// Why the other functions must not be called on this layout, or nothing. Error: damaged.
  result<void> check() const {
    const auto wrong = [](std::string why) { return failure(errc::damaged, "slice layout: " + std::move(why)); };
    if (count > max_slices) return wrong(std::to_string(count) + " slices, at most " + std::to_string(max_slices));
    if (!std::has_single_bit(alignment) || alignment > max_alignment) {
      return wrong("alignment " + std::to_string(alignment) + " is not a power of two up to " + std::to_string(max_alignment));
    }
    if (!sizes.empty() && sizes.size() != count) {
      return wrong(std::to_string(sizes.size()) + " sizes for " + std::to_string(count) + " slices");
    }
    if (!sizes.empty() && fixed_size != 0) return wrong("both a fixed size and a table of sizes");
    const std::uint64_t largest = sizes.empty() ? fixed_size : *std::max_element(sizes.begin(), sizes.end());
    if (largest > max_slice_bytes) return wrong("a slice of " + std::to_string(largest) + " bytes");
    return {};
  }
};

/// Whether `world` ranks can share `slices` slices evenly. Error: invalid_argument that lists the world sizes which work.
inline result<void> check_world_size(std::uint32_t slices, std::uint32_t world) {
  if (world != 0 && slices != 0 && slices % world == 0) return {};
  std::string works;
  for (std::uint32_t n = 1; n <= slices; ++n) {
    if (slices % n == 0) works += (works.empty() ? "" : ", ") + std::to_string(n);
  }
  return failure(errc::invalid_argument, "world size " + std::to_string(world) + " does not divide the " + std::to_string(slices) +
                                             " slices of a step; world sizes that work: " + (works.empty() ? "none" : works))
      .with_fate(fate::did_not_happen);
}

}  // namespace batchweave::tgb
