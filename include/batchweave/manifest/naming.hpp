// The keys of a stream's objects, and the names that may be part of one.
#pragma once

#include <batchweave/base/error.hpp>
#include <batchweave/base/id128.hpp>

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave::manifest {

inline constexpr std::size_t max_name_size = 128;

/// Whether `name` can be a producer id, group or checkpoint id. `what` is for the message. Error: invalid_argument.
inline result<void> check_name(std::string_view what, std::string_view name) {
  const auto bad = [&](std::string_view why) {
    return failure(errc::invalid_argument, std::string(what) + " '" + std::string(name.substr(0, max_name_size)) + "' " +
                                               std::string(why) + "; use 1 to 128 characters of A-Z a-z 0-9 . _ -")
        .with_fate(fate::did_not_happen);
  };
  if (name.empty()) return bad("is empty");
  if (name.size() > max_name_size) return bad("has " + std::to_string(name.size()) + " characters");
  if (name == "." || name == "..") return bad("means a folder");
  for (const char c : name) {
    const bool good = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!good) return bad("holds a character that is not allowed");
  }
  return {};
}

namespace detail {
inline std::string digits20(std::uint64_t v) {
  std::string s(20, '0');
  for (std::size_t i = 20; v != 0; v /= 10) s[--i] = static_cast<char>('0' + v % 10);
  return s;
}
inline std::optional<std::uint64_t> parse_digits(std::string_view s) {
  std::uint64_t v = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (s.empty() || ec != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return v;
}
inline std::optional<std::uint64_t> parse_digits20(std::string_view s) {
  return s.size() == 20 ? parse_digits(s) : std::nullopt;
}
/// Cuts `text` at the first '/' and returns what is before it.
inline std::string_view take_level(std::string_view& text) {
  const std::size_t at = text.find('/');
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return head;
}
inline bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}
inline std::string batch_key(std::string_view folder, std::string_view producer, std::uint64_t epoch, std::uint64_t seq) {
  return std::string(folder) + std::string(producer) + "/" + digits20(epoch) + "/" + digits20(seq);
}
}  // namespace detail

inline std::string stream_key() { return "stream"; }
inline std::string log_prefix() { return "log/"; }
inline std::string seg_prefix() { return "seg/"; }
inline std::string tgb_prefix() { return "tgb/"; }
inline std::string inbox_prefix() { return "inbox/"; }
inline std::string ckpt_prefix() { return "ckpt/"; }
/// Of one producer's TGBs.
inline std::string tgb_prefix(std::string_view producer) { return "tgb/" + std::string(producer) + "/"; }
inline std::string inbox_prefix(std::string_view producer) { return "inbox/" + std::string(producer) + "/"; }
inline std::string ckpt_prefix(std::string_view group) { return "ckpt/" + std::string(group) + "/"; }

/// Version v. The number is inverted, so that the newest version is the first key in byte order.
inline std::string log_key(std::uint64_t version) {
  return log_prefix() + detail::digits20(std::numeric_limits<std::uint64_t>::max() - version);
}
inline std::optional<std::uint64_t> parse_log_key(std::string_view key) {
  if (!detail::take_prefix(key, "log/")) return std::nullopt;
  const auto v = detail::parse_digits20(key);
  if (!v) return std::nullopt;
  return std::numeric_limits<std::uint64_t>::max() - *v;
}

inline std::string tgb_key(std::string_view producer, std::uint64_t epoch, std::uint64_t seq) {
  return detail::batch_key("tgb/", producer, epoch, seq);
}
/// Object `part` of a TGB of several objects.
inline std::string tgb_key(std::string_view producer, std::uint64_t epoch, std::uint64_t seq, std::uint32_t part) {
  return tgb_key(producer, epoch, seq) + "." + std::to_string(part);
}
inline std::string inbox_key(std::string_view producer, std::uint64_t epoch, std::uint64_t seq) {
  return detail::batch_key("inbox/", producer, epoch, seq);
}

/// What a TGB or inbox key names.
class batch_name {
 public:
  batch_name() {}
  std::string producer;
  std::uint64_t epoch = 0;
  std::uint64_t seq = 0;
  std::optional<std::uint32_t> part;
  friend bool operator==(const batch_name&, const batch_name&) = default;
};

