// The model: how often each byte is followed by each byte. Merging models is addition, so the result can be checked exactly.
#pragma once

#include "corpus.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace quickstart {

class bigram_model {
 public:
  static constexpr std::size_t cells = 65536;

  bigram_model() : counts_(cells) {}

  /// Trains on every pair of neighbours in `text`.
  void train(std::string_view text) {
    for (std::size_t i = 1; i < text.size(); ++i) ++counts_[cell(text[i - 1], text[i])];
  }
  void add(const bigram_model& other) {
    for (std::size_t i = 0; i < cells; ++i) counts_[i] += other.counts_[i];
  }

  std::vector<std::uint64_t>& counts() noexcept { return counts_; }
  const std::vector<std::uint64_t>& counts() const noexcept { return counts_; }
  friend bool operator==(const bigram_model&, const bigram_model&) = default;

 private:
  static std::size_t cell(char first, char second) {
    return std::size_t{static_cast<unsigned char>(first)} << 8 | static_cast<unsigned char>(second);
  }
  std::vector<std::uint64_t> counts_;
};

/// What a single reader of the whole input would have learnt: the reference for the merged model.
inline bigram_model train_directly(corpus& input) {
  bigram_model model;
  std::vector<char> block(1 << 20);
  // Neighbouring blocks share one byte, so that no pair is missed or counted twice.
  for (std::uint64_t at = 0; at + 1 < input.size();) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), input.size() - at));
    input.read(at, block.data(), n);
    model.train(std::string_view(block.data(), n));
    at += n - 1;
  }
  return model;
}

}  // namespace quickstart
