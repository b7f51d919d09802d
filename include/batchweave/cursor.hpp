// What a consumer must keep to continue: one number for all ranks.
#pragma once

#include <batchweave/base/error.hpp>
#include <batchweave/base/id128.hpp>

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace batchweave {

/// The stream and the next step to be delivered. The same for every rank and world size; save it inside the model checkpoint.
class cursor {
 public:
  /// Names no place: a consumer refuses to start from it.
  cursor() = default;
  cursor(id128 stream, std::uint64_t next_step) : stream_(stream), next_step_(next_step) {}

  bool empty() const noexcept { return stream_.empty(); }
  id128 stream() const noexcept { return stream_; }
  std::uint64_t next_step() const noexcept { return next_step_; }
  friend bool operator==(const cursor&, const cursor&) = default;

  /// "bw1:<stream id>:<next step>"
  std::string to_string() const { return "bw1:" + stream_.to_string() + ":" + std::to_string(next_step_); }

  /// Reads what to_string wrote. Error: invalid_argument that quotes the text.
  static result<cursor> parse(std::string_view text) {
    const auto bad = [&] {
      return failure(errc::invalid_argument, "'" + std::string(text.substr(0, 80)) + "' is not a cursor (bw1:<stream id>:<step>)")
          .with_fate(fate::did_not_happen);
    };
    if (text.substr(0, 4) != "bw1:" || text.size() < 38 || text[36] != ':') return bad();
    const std::optional<id128> id = id128::parse(text.substr(4, 32));
    std::uint64_t step = 0;
    const std::string_view digits = text.substr(37);
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (!id || id->empty() || ec != std::errc() || end != digits.data() + digits.size()) return bad();
    return cursor(*id, step);
  }

 private:
  id128 stream_;
  std::uint64_t next_step_ = 0;
};
static_assert(!std::is_aggregate_v<cursor>);

}  // namespace batchweave