namespace detail {
inline std::optional<batch_name> parse_batch_key(std::string_view key, std::string_view folder, bool parts) {
  if (!take_prefix(key, folder)) return std::nullopt;
  batch_name n;
  n.producer = std::string(take_level(key));
  const auto epoch = parse_digits20(take_level(key));
  const auto seq = parse_digits20(key.substr(0, 20));
  if (!check_name("producer id", n.producer) || !epoch || !seq) return std::nullopt;
  n.epoch = *epoch;
  n.seq = *seq;
  if (key.size() > 20) {
    const auto part = parse_digits(key.substr(21));
    const bool canonical = part && *part <= std::numeric_limits<std::uint32_t>::max() && std::to_string(*part) == key.substr(21);
    if (!parts || key[20] != '.' || !canonical) return std::nullopt;
    n.part = static_cast<std::uint32_t>(*part);
  }
  return n;
}
}  // namespace detail

inline std::optional<batch_name> parse_tgb_key(std::string_view key) { return detail::parse_batch_key(key, "tgb/", true); }
/// What follows a '.' after the seq is the announcement itself and not looked at.
inline std::optional<batch_name> parse_inbox_key(std::string_view key) {
  const std::size_t level = key.rfind('/');
  const std::size_t dot = level == std::string_view::npos ? level : key.find('.', level);
  return detail::parse_batch_key(key.substr(0, dot), "inbox/", false);
}

/// Sealed entries of steps [first, end).
inline std::string seg_key(std::uint64_t first, std::uint64_t end, id128 nonce) {
  return seg_prefix() + detail::digits20(first) + "-" + detail::digits20(end) + "-" + nonce.to_string();
}

class segment_name {
 public:
  segment_name() {}
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  id128 nonce;
  friend bool operator==(const segment_name&, const segment_name&) = default;
};
inline std::optional<segment_name> parse_seg_key(std::string_view key) {
  if (!detail::take_prefix(key, "seg/") || key.size() != 74 || key[20] != '-' || key[41] != '-') return std::nullopt;
  const auto first = detail::parse_digits20(key.substr(0, 20));
  const auto end = detail::parse_digits20(key.substr(21, 20));
  const auto nonce = id128::parse(key.substr(42));
  if (!first || !end || !nonce) return std::nullopt;
  segment_name n;
  n.first = *first;
  n.end = *end;
  n.nonce = *nonce;
  return n;
}

/// The marks of one checkpoint in one generation of its group, at one step: a mark of another run or place can never count.
inline std::string ckpt_prefix(std::string_view group, std::string_view checkpoint, std::uint64_t generation, std::uint64_t step) {
  return ckpt_prefix(group) + std::string(checkpoint) + "@" + std::to_string(generation) + "-" + std::to_string(step) + "/";
}
/// The mark of one rank that its shard of a checkpoint is durable.
inline std::string ckpt_key(std::string_view group, std::string_view checkpoint, std::uint64_t generation, std::uint64_t step,
                            std::uint32_t rank) {
  return ckpt_prefix(group, checkpoint, generation, step) + std::to_string(rank);
}

class mark_name {
 public:
  mark_name() {}
  std::string group;
  std::string checkpoint;
  std::uint64_t generation = 0;
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  friend bool operator==(const mark_name&, const mark_name&) = default;
};
inline std::optional<mark_name> parse_ckpt_key(std::string_view key) {
  const std::string_view whole = key;
  if (!detail::take_prefix(key, "ckpt/")) return std::nullopt;
  mark_name n;
  n.group = std::string(detail::take_level(key));
  std::string_view folder = detail::take_level(key);
  const std::size_t at = folder.find('@');
  const std::size_t dash = folder.find('-', at == std::string_view::npos ? folder.size() : at);
  if (at == std::string_view::npos || dash == std::string_view::npos) return std::nullopt;
  n.checkpoint = std::string(folder.substr(0, at));
  const auto generation = detail::parse_digits(folder.substr(at + 1, dash - at - 1));
  const auto step = detail::parse_digits(folder.substr(dash + 1));
  const auto rank = detail::parse_digits(key);
  if (!check_name("group", n.group) || !check_name("checkpoint id", n.checkpoint) || !generation || !step || !rank ||
      *rank > std::numeric_limits<std::uint32_t>::max()) {
    return std::nullopt;
  }
  n.generation = *generation;
  n.step = *step;
  n.rank = static_cast<std::uint32_t>(*rank);
  if (ckpt_key(n.group, n.checkpoint, n.generation, n.step, n.rank) != whole) return std::nullopt;  // digits with zeros in front
  return n;
}

}  // namespace batchweave::manifest
