// A rank's checkpoint: the model, what it has seen and the stream cursor, in one file that is replaced atomically.
#pragma once

#include "bigram.hpp"
#include "coverage.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace quickstart {

/// Writes a file whole or not at all: a process that is killed leaves the old content. (A power cut needs an fsync as well.)
inline void replace_file(const std::filesystem::path& path, const std::string& content) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.flush();
    if (!out) throw std::runtime_error(temporary.string() + ": cannot be written");
  }
  std::filesystem::rename(temporary, path);
}

inline std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

class checkpoint {
 public:
  std::string cursor;           ///< batchweave::cursor as text; belongs to exactly this model
  std::uint64_t steps = 0;      ///< steps trained, each checked to be the one after the step before
  std::uint64_t samples = 0;    ///< what the batches said about themselves, added up
  std::uint64_t resumed = 0;    ///< how often a restarted rank went on from here
  bigram_model model;
  coverage seen;

  void save(const std::filesystem::path& path) const {
    std::string text = "quickstart-checkpoint-1\n" + cursor + "\n";
    append(text, steps);
    append(text, samples);
    append(text, resumed);
    append(text, seen.intervals().size());
    for (const coverage::interval& i : seen.intervals()) {
      append(text, i.first);
      append(text, i.second);
    }
    for (const std::uint64_t count : model.counts()) append(text, count);
    replace_file(path, text);
  }

  /// nullopt: no checkpoint yet. Throws when the file is damaged.
  static std::optional<checkpoint> load(const std::filesystem::path& path) {
    const std::optional<std::string> text = read_file(path);
    if (!text) return std::nullopt;
    const std::string damaged = path.string() + ": not a checkpoint of this program";
    const std::size_t title = text->find('\n');
    const std::size_t line = title == std::string::npos ? title : text->find('\n', title + 1);
    if (line == std::string::npos || text->substr(0, title) != "quickstart-checkpoint-1") throw std::runtime_error(damaged);
    checkpoint c;
    c.cursor = text->substr(title + 1, line - title - 1);
    std::size_t at = line + 1;
    const auto take = [&] {
      std::uint64_t value = 0;
      if (text->size() - at < sizeof value) throw std::runtime_error(damaged);
      text->copy(reinterpret_cast<char*>(&value), sizeof value, at);
      at += sizeof value;
      return value;
    };
    c.steps = take();
    c.samples = take();
    c.resumed = take();
    const std::uint64_t intervals = take();
    for (std::uint64_t i = 0; i < intervals; ++i) {
      const std::uint64_t first = take();
      c.seen.intervals().emplace_back(first, take());
    }
    for (std::uint64_t& count : c.model.counts()) count = take();
    return c;
  }

 private:
  static void append(std::string& text, std::uint64_t value) { text.append(reinterpret_cast<const char*>(&value), sizeof value); }
};

}  // namespace quickstart
