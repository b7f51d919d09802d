// Content-Range, HTTP dates and numbers of answers; and the Range header as the test server reads it.
#include "fuzz.hpp"

#include <batchweave/s3/client.hpp>

namespace s3 = batchweave::s3;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto r = s3::content_range::parse(text)) {
    std::string again = "bytes ";
    if (r->satisfied) {
      fuzz::require(r->first <= r->last && r->last < r->size, "a satisfied range lies in the object");
      again += std::to_string(r->first) + "-" + std::to_string(r->last);
    } else {
      again += "*";
    }
    const auto same = s3::content_range::parse(again + "/" + std::to_string(r->size));
    fuzz::require(same && same->satisfied == r->satisfied && same->first == r->first && same->last == r->last && same->size == r->size,
                  "a Content-Range that was written again reads the same");
  }
  if (const auto n = s3::content_range::number(text)) {
    fuzz::require(text.find_first_not_of("0123456789") == std::string_view::npos, "a number has digits only");
    static_cast<void>(*n);
  }
  if (const auto date = s3::detail::parse_http_date(text)) {
    const std::string compact = s3::amz_date(*date);
    fuzz::require(compact.size() == 16 && compact[8] == 'T' && compact[15] == 'Z', "a date that was read can be signed with");
  }
  return 0;
}
