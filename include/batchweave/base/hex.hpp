// Bytes as lower-case hexadecimal digits, and back.
#pragma once

#include <batchweave/base/bytes.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace batchweave {

inline std::string to_hex(const_bytes b) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string s;
  s.reserve(2 * b.size());
  for (const std::byte x : b) {
    s += digits[std::to_integer<unsigned>(x) >> 4];
    s += digits[std::to_integer<unsigned>(x) & 15];
  }
  return s;
}

/// nullopt for anything that to_hex does not write.
inline std::optional<std::vector<std::byte>> from_hex(std::string_view s) {
  const auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (s.size() % 2) return std::nullopt;
  std::vector<std::byte> out;
  out.reserve(s.size() / 2);
  for (std::size_t i = 0; i < s.size(); i += 2) {
    const int hi = value(s[i]);
    const int lo = value(s[i + 1]);
    if (hi < 0 || lo < 0) return std::nullopt;
    out.push_back(static_cast<std::byte>(hi << 4 | lo));
  }
  return out;
}

}  // namespace batchweave
