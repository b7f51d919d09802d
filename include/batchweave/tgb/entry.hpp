// What the manifest says about one TGB.
#pragma once

#include <batchweave/tgb/layout.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace batchweave::tgb {

/// Enough to find a TGB and read its footer with one request.
class reference {
 public:
  reference() {}
  std::string producer;
  std::uint64_t epoch = 0;
  std::uint64_t seq = 0;
  std::uint64_t bytes = 0;          ///< size of the object
  std::uint64_t footer_offset = 0;  ///< the footer and its trailer are [footer_offset, bytes)
  std::uint32_t parts = 1;          ///< objects that make up the TGB
  friend bool operator==(const reference&, const reference&) = default;
};

class entry : public reference {
 public:
  entry() {}
  /// Only what is needed to find the object; the layout is empty.
  entry(reference r) : reference(std::move(r)) {}
  slice_layout layout;
  std::uint64_t samples = 0;
  std::string tag;
  std::int64_t unix_ns = 0;  ///< wall clock of the producer at publish; for people, decides nothing
  friend bool operator==(const entry&, const entry&) = default;
};

}  // namespace batchweave::tgb
