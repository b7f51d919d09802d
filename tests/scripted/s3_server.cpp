// The test kit's own S3 server, spoken to in raw bytes from another thread: what it stores, and that each fault does what it says.
#include "support/catch.hpp"

#include <batchweave/testing/s3_server.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <thread>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using namespace batchweave::testing;

namespace {

/// A server on a thread of its own, which the kit leaves to its user.
class running_server {
 public:
  explicit running_server(s3_server_options o = s3_server_options().check_signatures(false))
      : work_(asio::make_work_guard(io_)), server(io_.get_executor(), std::move(o)), thread_([this] { io_.run(); }) {}
  ~running_server() {
    server.stop();
    work_.reset();
    thread_.join();
  }

 private:
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;

 public:
  s3_server server;

 private:
  std::thread thread_;
};

/// Sends `text`, reads until the server closes.
class raw_client {
 public:
  explicit raw_client(std::uint16_t port) : socket_(io_) {
    socket_.connect(asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), port));
  }
  void send(const std::string& text) {
    boost::system::error_code ec;
    asio::write(socket_, asio::buffer(text), ec);
  }
  std::string rest() {
    std::string r;
    asio::read(socket_, asio::dynamic_buffer(r), how);
    return r;
  }
  /// Exactly n more bytes.
  std::string take(std::size_t n) {
    std::string r(n, '\0');
    asio::read(socket_, asio::buffer(r));
    return r;
  }
  boost::system::error_code how;

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_;
};

std::string request(const std::string& method, const std::string& target, const std::string& body = std::string(), const std::string& headers = std::string()) {
  return method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}
std::string ask(running_server& s, const std::string& text) {
  raw_client c(s.server.port());
  c.send(text);
  return c.rest();
}
int status_of(const std::string& reply) { return reply.size() < 12 ? 0 : std::stoi(reply.substr(9, 3)); }
std::string body_of(const std::string& reply) {
  const std::size_t at = reply.find("\r\n\r\n");
  return at == std::string::npos ? std::string() : reply.substr(at + 4);
}

}  // namespace

