// The store that a URL names, under the prefix of one run.
#pragma once

#include "any_store.hpp"
#include "options.hpp"

#include <boost/asio/any_io_executor.hpp>

#include <filesystem>
#include <string>
#include <utility>

namespace quickstart {

inline bool is_s3(const options& o) { return o.store.rfind("s3://", 0) == 0; }

/// The folder of this run, for stores that are not S3.
inline std::filesystem::path run_folder(const options& o) {
  const std::string path = o.store.rfind("file://", 0) == 0 ? o.store.substr(7) : o.store;
  return std::filesystem::path(path) / o.run_name;
}

// S3 part filled in when the client is there.
}  // namespace quickstart
