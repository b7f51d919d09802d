// What is fixed for the life of a stream, and its JSON text under the key `stream`.
#pragma once

#include <batchweave/manifest/json_text.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace batchweave::manifest {

/// How steps get their order: as they are committed, or one batch of each producer in turn.
inline constexpr std::string_view order_commit = "commit";
inline constexpr std::string_view order_round_robin = "round_robin";

class stream_info {
 public:
  stream_info() {}
  static constexpr std::uint64_t format = 1;
  id128 id;
  std::uint32_t slices = 1;               ///< per TGB
  std::uint64_t producers = 1;            ///< the stream ends when this many, and all that are known, have finished
  std::string order{order_commit};
  std::string codec = "binary";           ///< of manifest versions
  friend bool operator==(const stream_info&, const stream_info&) = default;
};

namespace detail {
template <class A, maybe_const<stream_info> T>
void describe(A& a, T& x) {
  a("id", x.id);
  a("slices", x.slices);
  a("producers", x.producers);
  a("order", x.order);
  a("codec", x.codec);
}
}  // namespace detail

inline std::string encode_stream_info(const stream_info& s) { return detail::sealed_json("stream", stream_info::format, s); }

/// Errors: damaged, naming what is wrong; not_supported for a newer format, or an order that this version does not know.
inline result<stream_info> decode_stream_info(const_bytes b) {
  result<stream_info> s = detail::unsealed_json<stream_info>("stream", stream_info::format, b);
  if (!s) return s.error();
  const auto damaged = [](std::string why) { return failure(errc::damaged, "JSON stream: " + std::move(why)); };
  if (s->id.empty()) return damaged("member 'id' is zero");
  if (s->slices == 0 || s->slices > tgb::max_slices) return damaged("member 'slices' is " + std::to_string(s->slices));
  if (s->producers == 0) return damaged("member 'producers' is 0");
  // A reader that took another order for commit order would hand out steps in the wrong one.
  if (s->order != order_commit && s->order != order_round_robin) {
    return failure(errc::not_supported, "the stream uses order '" + s->order + "', which this batchweave does not know");
  }
  return s;
}

}  // namespace batchweave::manifest
