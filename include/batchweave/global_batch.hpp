// All slices of one training step, owned, on their way to the store.
#pragma once

#include <batchweave/base/bytes.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace batchweave {

/// One step for all ranks: slice i is what rank i of a world of `slices` ranks trains on. Move-only. Slices may differ in size and be empty.
class global_batch {
 public:
  global_batch() = default;
  explicit global_batch(std::vector<byte_buffer> slices) : slices_(std::move(slices)) {}

  global_batch& samples(std::uint64_t n) & { samples_ = n; return *this; }
  global_batch&& samples(std::uint64_t n) && { samples_ = n; return std::move(*this); }
  /// A short text that lies in the manifest and comes back with every slice; at most 1024 bytes.
  global_batch& tag(std::string t) & { tag_ = std::move(t); return *this; }
  global_batch&& tag(std::string t) && { tag_ = std::move(t); return std::move(*this); }

  const std::vector<byte_buffer>& slices() const noexcept { return slices_; }
  std::uint64_t samples() const noexcept { return samples_; }
  const std::string& tag() const noexcept { return tag_; }
  std::uint64_t bytes() const noexcept { return total_size(slices_); }

 private:
  std::vector<byte_buffer> slices_;
  std::uint64_t samples_ = 0;
  std::string tag_;
};
static_assert(!std::is_aggregate_v<global_batch>);

}  // namespace batchweave
