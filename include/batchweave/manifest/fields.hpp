// What a version consists of, field by field, in the order in which every codec writes it.
#pragma once

#include <batchweave/manifest/version.hpp>

#include <string>
#include <string_view>
#include <type_traits>

namespace batchweave::manifest::detail {

/// `describe(archive, value)` calls `archive(name, member)` for each member; archives write or read. `Value` may be const.
template <class Value, class Type>
concept maybe_const = std::is_same_v<std::remove_const_t<Value>, Type>;

template <class A, maybe_const<slice_layout> T>
void describe(A& a, T& x) {
  a("count", x.count);
  a("alignment", x.alignment);
  a("fixed_size", x.fixed_size);
  a("sizes", x.sizes);
}
template <class A, maybe_const<tgb_reference> T>
void describe(A& a, T& x) {
  a("producer", x.producer);
  a("epoch", x.epoch);
  a("seq", x.seq);
  a("bytes", x.bytes);
  a("footer_offset", x.footer_offset);
  a("parts", x.parts);
}
template <class A, maybe_const<tgb_entry> T>
void describe(A& a, T& x) {
  if constexpr (std::is_const_v<T>) describe(a, static_cast<const tgb_reference&>(x));
  else describe(a, static_cast<tgb_reference&>(x));
  a("layout", x.layout);
  a("samples", x.samples);
  a("tag", x.tag);
  a("unix_ns", x.unix_ns);
}
template <class A, maybe_const<event> T>
void describe(A& a, T& x) {
  a("kind", x.kind);
  a("producer", x.producer);
  a("epoch", x.epoch);
  a("owner", x.owner);
  a("group", x.group);
  a("checkpoint", x.checkpoint);
  a("step", x.step);
}
template <class A, maybe_const<producer_entry> T>
void describe(A& a, T& x) {
  a("id", x.id);
  a("epoch", x.epoch);
  a("owner", x.owner);
  a("next_seq", x.next_seq);
  a("last_version", x.last_version);
  a("finished", x.finished);
  a("retired", x.retired);
  a("last_tgb", x.last_tgb);
}
template <class A, maybe_const<checkpoint_entry> T>
void describe(A& a, T& x) {
  a("id", x.id);
  a("step", x.step);
}
template <class A, maybe_const<group_entry> T>
void describe(A& a, T& x) {
  a("name", x.name);
  a("world_size", x.world_size);
  a("keep", x.keep);
  a("generation", x.generation);
  a("retained", x.retained);
}
template <class A, maybe_const<segment_ref> T>
void describe(A& a, T& x) {
  a("first", x.first);
  a("end", x.end);
  a("nonce", x.nonce);
  a("bytes", x.bytes);
}
template <class A, maybe_const<summary> T>
void describe(A& a, T& x) {
  a("next_step", x.next_step);
  a("trim_step", x.trim_step);
  a("oldest_version", x.oldest_version);
  a("sealed_step", x.sealed_step);
  a("segments", x.segments);
  a("producers", x.producers);
  a("groups", x.groups);
  a("closed", x.closed);
  a("final_step", x.final_step);
}
template <class A, maybe_const<version> T>
void describe(A& a, T& x) {
  a("version", x.number);
  a("stream_id", x.stream_id);
  a("nonce", x.nonce);
  a("unix_ns", x.unix_ns);
  a("summary", x.summary);
  a("first_step", x.first_step);
  a("entries", x.entries);
  a("events", x.events);
}

inline failure newer_format(std::string_view what, std::uint64_t format, std::uint64_t known) {
  return failure(errc::not_supported, std::string(what) + " format " + std::to_string(format) +
                                          " was written by a newer batchweave; this one reads format " + std::to_string(known) +
                                          ": update it");
}

}  // namespace batchweave::manifest::detail
