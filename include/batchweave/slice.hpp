// The bytes one rank needs for one step, checked.
#pragma once

#include <batchweave/base/bytes.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

/// One rank's share of one step: S/R slices of the TGB, contiguous, checksums verified. Move-only; owns its memory, which comes from the
/// consumer's memory resource.
class slice {
 public:
  slice() = default;
  slice(std::uint64_t step, byte_buffer bytes, std::vector<std::size_t> sizes, std::string producer, std::uint64_t samples, std::string tag)
      : step_(step), bytes_(std::move(bytes)), sizes_(std::move(sizes)), producer_(std::move(producer)), samples_(samples), tag_(std::move(tag)) {}

  std::uint64_t step() const noexcept { return step_; }
  const_bytes bytes() const noexcept { return bytes_.bytes(); }
  /// Number of the TGB's slices in here: slices per step / world size.
  std::size_t parts() const noexcept { return sizes_.size(); }
  /// Part i, 0 <= i < parts().
  const_bytes part(std::size_t i) const noexcept {
    std::size_t at = 0;
    for (std::size_t k = 0; k < i; ++k) at += sizes_[k];
    return bytes_.bytes().subspan(at, sizes_[i]);
  }
  const std::string& producer() const noexcept { return producer_; }
  /// As given to global_batch: of the whole step, not of this rank's share.
  std::uint64_t samples() const noexcept { return samples_; }
  const std::string& tag() const noexcept { return tag_; }

 private:
  std::uint64_t step_ = 0;
  byte_buffer bytes_;
  std::vector<std::size_t> sizes_;
  std::string producer_;
  std::uint64_t samples_ = 0;
  std::string tag_;
};

}  // namespace batchweave
