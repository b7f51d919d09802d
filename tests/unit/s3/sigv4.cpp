// Signatures: the examples that AWS publishes for S3, and what keys and queries look like when they are signed.
#include "support/catch.hpp"

#include <batchweave/s3/request.hpp>
#include <batchweave/s3/sigv4.hpp>

#include <string>

namespace bw = batchweave;
using namespace batchweave::s3;

namespace {
const credentials example("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
const std::string date = "20130524T000000Z";
const std::string host = "examplebucket.s3.amazonaws.com";

std::string signature(const std::string& authorization) { return authorization.substr(authorization.rfind('=') + 1); }
name_values with(const std::string& hash, name_values more = name_values()) {
  more.emplace_back("host", host);
  more.emplace_back("x-amz-date", date);
  more.emplace_back("x-amz-content-sha256", hash);
  return more;
}
std::string wire(const request& q, const credentials& who = example) {
  signer s;
  return q.sign(s, who, "us-east-1", date, host, "/" + uri_encode(q.key(), true), 0);
}
}  // namespace

TEST_CASE("the published S3 examples") {
  signer s;
  const std::string none = sha256_hex("");
  CHECK(none == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  SECTION("GET object with Range") {
    name_values more;
    more.emplace_back("range", "bytes=0-9");
    CHECK(signature(s.authorization(example, "us-east-1", date, "GET", "/test.txt", {}, with(none, more), none)) ==
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  }
  SECTION("PUT object") {
    name_values more;
    more.emplace_back("date", "Fri, 24 May 2013 00:00:00 GMT");
    more.emplace_back("x-amz-storage-class", "REDUCED_REDUNDANCY");
    const std::string hash = sha256_hex("Welcome to Amazon S3.");
    CHECK(hash == "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
    CHECK(signature(s.authorization(example, "us-east-1", date, "PUT", "/" + uri_encode("test$file.text", true), {}, with(hash, more), hash)) ==
          "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  }
  SECTION("GET ?lifecycle (SG-07)") {
    const name_values query{{"lifecycle", ""}};
    CHECK(signature(s.authorization(example, "us-east-1", date, "GET", "/", query, with(none), none)) ==
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  }
  SECTION("list") {
    const name_values query{{"prefix", "J"}, {"max-keys", "2"}};
    CHECK(signature(s.authorization(example, "us-east-1", date, "GET", "/", query, with(none), none)) ==
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  }
}

TEST_CASE("the signing key follows day, region and secret") {
  signer s;
  const std::string none = sha256_hex("");
  const auto sign = [&](const credentials& who, const std::string& region, const std::string& at) {
    return signature(s.authorization(who, region, at, "GET", "/", {}, with(none), none));
  };
  const std::string first = sign(example, "us-east-1", date);
  CHECK(sign(example, "eu-west-1", date) != first);
  CHECK(sign(credentials("AKIAIOSFODNN7EXAMPLE", "other"), "us-east-1", date) != first);
  CHECK(sign(example, "us-east-1", "20130525T000000Z") != first);
  CHECK(sign(example, "us-east-1", date) == first);
}

TEST_CASE("SG-01 SG-02 SG-03 SG-04 keys are encoded once, in path and query") {
  CHECK(uri_encode("a b.txt", true) == "a%20b.txt");
  CHECK(uri_encode("c++/x+1", true) == "c%2B%2B/x%2B1");
  CHECK(uri_encode("c++/x+1", false) == "c%2B%2B%2Fx%2B1");
  CHECK(uri_encode("~x", true) == "~x");
  CHECK(uri_encode("AZaz09-._~", false) == "AZaz09-._~");
  CHECK(uri_encode("日本/é", true) == "%E6%97%A5%E6%9C%AC/%C3%A9");
  CHECK(uri_encode("100%.csv", true) == "100%25.csv");
  CHECK(uri_encode("a%2Fb", true) == "a%252Fb");
  request q("GET", "a b+c");
  q.query("prefix", "a b/").query("marker", "c+d");
  CHECK(wire(q).starts_with("GET /a%20b%2Bc?marker=c%2Bd&prefix=a%20b%2F HTTP/1.1\r\n"));
}

TEST_CASE("SG-07 queries are sorted by encoded name, then value, always with =") {
  const name_values query{{"uploads", ""}, {"b", "2"}, {"b", "1"}, {"B", "x"}, {"prefix", ""}, {"a-", "1"}, {"a", "1"}};
  CHECK(canonical_query(query) == "B=x&a=1&a-=1&b=1&b=2&prefix=&uploads=");
}

TEST_CASE("SG-09 a repeated header is one line") {
  name_values headers{{"x-amz-meta-a", "1"}, {"host", "h"}, {"x-amz-meta-a", "  2   3 "}};
  const canonical_request c("GET", "/", {}, headers, "hash");
  CHECK(c.text() == "GET\n/\n\nhost:h\nx-amz-meta-a:1,2 3\n\nhost;x-amz-meta-a\nhash");
}

TEST_CASE("SG-10 a header is signed exactly when it is sent") {
  request q("PUT", "k");
  q.header("x-amz-meta-empty", "").header("if-none-match", "*");
  const std::string text = wire(q);
  CHECK(text.find("x-amz-meta-empty") == std::string::npos);
  CHECK(text.find("if-none-match: *\r\n") != std::string::npos);  // CW-11: not quoted
  CHECK(text.find("SignedHeaders=host;if-none-match;x-amz-content-sha256;x-amz-date,") != std::string::npos);  // CW-10
}

TEST_CASE("SG-12 headers that middleboxes rewrite are not signed") {
  for (const char* name : {"accept-encoding", "user-agent", "connection", "expect", "content-length", "traceparent"}) {
    CAPTURE(name);
    CHECK_FALSE(is_signed_header(name));
  }
  CHECK(wire(request("GET", "k")).find("accept-encoding: identity\r\n") != std::string::npos);
}

TEST_CASE("SG-13 SG-14 every x-amz header is signed, the token too") {
  request q("PUT", "k");
  q.header("x-amz-meta-batchweave-token", "t");
  const std::string text = wire(q, credentials("ID", "secret", "the-token"));
  CHECK(text.find("x-amz-security-token: the-token\r\n") != std::string::npos);
  CHECK(text.find("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-meta-batchweave-token;x-amz-security-token,") != std::string::npos);
  CHECK(text.find("secret") == std::string::npos);
  CHECK(wire(q).find("x-amz-security-token") == std::string::npos);
}

TEST_CASE("SG-15 dates are written as AWS wants them") {
  const auto t = bw::wall_time(std::chrono::sys_days(std::chrono::year(2024) / 2 / 29) + std::chrono::hours(23) + std::chrono::minutes(5) +
                               std::chrono::seconds(9) + std::chrono::milliseconds(999));
  CHECK(amz_date(t) == "20240229T230509Z");
}

TEST_CASE("checksums in the form of their headers") {
  CHECK(md5_base64("") == "1B2M2Y8AsgTpgAmY7PhCfg==");
  CHECK(crc32c_base64(0xe3069283u) == "4waSgw==");  // CRC32C of "123456789"
}

TEST_CASE("the signature test suite of AWS: another service, a form") {
  const credentials who("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
  signer sign;
  const std::string suite_date = "20150830T123600Z";
  const name_values none;
  const name_values plain{{"host", "example.amazonaws.com"}, {"x-amz-date", suite_date}};
  const std::string get = sign.authorization(who, "us-east-1", suite_date, "GET", "/", none, plain, hash_of_nothing, "service");
  CHECK(get.ends_with("SignedHeaders=host;x-amz-date,Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"));
  const name_values form{{"content-type", "application/x-www-form-urlencoded"}, {"host", "example.amazonaws.com"}, {"x-amz-date", suite_date}};
  const std::string post = sign.authorization(who, "us-east-1", suite_date, "POST", "/", none, form, sha256_hex("Param1=value1"), "service");
  CHECK(post.ends_with("SignedHeaders=content-type;host;x-amz-date,Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"));
}
