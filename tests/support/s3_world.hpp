// A test S3 server and a store that talks to it, on one io_context and one thread.
#pragma once

#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/store/s3.hpp>
#include <batchweave/testing/s3_server.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace test {

namespace bw = batchweave;

class s3_world {
 public:
  /// The client's limit for "no byte moved"; the other limits follow from it. Long unless the test waits for it: a busy machine must not
  /// look like a fault.
  static constexpr std::chrono::milliseconds patient{20'000}, hasty{150};
  static constexpr unsigned attempts = 4;

  explicit s3_world(bw::testing::s3_server_options o, std::chrono::milliseconds stall_limit = patient)
      : stall(stall_limit), server(io.get_executor(), std::move(o)), store(io.get_executor(), config()) {}
  explicit s3_world(std::chrono::milliseconds stall_limit = patient) : s3_world(bw::testing::s3_server_options(), stall_limit) {}

  void run(boost::asio::awaitable<void> work) {
    test::run(io, std::move(work));
    CHECK(server.errors().empty());
  }

  ~s3_world() {
    if (!ca_file_.empty()) std::remove(ca_file_.c_str());
  }

  bw::s3_store store_with_secret(const std::string& secret) {
    bw::s3_config c = config();
    c.credentials("testkey", secret);
    return bw::s3_store(io.get_executor(), c);
  }
  /// Trusts what `other` trusts.
  bw::s3_store store_that_trusts(const s3_world& other) {
    bw::s3_config c = config();
    c.ca_file(other.ca_file_);
    return bw::s3_store(io.get_executor(), c);
  }
  bw::s3_config config() {
    bw::retry_policy retry;
    retry.attempts(attempts).base(std::chrono::milliseconds(1)).cap(std::chrono::milliseconds(4));
    bw::s3_config c;
    c.endpoint(server.endpoint("localhost")).bucket(server.options().bucket()).region("us-east-1").credentials("testkey", "testsecret");
    c.connect_timeout(std::chrono::seconds(5)).tls_timeout(stall * 4).first_byte_timeout(stall * 2).stall_timeout(stall);
    c.retry(retry).seed(1);
    if (!server.options().certificate().empty()) {
      if (ca_file_.empty()) ca_file_ = write_ca(server.options().certificate().certificate());
      c.ca_file(ca_file_);
    }
    return c;
  }

  const std::chrono::milliseconds stall;
  boost::asio::io_context io;
  bw::testing::s3_server server;

 private:
  std::string ca_file_;

 public:
  bw::s3_store store;

 private:
  static std::string write_ca(const std::string& pem) {
    std::string name = "/tmp/batchweave-ca-XXXXXX";
    const int fd = ::mkstemp(name.data());
    if (fd < 0) throw std::runtime_error("cannot make a temporary file");
    ::close(fd);
    std::ofstream(name) << pem;
    return name;
  }
};

/// Bytes that differ from their neighbours and from each other's positions.
inline std::string pattern(std::size_t n) {
  std::string r(n, '\0');
  std::uint64_t x = 88172645463325252ull;
  for (char& c : r) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    c = static_cast<char>(x);
  }
  return r;
}

/// Says why when it is not.
template <class T>
bool good(const bw::result<T>& r) {
  if (!r) UNSCOPED_INFO(r.error().what());
  return r.has_value();
}

inline boost::asio::awaitable<bw::result<bw::read_outcome>> read(bw::s3_store store, std::string key, std::uint64_t offset,
                                                                 std::uint64_t length) {
  std::string bytes(length, '?');
  bw::mutable_buffers into{bw::mutable_bytes(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())};
  const bw::byte_range range(offset, length);
  co_return co_await store.get(key, range, into);
}

/// The bytes of a range of an object that exists.
inline boost::asio::awaitable<bw::result<std::string>> get_text(bw::s3_store store, std::string key, std::uint64_t offset,
                                                                std::uint64_t length) {
  std::string bytes(length, '?');
  // Two pieces, so that every read is scattered.
  auto* data = reinterpret_cast<std::byte*>(bytes.data());
  bw::mutable_buffers into{bw::mutable_bytes(data, length / 2), bw::mutable_bytes(data + length / 2, length - length / 2)};
  const bw::byte_range range(offset, length);
  bw::result<bw::read_outcome> got = co_await store.get(key, range, into);
  if (!got) co_return got.error();
  if (!got->found()) co_return bw::failure(bw::errc::object_missing, key + " is absent");
  bytes.resize(got->bytes());
  co_return bytes;
}

inline boost::asio::awaitable<bw::result<bw::put_outcome>> put_text(bw::s3_store store, std::string key, std::string bytes,
                                                                    bw::put_condition condition) {
  const bw::const_bytes all = bw::as_bytes(bytes);
  bw::const_buffers body{all.subspan(0, all.size() / 2), all.subspan(all.size() / 2)};
  co_return co_await store.put(key, body, condition);
}

/// Lets everything that is ready on the context run.
inline boost::asio::awaitable<void> settle() {
  for (int i = 0; i < 8; ++i) co_await boost::asio::post(boost::asio::use_awaitable);
}

}  // namespace test
