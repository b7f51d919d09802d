// How text becomes slices of one fixed size, and how a rank finds its run of bytes in one.
#pragma once

#include "corpus.hpp"

#include <batchweave/base/bytes.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace quickstart {

/// A slice: offset of the run (8 bytes), tokens in it (4), bytes in it (4: one more than tokens when a byte follows), the bytes, padding.
/// The byte that follows the run comes along, so that the pair across the border of two slices is trained exactly once.
inline constexpr std::size_t slice_header = 16;

class token_run {
 public:
  /// Reads a slice. Throws std::runtime_error when its lengths contradict each other.
  explicit token_run(batchweave::const_bytes slice) {
    std::uint32_t bytes = 0;
    if (slice.size() < slice_header) throw std::runtime_error("a slice of " + std::to_string(slice.size()) + " bytes has no header");
    std::memcpy(&offset_, slice.data(), 8);
    std::memcpy(&tokens_, slice.data() + 8, 4);
    std::memcpy(&bytes, slice.data() + 12, 4);
    if (bytes < tokens_ || bytes - tokens_ > 1 || bytes > slice.size() - slice_header) {
      throw std::runtime_error("a slice header says " + std::to_string(tokens_) + " tokens in " + std::to_string(bytes) + " bytes");
    }
    text_ = batchweave::as_text(slice.subspan(slice_header, bytes));
  }
  std::uint64_t offset() const noexcept { return offset_; }
  std::uint32_t tokens() const noexcept { return tokens_; }
  /// The tokens and the one that follows them, if any.
  std::string_view text() const noexcept { return text_; }

 private:
  std::uint64_t offset_ = 0;
  std::uint32_t tokens_ = 0;
  std::string_view text_;
};

/// Cuts [begin, end) of a corpus into steps of `slices` slices of `tokens` tokens each. The last step is padded, never short.
class packer {
 public:
  packer(corpus& input, std::uint64_t begin, std::uint64_t end, std::uint32_t slices, std::uint32_t tokens)
      : input_(&input), at_(begin), end_(end), slices_(slices), tokens_(tokens) {}

  bool done() const noexcept { return at_ >= end_; }
  /// Where the next step begins: the source cursor that is committed with the step before it.
  std::uint64_t offset() const noexcept { return at_; }

  std::vector<batchweave::byte_buffer> next() {
    std::vector<batchweave::byte_buffer> step;
    for (std::uint32_t i = 0; i < slices_; ++i) {
      const auto tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens_, end_ - at_));
      const std::uint32_t bytes = tokens + (tokens > 0 && at_ + tokens < input_->size() ? 1 : 0);
      batchweave::byte_buffer slice(slice_header + tokens_ + 1);
      std::memcpy(slice.data(), &at_, 8);
      std::memcpy(slice.data() + 8, &tokens, 4);
      std::memcpy(slice.data() + 12, &bytes, 4);
      char* text = reinterpret_cast<char*>(slice.data()) + slice_header;
      input_->read(at_, text, bytes);
      std::memset(text + bytes, 0, tokens_ + 1 - bytes);
      step.push_back(std::move(slice));
      at_ += tokens;
    }
    return step;
  }

 private:
  corpus* input_;
  std::uint64_t at_, end_;
  std::uint32_t slices_, tokens_;
};

}  // namespace quickstart
