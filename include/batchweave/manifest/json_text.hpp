// JSON as the stream's objects use it: a writer, a reader by field name, and a checksum at the end of the text.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/base/checksum.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/manifest/fields.hpp>
#include <batchweave/manifest/naming.hpp>

#include <simdjson.h>

#include <charconv>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::manifest::detail {

inline constexpr std::uint64_t exact_in_double = std::uint64_t{1} << 53;  // jq holds numbers as doubles
inline constexpr char hex_digits[] = "0123456789abcdef";

/// Appends members of one JSON object. Integers above 2^53 become strings of digits, ids strings of hex digits, and text that is not
/// UTF-8 becomes {"hex":"..."}.
class json_writer {
 public:
  explicit json_writer(std::string& out) : out_(out) {}

  void operator()(const char* name, std::uint64_t v) { key(name); value(v); }
  void operator()(const char* name, std::uint32_t v) { key(name); value(v); }
  void operator()(const char* name, std::int64_t v) { key(name); value(v); }
  void operator()(const char* name, bool v) { key(name); out_ += v ? "true" : "false"; }
  void operator()(const char* name, event_kind v) { key(name); quoted(event_names[static_cast<std::size_t>(v)]); }
  void operator()(const char* name, id128 v) { key(name); quoted(v.to_string()); }
  void operator()(const char* name, const std::string& v) { key(name); value(v); }
  template <class T>
  void operator()(const char* name, const std::vector<T>& list) {
    key(name);
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i) out_ += ',';
      value(list[i]);
    }
    out_ += ']';
  }
  template <class T>
  void operator()(const char* name, const T& x) {
    key(name);
    value(x);
  }

 private:
  void key(const char* name) {
    if (!first_) out_ += ',';
    first_ = false;
    out_ += '"';
    out_ += name;
    out_ += "\":";
  }
  void value(std::uint32_t v) { out_ += std::to_string(v); }
  void value(std::uint64_t v) { number(std::to_string(v), v <= exact_in_double); }
  void value(std::int64_t v) {
    const std::uint64_t size = v < 0 ? ~static_cast<std::uint64_t>(v) + 1 : static_cast<std::uint64_t>(v);
    number(std::to_string(v), size <= exact_in_double);
  }
  void number(const std::string& digits, bool plain) {
    if (plain) out_ += digits;
    else quoted(digits);
  }
  void value(const std::string& v) {
    if (simdjson::validate_utf8(v.data(), v.size())) return quoted(v);
    out_ += "{\"hex\":\"";
    for (const char c : v) {
      out_ += hex_digits[static_cast<unsigned char>(c) >> 4];
      out_ += hex_digits[static_cast<unsigned char>(c) & 15];
    }
    out_ += "\"}";
  }
  template <class T>
  void value(const T& x) {
    out_ += '{';
    json_writer inner(out_);
    describe(inner, x);
    out_ += '}';
  }
  void quoted(std::string_view s) {
    out_ += '"';
    for (const char c : s) {
      const auto u = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += c;
      } else if (u < 0x20 || u == 0x7f) {
        out_ += "\\u00";
        out_ += hex_digits[u >> 4];
        out_ += hex_digits[u & 15];
      } else {
        out_ += c;
      }
    }
    out_ += '"';
  }

  std::string& out_;
  bool first_ = true;
};

/// Reads members of one JSON object by name; unknown members are ignored. Keeps the path of the first member that is wrong.
class json_reader {
 public:
  json_reader(simdjson::dom::object object, std::string path, std::string& failed)
      : object_(object), path_(std::move(path)), failed_(failed) {}

  template <class T>
  void operator()(const char* name, T& out) {
    if (!failed_.empty()) return;
    simdjson::dom::element e;
    if (object_.at_key(name).get(e) != simdjson::SUCCESS || !read(e, path_ + name, out)) {
      if (failed_.empty()) failed_ = path_ + name;
    }
  }