TEST_CASE("the signature check agrees with the example in Amazon's documentation") {
  // "GET Object", Signature Calculations for the Authorization Header, Amazon S3 API reference.
  s3_request::fields f;
  f.emplace_back("Host", "examplebucket.s3.amazonaws.com");
  f.emplace_back("Range", "bytes=0-9");
  f.emplace_back("x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  f.emplace_back("x-amz-date", "20130524T000000Z");
  const std::string start = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=";
  const s3_identity who("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
  const std::chrono::sys_seconds then = std::chrono::sys_days(std::chrono::year(2013) / 5 / 24);
  const auto signed_with = [&](const std::string& signature) {
    s3_request::fields all = f;
    all.emplace_back("Authorization", start + signature);
    return s3_request("GET", "/test.txt", all);
  };
  const std::string right = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
  CHECK_FALSE(refuse_signature(signed_with(right), who, then));
  CHECK_FALSE(refuse_signature(signed_with(right), who, then + 15min));
  const auto skewed = refuse_signature(signed_with(right), who, then + 16min);
  REQUIRE(skewed);
  CHECK(skewed->body().find("RequestTimeTooSkewed") != std::string::npos);
  const auto wrong = refuse_signature(signed_with("0" + right.substr(1)), who, then);
  REQUIRE(wrong);
  CHECK(wrong->status() == 403);
  s3_request stripped = signed_with(right);
  stripped.drop_header("range");
  CHECK(refuse_signature(stripped, who, then));
  CHECK(refuse_signature(s3_request("GET", "/test.txt", f), who, then)->status() == 403);
}

TEST_CASE("the server keeps S3's promises") {
  running_server s;
  CHECK(status_of(ask(s, request("PUT", "/test/a%20b", "bytes"))) == 200);
  CHECK(s.server.object("a b") == "bytes");
  CHECK(status_of(ask(s, request("PUT", "/test/a%20b", "other", "If-None-Match: *\r\n"))) == 412);
  CHECK(status_of(ask(s, request("PUT", "/test/new", "other", "If-None-Match: *\r\n"))) == 200);
  CHECK(status_of(ask(s, request("PUT", "/test/new", "x", "If-Match: \"nope\"\r\n"))) == 412);
  CHECK(status_of(ask(s, request("PUT", "/test/md5", "x", "Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==\r\n"))) == 400);
  CHECK(status_of(ask(s, request("PUT", "/test/crc", "x", "x-amz-checksum-crc32c: AAAAAA==\r\n"))) == 400);
  CHECK(status_of(ask(s, request("PUT", "/test/crc", "123456789", "x-amz-checksum-crc32c: 4waSgw==\r\n"))) == 200);
  CHECK(status_of(ask(s, request("PUT", "/other/crc", "x"))) == 404);
  const std::string part = ask(s, request("GET", "/test/crc", "", "Range: bytes=3-100\r\n"));
  CHECK(status_of(part) == 206);
  CHECK(body_of(part) == "456789");
  CHECK(part.find("Content-Range: bytes 3-8/9") != std::string::npos);
  const std::string past = ask(s, request("GET", "/test/crc", "", "Range: bytes=9-9\r\n"));
  CHECK(status_of(past) == 416);
  CHECK(past.find("Content-Range: bytes */9") != std::string::npos);
  const std::string list = ask(s, request("GET", "/test?list-type=2&encoding-type=url&max-keys=1&start-after=a"));
  CHECK(list.find("<Key>a%20b</Key>") != std::string::npos);
  CHECK(list.find("<IsTruncated>true</IsTruncated>") != std::string::npos);
  CHECK(status_of(ask(s, request("DELETE", "/test/never-there"))) == 204);
  CHECK(s.server.errors().empty());
}

TEST_CASE("every fault does what it says") {
  running_server s;
  s.server.put_object("o", "0123456789");
  const std::string get = request("GET", "/test/o");
  SECTION("nth and times") {
    s.server.on("GET").nth(2).reply(503, "SlowDown");
    s.server.on("HEAD").times(1).reply(500);
    CHECK(status_of(ask(s, get)) == 200);
    CHECK(status_of(ask(s, get)) == 503);
    CHECK(status_of(ask(s, get)) == 200);
    CHECK(status_of(ask(s, request("HEAD", "/test/o"))) == 500);
    CHECK(status_of(ask(s, request("HEAD", "/test/o"))) == 200);
  }
  SECTION("apply then drop, and drop") {
    s.server.on("PUT", "log/").apply_then_drop();
    s.server.on("PUT", "no/").drop();
    CHECK(ask(s, request("PUT", "/test/log/1", "x")).empty());
    CHECK(ask(s, request("PUT", "/test/no/1", "x")).empty());
    CHECK(s.server.object("log/1") == "x");
    CHECK_FALSE(s.server.object("no/1"));
    CHECK(s.server.count("PUT") == 2);
  }
  SECTION("apply then reply") {
    s.server.on("PUT").apply_then_reply(500);
    CHECK(status_of(ask(s, request("PUT", "/test/k", "x"))) == 500);
    CHECK(s.server.object("k") == "x");
  }
  SECTION("apply late") {
    auto rule = s.server.on("PUT").apply_late();
    raw_client c(s.server.port());
    c.send(request("PUT", "/test/k", "x"));
    while (rule.held() == 0) std::this_thread::yield();
    CHECK_FALSE(s.server.object("k"));
    CHECK(status_of(ask(s, request("HEAD", "/test/k"))) == 404);
    rule.release();
    CHECK(status_of(c.rest()) == 200);
    CHECK(s.server.object("k") == "x");
  }
  SECTION("cut, reset, wrong length, flipped byte") {
    s.server.on("GET").nth(1).cut_body_after(4);
    s.server.on("GET").nth(2).reset_body_after(4);
    s.server.on("GET").nth(3).content_length(99).close_after_reply();
    s.server.on("GET").nth(4).flip_byte(0);
    const std::string cut = ask(s, get);
    CHECK(body_of(cut) == "0123");
    CHECK(cut.find("Content-Length: 10\r\n") != std::string::npos);
    raw_client c(s.server.port());
    c.send(get);
    c.rest();
    CHECK(c.how == asio::error::connection_reset);
    CHECK(ask(s, get).find("Content-Length: 99\r\n") != std::string::npos);
    CHECK(body_of(ask(s, get)) == "1123456789");
  }
  SECTION("stalls end with the server") {
    s.server.on("GET").stall_body_after(4);
    raw_client c(s.server.port());
    c.send(get);
    std::string seen;
    while (body_of(seen).size() < 4) seen += c.take(1);
    CHECK(body_of(seen) == "0123");
    s.server.stop();
    CHECK(c.rest().empty());
  }
  SECTION("chunked and 1xx") {
    s.server.on("GET").chunked().informational(103);
    const std::string reply = ask(s, get);
    CHECK(reply.starts_with("HTTP/1.1 103"));
    CHECK(reply.find("\r\n\r\na\r\n0123456789\r\n0\r\n\r\n") != std::string::npos);
  }
  SECTION("an answer before the body") {
    s.server.on("PUT").early_reply(412, "PreconditionFailed");
    raw_client c(s.server.port());
    c.send("PUT /test/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
    CHECK(status_of(c.rest()) == 412);
    CHECK_FALSE(s.server.object("k"));
  }
  SECTION("ignored and stripped headers, several winners") {
    s.server.on("PUT", "o").ignore_header("if-none-match");
    CHECK(status_of(ask(s, request("PUT", "/test/o", "x", "If-None-Match: *\r\n"))) == 200);
    CHECK(s.server.object("o") == "x");
    s.server.on("PUT", "race").check_then_write(20ms);
    raw_client one(s.server.port()), two(s.server.port());
    one.send(request("PUT", "/test/race", "1", "If-None-Match: *\r\n"));
    two.send(request("PUT", "/test/race", "2", "If-None-Match: *\r\n"));
    CHECK(status_of(one.rest()) + status_of(two.rest()) == 400);
  }
  SECTION("connections") {
    s.server.close_next_connections(1);
    CHECK(ask(s, get).empty());
    CHECK(status_of(ask(s, get)) == 200);
    CHECK(s.server.connections() == 2);
    raw_client kept(s.server.port());
    kept.send("GET /test/o HTTP/1.1\r\nHost: x\r\n\r\n");
    std::string seen;
    while (body_of(seen).size() < 10) seen += kept.take(1);
    // Repeated, because the connection is idle only a moment after its answer has arrived.
    std::jthread closer([&](std::stop_token done) {
      while (!done.stop_requested()) s.server.close_idle_connections();
    });
    CHECK(kept.rest().empty());
  }
  CHECK_THROWS_AS(s.server.on("put"), std::invalid_argument);
  CHECK(s.server.errors().empty());
}
