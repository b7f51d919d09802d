// Keys as file names: what lies where in the folder of a file store.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace batchweave::detail {

// A key is split at '/'; the last segment names a file and gets ".obj", the others are folders. So the keys "a" and "a/b" can both
// exist, and files that are not ours (no ".obj") are never listed. Escaped as %XX: '%', a leading '.', and the '.' of a folder that
// ends in ".obj". An empty segment is "%". Everything else, UTF-8 included, is kept as it is.

inline constexpr std::string_view object_suffix = ".obj";
inline constexpr std::size_t max_file_name = 255;

inline void append_escaped(std::string& out, char c) {
  static constexpr char digits[] = "0123456789ABCDEF";
  out += '%';
  out += digits[static_cast<unsigned char>(c) >> 4];
  out += digits[static_cast<unsigned char>(c) & 15];
}

inline std::string segment_to_name(std::string_view segment, bool folder) {
  if (segment.empty()) return folder ? "%" : "%" + std::string(object_suffix);
  std::string name;
  const std::size_t dot = folder && segment.ends_with(object_suffix) ? segment.size() - object_suffix.size() : std::string_view::npos;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    const char c = segment[i];
    if (c == '%' || (c == '.' && (i == 0 || i == dot))) append_escaped(name, c);
    else name += c;
  }
  if (!folder) name += object_suffix;
  return name;
}

/// The segment a folder entry stands for; nullopt when the entry is not ours. `folder` tells what it must be on disk.
inline std::optional<std::string> name_to_segment(std::string_view name, bool& folder) {
  if (name.empty() || name.front() == '.') return std::nullopt;
  folder = !name.ends_with(object_suffix);
  const std::string_view text = folder ? name : name.substr(0, name.size() - object_suffix.size());
  std::string segment;
  if (text != "%") {
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '%') {
        segment += text[i];
        continue;
      }
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = digit(text[i + 1]), low = digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      segment += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  if (segment_to_name(segment, folder) != name) return std::nullopt;  // one name for each key, or listings would show ghosts
  return segment;
}

/// Path of an object relative to the root; nullopt when a segment is too long for a file name.
inline std::optional<std::string> key_to_path(std::string_view key) {
  std::string path;
  for (;;) {
    const std::size_t slash = key.find('/');
    const bool folder = slash != std::string_view::npos;
    const std::string name = segment_to_name(key.substr(0, slash), folder);
    if (name.size() > max_file_name) return std::nullopt;
    path += name;
    if (!folder) return path;
    path += '/';
    key.remove_prefix(slash + 1);
  }
}

}  // namespace batchweave::detail