 private:
  static bool read(simdjson::dom::element e, const std::string&, std::uint64_t& out) {
    if (e.get(out) == simdjson::SUCCESS) return true;
    std::string_view digits;
    if (e.get(digits) != simdjson::SUCCESS) return false;
    const auto v = parse_digits(digits);
    if (v) out = *v;
    return v.has_value();
  }
  static bool read(simdjson::dom::element e, const std::string& path, std::uint32_t& out) {
    std::uint64_t wide = 0;
    if (!read(e, path, wide) || wide > std::numeric_limits<std::uint32_t>::max()) return false;
    out = static_cast<std::uint32_t>(wide);
    return true;
  }
  static bool read(simdjson::dom::element e, const std::string&, std::int64_t& out) {
    if (e.get(out) == simdjson::SUCCESS) return true;
    std::string_view digits;
    if (e.get(digits) != simdjson::SUCCESS || digits.empty()) return false;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return ec == std::errc() && end == digits.data() + digits.size();
  }
  static bool read(simdjson::dom::element e, const std::string&, bool& out) { return e.get(out) == simdjson::SUCCESS; }
  static bool read(simdjson::dom::element e, const std::string&, event_kind& out) {
    std::string_view name;
    if (e.get(name) != simdjson::SUCCESS) return false;
    for (std::size_t i = 0; i < std::size(event_names); ++i) {
      if (event_names[i] == name) {
        out = static_cast<event_kind>(i);
        return true;
      }
    }
    return false;
  }
  static bool read(simdjson::dom::element e, const std::string&, id128& out) {
    std::string_view text;
    if (e.get(text) != simdjson::SUCCESS) return false;
    const auto id = id128::parse(text);
    if (id) out = *id;
    return id.has_value();
  }
  static bool read(simdjson::dom::element e, const std::string&, std::string& out) {
    std::string_view text;
    if (e.get(text) == simdjson::SUCCESS) {
      out = std::string(text);
      return true;
    }
    simdjson::dom::object o;
    if (e.get(o) != simdjson::SUCCESS || o.at_key("hex").get(text) != simdjson::SUCCESS || text.size() % 2 != 0) return false;
    const std::string_view digits = hex_digits;
    for (std::size_t i = 0; i < text.size(); i += 2) {
      const std::size_t high = digits.find(text[i]);
      const std::size_t low = digits.find(text[i + 1]);
      if (high == std::string_view::npos || low == std::string_view::npos) return false;
      out += static_cast<char>(high << 4 | low);
    }
    return true;
  }
  template <class T>
  bool read(simdjson::dom::element e, const std::string& path, std::vector<T>& out) {
    simdjson::dom::array list;
    if (e.get(list) != simdjson::SUCCESS) return false;
    for (const simdjson::dom::element item : list) {
      T x{};
      if (!read(item, path + "[" + std::to_string(out.size()) + "]", x)) return false;
      out.push_back(std::move(x));
    }
    return true;
  }
  template <class T>
  bool read(simdjson::dom::element e, const std::string& path, T& out) {
    simdjson::dom::object o;
    if (e.get(o) != simdjson::SUCCESS) return false;
    json_reader inner(o, path + ".", failed_);
    describe(inner, out);
    return failed_.empty();
  }

  simdjson::dom::object object_;
  std::string path_;
  std::string& failed_;
};

inline constexpr std::string_view json_seal = ",\"checksum\":\"";
inline constexpr std::string_view json_seal_end = "\"}\n";

inline std::string hex16(std::uint64_t v) { return id128(0, v).to_string().substr(16); }

/// `{"batchweave":"<what>","format":<n>`, the members of `x`, then the XXH3-64 of the text so far as the last member.
template <class T>
std::string sealed_json(std::string_view what, std::uint64_t format, const T& x) {
  std::string text = "{\"batchweave\":\"" + std::string(what) + "\",\"format\":" + std::to_string(format) + ",";
  json_writer fields(text);
  describe(fields, x);
  const std::uint64_t sum = xxh3(as_bytes(text));
  text += json_seal;
  text += hex16(sum);
  text += json_seal_end;
  return text;
}

inline std::string json_start(std::string_view what) { return "{\"batchweave\":\"" + std::string(what) + "\",\"format\":"; }

/// Reads what sealed_json wrote. Errors: damaged, naming the member that is wrong; not_supported for a newer format.
template <class T>
result<T> unsealed_json(std::string_view what, std::uint64_t known, const_bytes bytes) {
  const std::string subject = "JSON " + std::string(what);
  const auto damaged = [&](const std::string& why) { return failure(errc::damaged, subject + ": " + why); };
  const std::string_view text = as_text(bytes);
  const std::string start = json_start(what);
  if (text.substr(0, start.size()) != start) return damaged("it does not begin with " + start);
  const std::string_view after = text.substr(start.size());
  const auto format = parse_digits(after.substr(0, after.find(',')));
  if (!format || *format == 0) return damaged("member 'format' is no number");
  if (*format > known) return newer_format(subject, *format, known);
  const std::size_t seal = json_seal.size() + 16 + json_seal_end.size();
  if (after.size() < seal || text.substr(text.size() - seal, json_seal.size()) != json_seal ||
      text.substr(text.size() - json_seal_end.size()) != json_seal_end) {
    return damaged("it does not end with the checksum");
  }
  const std::string_view sum = text.substr(text.size() - json_seal_end.size() - 16, 16);
  if (hex16(xxh3(bytes.first(bytes.size() - seal))) != sum) {
    return damaged("the checksum does not match its " + std::to_string(bytes.size()) + " bytes; was it edited by hand?");
  }
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (const auto e = parser.parse(text.data(), text.size()).get(object); e != simdjson::SUCCESS) {  // parse() copies and pads
    return damaged(simdjson::error_message(e));
  }
  T x;
  std::string failed;
  json_reader fields(object, "", failed);
  describe(fields, x);
  if (!failed.empty()) return damaged("member '" + failed + "' is missing or of the wrong type");
  return x;
}

}  // namespace batchweave::manifest::detail
