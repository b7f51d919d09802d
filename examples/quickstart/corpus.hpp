// The text to train on: files laid end to end, repeated a number of times, readable at any offset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace quickstart {

/// Offsets run from 0 to size(); byte p is byte p % one_pass() of the concatenation. One object: one thread.
class corpus {
 public:
  /// `sources`: files and folders. Links are resolved, every file counts once, in the order of its path.
  /// Throws std::runtime_error that names what cannot be read or is empty.
  explicit corpus(const std::vector<std::string>& sources) {
    std::set<std::filesystem::path> paths;
    for (const std::string& source : sources) collect(source, paths);
    for (const std::filesystem::path& path : paths) {
      std::error_code failed;
      const std::uint64_t bytes = std::filesystem::file_size(path, failed);
      std::ifstream probe(path, std::ios::binary);
      if (failed || !probe) throw std::runtime_error(path.string() + ": cannot be read");
      if (bytes == 0) continue;
      files_.emplace_back(path, one_pass_, bytes);
      one_pass_ += bytes;
    }
    if (one_pass_ == 0) throw std::runtime_error("the input has no bytes: " + joined(sources));
  }

  void repeat(std::uint64_t passes) { passes_ = passes; }
  std::uint64_t passes() const noexcept { return passes_; }
  std::uint64_t one_pass() const noexcept { return one_pass_; }
  std::uint64_t size() const noexcept { return one_pass_ * passes_; }
  std::size_t files() const noexcept { return files_.size(); }

  /// Fills `into` with the `count` bytes from `offset`; they must lie inside size(). Throws when a file became shorter.
  void read(std::uint64_t offset, char* into, std::size_t count) {
    while (count > 0) {
      const std::uint64_t at = offset % one_pass_;
      const auto after = std::upper_bound(files_.begin(), files_.end(), at,
                                          [](std::uint64_t value, const file& f) { return value < f.begin; });
      const auto which = static_cast<std::size_t>(after - files_.begin()) - 1;
      const file& f = files_[which];
      const std::uint64_t skip = at - f.begin;
      const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(count, f.bytes - skip));
      open(which);
      stream_.seekg(static_cast<std::streamoff>(skip));
      stream_.read(into, static_cast<std::streamsize>(n));
      if (!stream_) throw std::runtime_error(f.path.string() + ": became shorter or unreadable while it was read");
      offset += n;
      into += n;
      count -= n;
    }
  }

 private:
  struct file {
    file(std::filesystem::path p, std::uint64_t b, std::uint64_t n) : path(std::move(p)), begin(b), bytes(n) {}
    std::filesystem::path path;
    std::uint64_t begin, bytes;
  };

  static void collect(const std::filesystem::path& source, std::set<std::filesystem::path>& paths) {
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(source, failed);
    if (failed) throw std::runtime_error(source.string() + ": " + failed.message());
    if (std::filesystem::is_regular_file(real)) {
      paths.insert(real);
      return;
    }
    if (!std::filesystem::is_directory(real)) throw std::runtime_error(source.string() + ": neither a file nor a folder");
    std::filesystem::recursive_directory_iterator entries(real, failed);
    if (failed) throw std::runtime_error(source.string() + ": " + failed.message());
    for (const std::filesystem::directory_entry& entry : entries) {
      if (entry.is_regular_file(failed)) paths.insert(std::filesystem::canonical(entry.path()));
    }
  }

  static std::string joined(const std::vector<std::string>& sources) {
    std::string all;
    for (const std::string& s : sources) all += (all.empty() ? "" : ", ") + s;
    return all;
  }

  void open(std::size_t which) {
    if (open_ == which && stream_.is_open()) {
      stream_.clear();
      return;
    }
    stream_.close();
    stream_.clear();
    stream_.open(files_[which].path, std::ios::binary);
    open_ = which;
  }

  std::vector<file> files_;
  std::uint64_t one_pass_ = 0;
  std::uint64_t passes_ = 1;
  std::size_t open_ = 0;
  std::ifstream stream_;
};

}  // namespace quickstart
