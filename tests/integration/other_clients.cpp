// boto3 and the AWS CLI beside our client on the bucket of BATCHWEAVE_TEST_S3: what one writes the other reads; skipped where one is missing.
#include "support/catch.hpp"
#include "support/python.hpp"
#include "support/run.hpp"

#include <batchweave/base/hex.hpp>
#include <batchweave/store/s3.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;

namespace {

// Without "." and ".." as a part: urllib3 resolves those before it sends, whatever the key is. The last one holds 12 MiB.
const std::vector<std::string> odd{"plain", "a b", "c++/x+1", "~x", "\xE6\x97\xA5\xE6\x9C\xAC/\xC3\xA9", "100%.csv", "a%2Fb", "Tom & Jerry",
                                   "<x>",   "q?y=1#f", "*()!", "a=b;c,d:e@f$g", "\"quoted\"", "upper/KEY", "upper/key", "large"};
constexpr std::size_t large = std::size_t{12} << 20;

asio::awaitable<void> write_all(bw::s3_store store, std::vector<std::string> keys) {
  const bw::put_condition always;
  for (const std::string& key : keys) {
    std::string text = key + " by batchweave";
    if (key == keys.back()) text.resize(large, '.');  // in parts, see multipart_threshold
    const bw::const_buffers body{bw::as_bytes(text)};
    bw::result<bw::put_outcome> put = co_await store.put(key, body, always);
    INFO(key << ": " << (put ? std::string() : put.error().what()));
    REQUIRE(put.has_value());
    CHECK(put->applied());
  }
}

asio::awaitable<void> read_all(bw::s3_store store, std::vector<std::string> keys, std::string writer) {
  for (const std::string& key : keys) {
    const std::size_t expect = 256, limit = std::size_t{64} << 20;
    bw::result<std::optional<bw::byte_buffer>> got = co_await bw::read_object(store, key, expect, limit);
    INFO(key << ": " << (got ? std::string() : got.error().what()));
    REQUIRE(got.has_value());
    REQUIRE(got->has_value());
    const std::string_view text = bw::as_text((*got)->bytes());
    const std::string wanted = key + " by " + writer;
    CHECK(text.substr(0, wanted.size()) == wanted);
    if (key == keys.back() && writer == "boto3") CHECK(text.size() >= large);
    else CHECK(text.size() == wanted.size());
  }
  const std::size_t max = 1000;
  bw::result<bw::list_page> page = co_await store.list(std::string(), std::string(), max);
  REQUIRE(page.has_value());
  std::vector<std::string> seen;
  for (const auto& o : page->objects()) seen.push_back(o.key());
  std::sort(seen.begin(), seen.end());
  std::sort(keys.begin(), keys.end());
  CHECK(seen == keys);
}

void meet(const std::string& other, std::vector<std::string> keys) {
  const char* base = std::getenv("BATCHWEAVE_TEST_S3");
  if (base == nullptr || *base == '\0') {
    WARN("skipped: BATCHWEAVE_TEST_S3 names no store");
    return;
  }
  bw::result<bw::s3_config> config = bw::s3_config::from_url(base);
  REQUIRE(config.has_value());
  const std::string prefix = config->prefix() + "/" + other + "-" + std::to_string(getpid());
  config->multipart_threshold(std::uint64_t{6} << 20).part_size(std::uint64_t{5} << 20);
  std::vector<std::string> arguments{other, "", config->endpoint(), config->bucket(), ""};
  for (const std::string& k : keys) arguments.push_back(bw::to_hex(bw::as_bytes(k)));
  asio::io_context context;
  const auto theirs = [&](const std::string& what, const std::string& below) {
    arguments[1] = what;
    arguments[4] = below;
    return test::python("other_client.py", arguments);
  };
  const auto store_at = [&](const std::string& below) {
    bw::s3_config c = *config;
    c.prefix(below);
    return bw::s3_store(context.get_executor(), c);
  };
  const test::script_result wrote = theirs("write", prefix + "-theirs");
  if (wrote.status == test::skipped) {
    WARN("skipped: " << other << " is not installed");
    return;
  }
  REQUIRE(wrote.status == 0);
  test::run(context, read_all(store_at(prefix + "-theirs"), keys, other));
  test::run(context, write_all(store_at(prefix + "-ours"), keys));
  for (const char* what : {"read", "list"}) {
    const test::script_result r = theirs(what, prefix + "-ours");
    INFO(r.output);
    CHECK(r.status == 0);
  }
}

}  // namespace

TEST_CASE("boto3 reads what we write and we read what boto3 writes, odd keys and multipart uploads included") { meet("boto3", odd); }

TEST_CASE("the AWS CLI reads what we write and we read what it writes") {
  meet("cli", std::vector<std::string>{"a b", "c++/x+1", "\xE6\x97\xA5\xE6\x9C\xAC/100%25", "large"});  // each call takes a second
}
