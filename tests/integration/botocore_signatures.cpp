// The signatures of 10,000 random requests equal botocore's, which tests/integration/sign_vectors.py computes; skipped without botocore.
#include "support/catch.hpp"
#include "support/python.hpp"

#include <batchweave/s3/request.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace s3 = batchweave::s3;

namespace {

std::vector<std::string> split(std::string_view s, char by) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = s.find(by);
    parts.emplace_back(s.substr(0, end));
    if (end == std::string_view::npos) return parts;
    s.remove_prefix(end + 1);
  }
}

std::string unhex(std::string_view s) {
  std::string r;
  for (std::size_t i = 0; i + 1 < s.size(); i += 2) r += static_cast<char>(std::stoi(std::string(s.substr(i, 2)), nullptr, 16));
  return r;
}

}  // namespace

TEST_CASE("CR the signatures of 10,000 random requests equal botocore's") {
  constexpr std::size_t many = 10000;
  const test::script_result made = test::python("sign_vectors.py", {std::to_string(many), "1"});
  if (made.status == test::skipped) {
    WARN("skipped: python3 has no botocore (Debian: apt-get install python3-botocore)");
    return;
  }
  REQUIRE(made.status == 0);
  std::vector<std::string> lines = split(made.output, '\n');
  lines.pop_back();
  REQUIRE(lines.size() == many);
  s3::signer signer;
  std::size_t same = 0, shown = 0;
  for (const std::string& line : lines) {
    const std::vector<std::string> f = split(line, '\t');
    REQUIRE(f.size() == 13);
    const std::string authority = unhex(f[1]), theirs = unhex(f[2]), key = unhex(f[11]);
    // Our own encoding of the key, not theirs.
    const std::string bucket = theirs.substr(1, theirs.find('/', 1) - 1);
    const std::string path = "/" + s3::uri_encode(bucket, false) + "/" + s3::uri_encode(key, true);
    s3::request request(f[0], key);
    request.payload_hash(unhex(f[5]));
    for (const std::size_t column : {std::size_t{3}, std::size_t{4}}) {
      if (f[column].empty()) continue;
      for (const std::string& pair : split(f[column], ',')) {
        const std::vector<std::string> nv = split(pair, ':');
        if (column == 3) request.query(unhex(nv[0]), unhex(nv[1]));
        else request.header(unhex(nv[0]), unhex(nv[1]));
      }
    }
    const s3::credentials who(unhex(f[6]), unhex(f[7]), unhex(f[8]));
    const std::string head = request.sign(signer, who, unhex(f[9]), f[10], authority, path, 0);
    const std::size_t at = head.find("Signature=");
    REQUIRE(at != std::string::npos);
    const std::string ours = head.substr(at + 10, 64);
    if (ours == f[12] && path == theirs) {
      ++same;
    } else if (++shown <= 3) {
      UNSCOPED_INFO("request: " << head.substr(0, head.find("authorization")) << "path: " << path << "\ntheir path: " << theirs << "\nsignature: " << ours << "\nbotocore: " << f[12]);
    }
  }
  CHECK(same == many);
}
