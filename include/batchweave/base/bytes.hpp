// Views of bytes, lists of views (scatter and gather), and an owning buffer with a replaceable allocator.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave {

using const_bytes = std::span<const std::byte>;
using mutable_bytes = std::span<std::byte>;
/// Pieces that are sent one after another; never joined.
using const_buffers = std::vector<const_bytes>;
/// Pieces that are filled one after another.
using mutable_buffers = std::vector<mutable_bytes>;

inline const_bytes as_bytes(std::string_view s) noexcept {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}
inline std::string_view as_text(const_bytes b) noexcept {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

template <class Buffers>
std::size_t total_size(const Buffers& list) noexcept {
  std::size_t n = 0;
  for (const auto& b : list) n += b.size();
  return n;
}

/// Owns `size()` uninitialised bytes from a memory resource (pinned memory, huge pages, ...), aligned to 64.
/// Move-only. The resource must outlive the buffer. Distinct objects: safe.
class byte_buffer {
 public:
  static constexpr std::size_t alignment = 64;

  byte_buffer() noexcept = default;
  explicit byte_buffer(std::size_t size,
                       std::pmr::memory_resource* from = std::pmr::get_default_resource())
      : from_(from),
        data_(size ? static_cast<std::byte*>(from->allocate(size, alignment)) : nullptr),
        size_(size),
        capacity_(size) {}
  byte_buffer(byte_buffer&& o) noexcept
      : from_(o.from_),
        data_(std::exchange(o.data_, nullptr)),
        size_(std::exchange(o.size_, 0)),
        capacity_(std::exchange(o.capacity_, 0)) {}
  byte_buffer& operator=(byte_buffer&& o) noexcept {
    byte_buffer taken(std::move(o));
    std::swap(from_, taken.from_);
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(capacity_, taken.capacity_);
    return *this;
  }
  ~byte_buffer() {
    if (data_) from_->deallocate(data_, capacity_, alignment);
  }

  static byte_buffer copy_of(const_bytes b) {
    byte_buffer r(b.size());
    if (!b.empty()) std::memcpy(r.data(), b.data(), b.size());
    return r;
  }

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  /// Shrinks the visible size; keeps the memory.
  void shrink(std::size_t size) noexcept {
    if (size < size_) size_ = size;
  }
  mutable_bytes bytes() noexcept { return {data_, size_}; }
  const_bytes bytes() const noexcept { return {data_, size_}; }

 private:
  std::pmr::memory_resource* from_ = std::pmr::get_default_resource();
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace batchweave
