// The footer of a TGB object and the read plans made from it: nothing outside of the object is ever asked for.
#include "fuzz.hpp"

#include <batchweave/tgb/footer.hpp>
#include <batchweave/tgb/reader.hpp>

#include <string>

namespace bw = batchweave;
namespace tgb = batchweave::tgb;

namespace {

void read(bw::const_bytes tail) {
  const auto f = tgb::read_footer(tail);
  if (!f) return;
  const tgb::slice_layout& l = f->layout;
  const std::vector<std::byte> written = tgb::encode_footer(*f);
  const auto again = tgb::read_footer(written);
  fuzz::require(again && again->layout == l && again->producer == f->producer && again->state == f->state && again->epoch == f->epoch &&
                    again->seq == f->seq && again->metadata == f->metadata && again->stream_id == f->stream_id,
                "a footer that decodes survives");
  if (l.count == 0 || l.count > 64) return;
  for (std::uint32_t world = 1; world <= l.count; ++world) {
    if (l.count % world) continue;
    std::uint64_t at = 0, bytes = 0;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const auto p = tgb::plan_read(l, rank, world);
      fuzz::require(p.has_value(), "a sound layout can be read by every world size that divides it");
      fuzz::require(p->range_offset() >= at && p->range_offset() + p->range_length() <= l.data_end(), "ranges are in order and inside of the data");
      fuzz::require(p->slice_bytes() <= p->range_length(), "no more bytes are wanted than are fetched");
      at = p->range_offset() + p->range_length();
      bytes += p->slice_bytes();
      if (p->range_length() < 65536) {
        std::vector<std::byte> slices(p->slice_bytes()), side(p->side_bytes());
        const auto into = p->scatter(slices, side);
        fuzz::require(bw::total_size(into) == p->range_length(), "the destination is as long as the range");
        static_cast<void>(p->verify(slices, side));
      }
    }
    std::uint64_t all = 0;
    for (std::uint32_t i = 0; i < l.count; ++i) all += l.size(i);
    fuzz::require(bytes == all, "the ranks share all slices");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const bw::const_bytes whole = std::as_bytes(std::span(data, size));
  read(whole);
  // Checksum and trailer made right, so that damage reaches the fields.
  constexpr std::size_t seal = tgb::checksum_bytes + tgb::trailer_bytes;
  bw::byte_writer w;
  w.raw(size > seal ? whole.first(size - seal) : whole);
  w.fixed64(bw::xxh3(w.bytes()));
  const std::uint64_t length = w.bytes().size();
  w.fixed64(length);
  w.fixed32(tgb::format);
  w.raw(bw::as_bytes(tgb::magic));
  read(w.bytes());
  return 0;
}
