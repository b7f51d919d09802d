// XML, the error table, credentials and endpoints: values in, values out.
#include "support/catch.hpp"

#include <batchweave/s3/credentials.hpp>
#include <batchweave/s3/endpoint.hpp>
#include <batchweave/s3/error_map.hpp>
#include <batchweave/s3/response.hpp>
#include <batchweave/s3/xml.hpp>

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>

namespace bw = batchweave;
using namespace batchweave::s3;
using bw::errc;

namespace {
template <class T>
concept printable = requires(std::ostream& o, const T& t) { o << t; };

/// A file that goes away with the test.
class temporary_file {
 public:
  explicit temporary_file(const std::string& text) {
    static int n = 0;
    path_ = "/tmp/batchweave_values_" + std::to_string(::getpid()) + "_" + std::to_string(n++);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~temporary_file() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

environment variables(std::map<std::string, std::string> values) {
  values.emplace("HOME", "/nonexistent");
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto at = values.find(name);
    if (at == values.end()) return std::nullopt;
    return at->second;
  };
}
}  // namespace

TEST_CASE("S3-11 keys that are hostile to XML") {
  const std::string body = delete_body({"Tom & Jerry", "<x>", "\"q\"", "a\rb"});
  CHECK(body.find("<Key>Tom &amp; Jerry</Key>") != std::string::npos);
  CHECK(body.find("<Key>&lt;x&gt;</Key>") != std::string::npos);
  CHECK(body.find("a&#13;b") != std::string::npos);
  const auto read = parse_delete(
      "<?xml version=\"1.0\"?><DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Deleted><Key>Tom &amp; Jerry</Key></Deleted>"
      "<Deleted><Key>&#60;x&#x3e;</Key></Deleted><Deleted><Key><![CDATA[a&b]]></Key></Deleted>"
      "<Error><Key>k</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>");
  REQUIRE(read.has_value());
  CHECK(read->removed == std::vector<std::string>{"Tom & Jerry", "<x>", "a&b"});
  REQUIRE(read->failed.size() == 1);
  CHECK(read->failed[0].second.code == "AccessDenied");  // S3-10
}

TEST_CASE("S3-14 listings in URL encoding") {
  const std::string head = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
  const std::string tail = "<Contents><Key>a+b%2Bc%01</Key><Size>7</Size><ETag>\"e\"</ETag></Contents></ListBucketResult>";
  const auto encoded = parse_list(head + "<EncodingType>url</EncodingType>" + tail);
  REQUIRE(encoded.has_value());
  CHECK(encoded->objects.at(0).key == "a b+c\x01");
  CHECK(encoded->objects.at(0).size == 7);
  CHECK(encoded->objects.at(0).etag == "\"e\"");
  CHECK(encoded->truncated);
  const auto plain = parse_list(head + tail);
  REQUIRE(plain.has_value());
  CHECK(plain->objects.at(0).key == "a+b%2Bc%01");
}

TEST_CASE("S3-16 a 200 that is not what was asked for") {
  for (const char* body : {"", "<html><body>Sign in</body></html>", "<ListBucketResult><IsTruncated>false</IsTruncated>", "<ListBucketResult/>",
                           "<Error><Code>InternalError</Code></Error>",
                           "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>k</Key></Contents></ListBucketResult>"}) {
    CAPTURE(body);
    const auto r = parse_list(body);
    REQUIRE_FALSE(r.has_value());
    CHECK(r.error().code() == errc::bad_response);
    CHECK_FALSE(parse_delete(body).has_value());
    CHECK_FALSE(parse_initiate(body).has_value());
  }
  CHECK(parse_list("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>").has_value());
}

TEST_CASE("S3-01 a 200 with an error inside") {
  const auto failed = parse_complete("  \n <?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>");
  REQUIRE(failed.has_value());
  REQUIRE(failed->error.has_value());
  CHECK(classify_answer(200, failed->error->code).retryable());
  const auto good = parse_complete("\n\n<CompleteMultipartUploadResult><ETag>&quot;x-2&quot;</ETag></CompleteMultipartUploadResult>");
  REQUIRE(good.has_value());
  CHECK_FALSE(good->error.has_value());
  CHECK(good->etag == "\"x-2\"");
  CHECK_FALSE(parse_complete("").has_value());
}

TEST_CASE("error bodies") {
  const auto e = parse_error("<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>");
  REQUIRE(e.has_value());
  CHECK(e->region == "eu-central-1");  // TR-17
  CHECK_FALSE(parse_error("<html></html>").has_value());
  CHECK_FALSE(parse_error("<Error><Code>Intern").has_value());
}

TEST_CASE("S3-19 CW-06 CW-16 the error table") {
  for (const int status : {408, 429, 500, 502, 503, 504, 599}) {
    CAPTURE(status);
    CHECK(classify_answer(status, "").retryable());
    CHECK(classify_answer(status, "").fate() == bw::fate::unknown);
  }
  for (const int status : {400, 401, 403, 404, 405, 411, 412, 416}) {
    CAPTURE(status);
    CHECK_FALSE(classify_answer(status, "").retryable());
    CHECK(classify_answer(status, "").fate() == bw::fate::did_not_happen);
  }
  CHECK(classify_answer(409, "ConditionalRequestConflict").retryable());
  CHECK(classify_answer(409, "OperationAborted").retryable());
  CHECK_FALSE(classify_answer(409, "ExistingObjectIsDirectory").retryable());
  CHECK_FALSE(classify_answer(409, "").retryable());
  CHECK(classify_answer(503, "SlowDown").code() == errc::throttled);
  CHECK(classify_answer(404, "NoSuchBucket").code() == errc::bucket_missing);
  CHECK(classify_answer(404, "NoSuchKey").code() == errc::object_missing);
  CHECK(classify_answer(403, "RequestTimeTooSkewed").code() == errc::clock_skewed);
  CHECK(classify_answer(403, "AccessDenied").code() == errc::access_denied);
  CHECK(classify_answer(501, "NotImplemented").code() == errc::not_supported);
  CHECK(classify_answer(302, "").code() == errc::bad_response);
  for (const errc e : {errc::resolve_failed, errc::connect_failed, errc::connect_timeout, errc::tls_failed, errc::tls_timeout}) {
    CHECK(classify_transport(e, false).fate() == bw::fate::did_not_happen);
    CHECK(classify_transport(e, false).poisons());
  }
  for (const errc e : {errc::first_byte_timeout, errc::stalled, errc::connection_lost, errc::body_truncated, errc::bad_response}) {
    CHECK(classify_transport(e, true).fate() == bw::fate::unknown);
    CHECK(classify_transport(e, false).fate() == bw::fate::did_not_happen);
    CHECK(classify_transport(e, true).retryable());
  }
  CHECK_FALSE(classify_transport(errc::tls_failed, false).retryable());
}

TEST_CASE("S3-18 Content-Range") {
  const auto r = content_range::parse("bytes 5-9/10");
  REQUIRE(r.has_value());
  CHECK((r->satisfied && r->first == 5 && r->last == 9 && r->size == 10));
  const auto none = content_range::parse("bytes */0");
  REQUIRE(none.has_value());
  CHECK((!none->satisfied && none->size == 0));
  for (const char* bad : {"", "bytes", "bytes 0--1/0", "bytes 9-5/10", "bytes 0-10/10", "bytes 0-9/*", "items 0-9/10"}) {
    CAPTURE(bad);
    CHECK_FALSE(content_range::parse(bad).has_value());
  }
}

TEST_CASE("CR-06 CR-07 profiles as people write them") {
  const auto f = profile_file::parse(
      "\xEF\xBB\xBF# first line\r\n[default] # comment\r\naws_access_key_id=ID1\r\naws_secret_access_key = a/b=c+d== \r\n"
      "; another\r\n[profile x] /* text */\r\n  aws_access_key_id = IDX\r\n  aws_secret_access_key = SX # why\r\ns3 =\r\n  region = nested\r\n"
      "region = eu-west-1\r\nthis is no line\r\n[profile  \"two words\"]\nregion=r2\n[sso-session y]\nregion=r3\n[profile last]\nregion=no-newline",
      "file", profile_file::flavour::config);
  CHECK(f.get("default", "aws_access_key_id") == "ID1");
  CHECK(f.get("default", "aws_secret_access_key") == "a/b=c+d==");
  CHECK(f.get("x", "aws_access_key_id") == "IDX");
  CHECK(f.get("x", "aws_secret_access_key") == "SX");
  CHECK(f.get("x", "region") == "eu-west-1");
  CHECK(f.get("two words", "region") == "r2");
  CHECK(f.get("last", "region") == "no-newline");
  CHECK_FALSE(f.find("y"));
  REQUIRE(f.problems().size() == 1);
  CHECK(f.problems()[0].starts_with("file:12: "));
  CHECK(f.problems()[0].find("this is") == std::string::npos);
  const auto keys = profile_file::parse("[dev]\naws_access_key_id = D\n", "keys", profile_file::flavour::credentials);
  CHECK(keys.get("dev", "aws_access_key_id") == "D");
}

TEST_CASE("CR-08 SG-14 which credentials count") {
  const temporary_file keys(
      "[default]\naws_access_key_id=DEF\naws_secret_access_key=DS\naws_session_token=DT\n"
      "[dev]\naws_access_key_id=DEV\naws_secret_access_key=VS\n[half]\naws_access_key_id=HALF\nbroken\n");
  const temporary_file config("[profile dev]\nregion=eu-west-3\n[profile only]\naws_access_key_id=O\naws_secret_access_key=OS\n");
  std::map<std::string, std::string> env{{"AWS_SHARED_CREDENTIALS_FILE", keys.path()}, {"AWS_CONFIG_FILE", config.path()}};
  const auto load = [&] { return load_credentials(variables(env)); };
  SECTION("the default profile, with its own token") {
    const auto c = load();
    REQUIRE(c.has_value());
    CHECK(c->access_key() == "DEF");
    CHECK(c->session_token().reveal() == "DT");
  }
  SECTION("AWS_PROFILE; the token is not taken from elsewhere") {
    env["AWS_PROFILE"] = "dev";
    env["AWS_SESSION_TOKEN"] = "stray";
    const auto c = load();
    REQUIRE(c.has_value());
    CHECK(c->access_key() == "DEV");
    CHECK(c->session_token().empty());
    CHECK(profiles(variables(env)).get("region") == "eu-west-3");
  }
  SECTION("a profile of the config file") {
    env["AWS_PROFILE"] = "only";
    const auto c = load();
    REQUIRE(c.has_value());
    CHECK(c->access_key() == "O");
  }
  SECTION("the environment wins, whole") {
    env["AWS_ACCESS_KEY_ID"] = "E";
    env["AWS_SECRET_ACCESS_KEY"] = "ES";
    env["AWS_PROFILE"] = "absent";
    const auto c = load();
    REQUIRE(c.has_value());
    CHECK(c->access_key() == "E");
    CHECK(c->session_token().empty());
  }
  SECTION("half a pair is an error that names what is missing, and never a value") {
    env["AWS_ACCESS_KEY_ID"] = "E";
    REQUIRE_FALSE(load().has_value());
    CHECK(load().error().what().find("AWS_SECRET_ACCESS_KEY") != std::string::npos);
    env.erase("AWS_ACCESS_KEY_ID");
    env["AWS_PROFILE"] = "half";
    const auto c = load();
    REQUIRE_FALSE(c.has_value());
    CHECK(c.error().code() == errc::credentials_missing);
    CHECK(c.error().what().find(keys.path() + ":10: ") != std::string::npos);
    CHECK(c.error().what().find("HALF") == std::string::npos);
  }
  SECTION("a profile that is nowhere") {
    env["AWS_PROFILE"] = "absent";
    REQUIRE_FALSE(load().has_value());
    CHECK(load().error().what().find("absent") != std::string::npos);
  }
  STATIC_REQUIRE_FALSE(printable<secret>);
  STATIC_REQUIRE_FALSE(printable<credentials>);
}

TEST_CASE("endpoints") {
  const auto v6 = endpoint::parse("http://[::1]:9000/");
  REQUIRE(v6.has_value());
  CHECK(v6->host() == "::1");
  CHECK(v6->authority() == "[::1]:9000");
  CHECK(v6->is_address());
  const auto aws = endpoint::parse("https://S3.eu-west-1.amazonaws.com");
  REQUIRE(aws.has_value());
  CHECK(aws->authority() == "s3.eu-west-1.amazonaws.com");
  CHECK(aws->port() == 443);
  CHECK(endpoint::parse("https://h:80")->authority() == "h:80");
  for (const char* bad : {"", "host", "ftp://h", "http://", "http://h:", "http://h:0", "http://h:65536", "http://h:9x", "http://h/path", "http://u:p@h", "http://::1"}) {
    CAPTURE(bad);
    CHECK_FALSE(endpoint::parse(bad).has_value());
  }
}

TEST_CASE("s3 URLs") {
  const auto u = s3_url::parse("s3://b/p/q%20r/?endpoint=http://127.0.0.1:9000&region=r&style=virtual");
  REQUIRE(u.has_value());
  CHECK(u->bucket() == "b");
  CHECK(u->prefix() == "p/q r");
  CHECK(u->endpoint() == "http://127.0.0.1:9000");
  CHECK(u->region() == "r");
  CHECK(u->style() == addressing::virtual_host);
  CHECK(s3_url::parse("s3://b")->prefix().empty());
  for (const char* bad : {"http://b", "s3://", "s3:///p", "s3://b?style=other", "s3://b?typo=1", "s3://b/%zz", "s3://k:s@b/p"}) {
    CAPTURE(bad);
    CHECK_FALSE(s3_url::parse(bad).has_value());
  }
}

TEST_CASE("SG-18 a dotted bucket over TLS is addressed by path") {
  const endpoint tls(true, "s3.amazonaws.com", 443), plain(false, "s3.local", 80), address(false, "127.0.0.1", 9000);
  CHECK(use_virtual_host(tls, "bucket", addressing::automatic, true));
  CHECK_FALSE(use_virtual_host(tls, "my.data.bucket", addressing::automatic, true));
  CHECK_FALSE(use_virtual_host(tls, "my.data.bucket", addressing::virtual_host, true));
  CHECK(use_virtual_host(plain, "my.data.bucket", addressing::virtual_host, false));
  CHECK_FALSE(use_virtual_host(plain, "bucket", addressing::automatic, false));
  CHECK_FALSE(use_virtual_host(address, "bucket", addressing::virtual_host, false));
}

TEST_CASE("TR-15 where a signed request may go") {
  const endpoint aws(true, "s3.us-east-1.amazonaws.com", 443), local(false, "s3.corp", 9000);
  CHECK(may_follow(aws, endpoint(true, "b.s3.eu-west-1.amazonaws.com", 443)));
  CHECK_FALSE(may_follow(aws, endpoint(false, "b.s3.eu-west-1.amazonaws.com", 80)));
  CHECK_FALSE(may_follow(aws, endpoint(true, "evilamazonaws.com", 443)));
  CHECK(may_follow(local, endpoint(false, "node1.s3.corp", 9000)));
  CHECK_FALSE(may_follow(local, endpoint(false, "other.corp", 9000)));
}
