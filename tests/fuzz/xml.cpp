// The XML of S3's answers: no input does harm, and what is accepted has what the client relies on.
#include "fuzz.hpp"

#include <batchweave/s3/xml.hpp>

namespace s3 = batchweave::s3;

namespace {

bool printable(std::string_view s) {
  for (const char c : s) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\r' && c != '\n' && c != '\t') return false;
  }
  return true;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  s3::parse_error(text);
  if (const auto page = s3::parse_list(text)) {
    for (const auto& o : page->objects) fuzz::require(!o.key.empty(), "a listed object has a key");
  }
  if (const auto gone = s3::parse_delete(text)) {
    std::vector<std::string> keys = gone->removed;
    for (const auto& f : gone->failed) keys.push_back(f.first);
    s3::delete_body(keys);
  }
  if (const auto id = s3::parse_initiate(text)) fuzz::require(!id->empty(), "an upload has an id");
  if (const auto done = s3::parse_complete(text)) {
    const std::vector<std::string> etags{done->etag};
    s3::complete_body(etags);
  }
  // A key of the input's bytes, named by a server that escapes as we do, comes back as it was.
  if (!text.empty() && printable(text)) {
    const std::string answer = "<DeleteResult><Deleted><Key>" + s3::xml_escape(text) + "</Key></Deleted></DeleteResult>";
    const auto back = s3::parse_delete(answer);
    fuzz::require(back && back->removed.size() == 1, "an escaped key can be read");
    fuzz::require(back->removed[0] == text, "an escaped key comes back as it was");
  }
  return 0;
}
