// Endpoint and s3:// URLs, percent encoding: what is accepted means what it says, and can be written and read again.
#include "fuzz.hpp"

#include <batchweave/s3/endpoint.hpp>
#include <batchweave/s3/sigv4.hpp>

namespace s3 = batchweave::s3;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto at = s3::endpoint::parse(text)) {
    fuzz::require(!at->host().empty() && at->port() != 0, "an endpoint has a host and a port");
    fuzz::require(at->authority().find_first_of("\r\n ") == std::string::npos, "no line end gets into the Host header");
    const auto again = s3::endpoint::parse(at->url());
    fuzz::require(again && *again == *at, "an endpoint's URL names the same endpoint");
    fuzz::require(s3::may_follow(*at, *at), "a redirect to the same place may be followed");
  }
  if (const auto url = s3::s3_url::parse(text)) {
    fuzz::require(!url->bucket().empty(), "an S3 URL has a bucket");
    fuzz::require(url->bucket().find_first_of("/?@") == std::string::npos, "a bucket has no separators");
    fuzz::require(url->prefix().empty() || url->prefix().back() != '/', "a prefix does not end in a slash");
    const auto at = s3::endpoint::parse(url->endpoint());
    if (at && s3::use_virtual_host(*at, url->bucket(), url->style(), false)) {
      fuzz::require(at->with_label(url->bucket()).authority().find_first_of("\r\n ") == std::string::npos, "no line end gets into the Host header");
    }
  }
  const std::string encoded = s3::uri_encode(text, false);
  const auto plain = s3::detail::percent_decode(encoded);
  fuzz::require(plain && *plain == text, "percent encoding can be undone");
  for (const bool plus : {false, true}) {
    if (const auto decoded = s3::detail::percent_decode(text, plus)) {
      fuzz::require(decoded->size() <= text.size(), "decoding does not grow");
    }
  }
  return 0;
}
