// Temporary keys as the services write them: JSON of processes, containers and instances, XML of STS, and their time stamps. Pure.
#pragma once

#include <batchweave/base/clock.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/s3/credentials.hpp>
#include <batchweave/s3/error_map.hpp>
#include <batchweave/s3/xml.hpp>

#include <pugixml.hpp>
#include <simdjson.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave::s3 {

/// "2023-05-15T18:07:54Z", with fractions or an offset such as "+02:00" too; nullopt for anything else. Source: RFC 3339.
inline std::optional<wall_time> parse_time(std::string_view s) {
  const auto number = [&s](std::size_t at, std::size_t n) -> int {
    int v = 0;
    for (std::size_t i = at; i < at + n; ++i) {
      if (i >= s.size() || s[i] < '0' || s[i] > '9') return -1;
      v = v * 10 + (s[i] - '0');
    }
    return v;
  };
  if (s.size() < 20 || s[4] != '-' || s[7] != '-' || (s[10] != 'T' && s[10] != ' ') || s[13] != ':' || s[16] != ':') return std::nullopt;
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2), hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (year < 0 || month < 1 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  std::size_t at = 19;
  if (s[at] == '.') {
    ++at;
    while (at < s.size() && s[at] >= '0' && s[at] <= '9') ++at;
  }
  int offset = 0;
  if (at < s.size() && (s[at] == '+' || s[at] == '-')) {
    const bool colon = at + 3 < s.size() && s[at + 3] == ':';
    const int h = number(at + 1, 2), m = number(at + (colon ? 4 : 3), 2);
    if (h < 0 || m < 0 || at + (colon ? 6 : 5) != s.size()) return std::nullopt;
    offset = (s[at] == '-' ? -1 : 1) * (h * 60 + m);
  } else if (at + 1 != s.size() || (s[at] != 'Z' && s[at] != 'z')) {
    return std::nullopt;
  }
  return wall_time(std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute - offset) + std::chrono::seconds(second));
}

namespace detail {
inline failure no_keys(std::string what) {
  return failure(errc::credentials_missing, std::move(what)).with_fate(fate::did_not_happen);
}
}  // namespace detail

/// AccessKeyId, SecretAccessKey, Token or SessionToken, Expiration. `source` names the sender in messages, which never hold a value.
inline result<credentials> credentials_of_json(std::string_view text, const std::string& source) {
  simdjson::dom::parser parser;
  simdjson::dom::object o;
  const simdjson::padded_string padded(text);
  if (parser.parse(padded).get(o) != simdjson::SUCCESS) return detail::no_keys(source + " gave no JSON object");
  const auto field = [&o](std::string_view name) {
    std::string_view v;
    if (o.at_key(name).get(v) != simdjson::SUCCESS) v = std::string_view();
    return std::string(v);
  };
  const std::string code = field("Code");
  if (!code.empty() && code != "Success") return detail::no_keys(source + " says " + code + ": " + field("Message"));
  std::string id = field("AccessKeyId"), key = field("SecretAccessKey"), token = field("SessionToken");
  if (token.empty()) token = field("Token");
  if (id.empty() || key.empty()) return detail::no_keys(source + " gave JSON without " + (id.empty() ? "AccessKeyId" : "SecretAccessKey"));
  credentials c(std::move(id), std::move(key), std::move(token), source);
  if (const std::string until = field("Expiration"); !until.empty()) {
    const auto t = parse_time(until);
    if (!t) return detail::no_keys(source + " gave an Expiration that is no time: " + until.substr(0, 40));
    c.expires(t);
  }
  return c;
}

/// The answer of AssumeRole or AssumeRoleWithWebIdentity.
inline result<credentials> credentials_of_sts(int status, std::string_view body, const std::string& source) {
  pugi::xml_document d;
  const bool xml = detail::load(d, body);
  pugi::xml_node at = xml ? d.document_element() : pugi::xml_node();
  if (status != 200) {
    if (detail::local_name(at.name()) == "ErrorResponse") at = detail::child(at, "Error");
    const std::string code = xml ? detail::text(at, "Code") : std::string();
    const verdict v = classify_answer(status, code);
    const errc e = v.code() == errc::rejected ? errc::access_denied : v.code();
    return failure(e, source + ": " + std::to_string(status) + (code.empty() ? "" : " " + code) + (xml ? " " + detail::text(at, "Message") : std::string()))
        .with_status(status)
        .with_server_code(code)
        .with_fate(fate::did_not_happen);
  }
  for (const char* name : {"AssumeRoleResult", "AssumeRoleWithWebIdentityResult"}) {
    const pugi::xml_node keys = detail::child(detail::child(at, name), "Credentials");
    if (!keys) continue;
    const std::string id = detail::text(keys, "AccessKeyId"), key = detail::text(keys, "SecretAccessKey"), token = detail::text(keys, "SessionToken");
    const auto until = parse_time(detail::text(keys, "Expiration"));
    if (id.empty() || key.empty() || token.empty() || !until) break;
    credentials c(id, key, token, source);
    c.expires(until);
    return c;
  }
  return detail::no_keys(source + " answered 200 without credentials");
}

}  // namespace batchweave::s3
