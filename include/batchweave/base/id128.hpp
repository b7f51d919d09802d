// 128 random bits: stream ids, nonces of committers and incarnations.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace batchweave {

class id128 {
 public:
  constexpr id128() noexcept : hi_(0), lo_(0) {}
  constexpr id128(std::uint64_t hi, std::uint64_t lo) noexcept : hi_(hi), lo_(lo) {}
  template <class Random>
  static id128 draw(Random& r) {
    const std::uint64_t hi = r();
    const std::uint64_t lo = r();
    return {hi, lo};
  }

  constexpr std::uint64_t hi() const noexcept { return hi_; }
  constexpr std::uint64_t lo() const noexcept { return lo_; }
  constexpr bool empty() const noexcept { return hi_ == 0 && lo_ == 0; }
  friend constexpr auto operator<=>(const id128&, const id128&) = default;

  /// 32 lower-case hexadecimal digits.
  std::string to_string() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string s(32, '0');
    for (int i = 0; i < 16; ++i) {
      s[15 - i] = digits[(hi_ >> (4 * i)) & 15];
      s[31 - i] = digits[(lo_ >> (4 * i)) & 15];
    }
    return s;
  }
  static std::optional<id128> parse(std::string_view s) {
    if (s.size() != 32) return std::nullopt;
    std::uint64_t half[2] = {0, 0};
    for (std::size_t i = 0; i < 32; ++i) {
      const char c = s[i];
      unsigned d = 0;
      if (c >= '0' && c <= '9') d = static_cast<unsigned>(c - '0');
      else if (c >= 'a' && c <= 'f') d = static_cast<unsigned>(c - 'a' + 10);
      else return std::nullopt;
      half[i / 16] = half[i / 16] << 4 | d;
    }
    return id128(half[0], half[1]);
  }

 private:
  std::uint64_t hi_, lo_;
};

}  // namespace batchweave
