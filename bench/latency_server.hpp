// A scripted S3 server whose every answer takes a while, in a process of its own: this program, called with --as server.
#pragma once

#include "child.hpp"

#include <batchweave/testing/s3_server.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace bench {

/// What the server process does until it is ended: prints its endpoint and serves.
inline int serve_with_latency(double milliseconds) {
  boost::asio::io_context context;
  batchweave::testing::s3_server server(context.get_executor());
  server.on("*").times(~0u).latency(std::chrono::milliseconds(static_cast<int>(milliseconds)));
  std::cout << server.endpoint() << std::endl;
  context.run();
  return 0;
}

/// Starts it and sets the credentials it wants in the environment. Start it before any thread.
class latency_server {
 public:
  explicit latency_server(double milliseconds)
      : child_({std::filesystem::read_symlink("/proc/self/exe").string(), "--as", "server", "--latency-ms", std::to_string(milliseconds)}),
        url_("s3://test/bench?region=us-east-1&endpoint=" + child_.read()) {
    ::setenv("AWS_ACCESS_KEY_ID", "testkey", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "testsecret", 1);
  }
  /// Of a prefix in it.
  const std::string& url() const noexcept { return url_; }

 private:
  line_child child_;
  std::string url_;
};

}  // namespace bench
