// Which offsets of the input were seen: intervals, and the proof that together they hold every offset exactly once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quickstart {

class coverage {
 public:
  using interval = std::pair<std::uint64_t, std::uint64_t>;  // [first, second)

  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    if (!seen_.empty() && seen_.back().second == begin) seen_.back().second = end;
    else seen_.emplace_back(begin, end);
  }
  void add(const coverage& other) { seen_.insert(seen_.end(), other.seen_.begin(), other.seen_.end()); }

  std::vector<interval>& intervals() noexcept { return seen_; }
  const std::vector<interval>& intervals() const noexcept { return seen_; }

  /// Empty when every offset of [0, size) was seen exactly once, otherwise the first gap or overlap.
  std::string fault(std::uint64_t size) const {
    std::vector<interval> sorted = seen_;
    std::sort(sorted.begin(), sorted.end());
    std::uint64_t expected = 0;
    for (const interval& i : sorted) {
      if (i.first > expected) return "tokens " + std::to_string(expected) + " to " + std::to_string(i.first) + " were never seen";
      if (i.first < expected) return "tokens from " + std::to_string(i.first) + " were seen twice";
      expected = i.second;
    }
    if (expected < size) return "tokens " + std::to_string(expected) + " to " + std::to_string(size) + " were never seen";
    if (expected > size) return "tokens beyond the end of the input were seen";
    return {};
  }

 private:
  std::vector<interval> seen_;
};

}  // namespace quickstart
