// An environment of the test's own, and files for it to name.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace test {

/// A home folder in which nothing is.
inline std::string home() { return "/nonexistent"; }

/// An environment with these variables and HOME.
inline std::function<std::optional<std::string>(const std::string&)> variables(std::map<std::string, std::string> values) {
  values.emplace("HOME", home());
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto at = values.find(name);
    if (at == values.end()) return std::nullopt;
    return at->second;
  };
}

/// A file that goes away with the test.
class temporary_file {
 public:
  explicit temporary_file(const std::string& text) {
    std::string name = "/tmp/batchweave-keys-XXXXXX";
    const int fd = ::mkstemp(name.data());
    if (fd >= 0) ::close(fd);
    path_ = name;
    std::ofstream(path_, std::ios::binary) << text;
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace test
