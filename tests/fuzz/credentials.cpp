// The shared credentials and config files: any bytes are read to their end, and no value gets into a message.
#include "fuzz.hpp"

#include <batchweave/s3/credentials.hpp>

namespace s3 = batchweave::s3;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  for (const auto kind : {s3::profile_file::flavour::credentials, s3::profile_file::flavour::config}) {
    // A line without "=" is reported, and it may be a key on the wrong line.
    const std::string secret = "fuzz-SECRET-fuzz";
    const s3::profile_file file = s3::profile_file::parse(std::string(text) + "\n[p]\n" + secret + "\naws_access_key_id = id\n", "file", kind);
    for (const std::string& p : file.problems()) fuzz::require(p.find(secret) == std::string::npos, "no line is quoted in a message");
    if (kind == s3::profile_file::flavour::credentials) {
      fuzz::require(file.get("p", "aws_access_key_id") == "id", "what comes before does not hide a profile");
    }
  }
  return 0;
}
