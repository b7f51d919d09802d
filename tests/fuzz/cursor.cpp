// Cursors, ids, names of objects: what is accepted is written back as it was.
#include "fuzz.hpp"

#include <batchweave/cursor.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/store/key.hpp>

namespace bw = batchweave;
namespace m = batchweave::manifest;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto c = bw::cursor::parse(text)) {
    const auto again = bw::cursor::parse(c->to_string());
    fuzz::require(again && *again == *c && !c->empty(), "a cursor names the same place when it is written and read again");
  }
  if (const auto id = bw::id128::parse(text)) fuzz::require(bw::id128::parse(id->to_string()) == *id, "an id reads back");
  if (const auto v = m::parse_log_key(text)) fuzz::require(m::log_key(*v) == text, "a version's key is the only one");
  if (const auto n = m::parse_tgb_key(text)) fuzz::require(text.starts_with(m::tgb_prefix(n->producer)), "a batch lies below its producer");
  if (const auto n = m::parse_inbox_key(text)) {
    fuzz::require(m::inbox_key(n->producer, n->epoch, n->seq) == text, "an announcement's key is the only one");
  }
  m::parse_seg_key(text);
  m::parse_ckpt_key(text);
  return 0;
}
