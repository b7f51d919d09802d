// Who signs: keys from the environment or from the shared credentials and config files. Pure but for reading those files.
#pragma once

#include <batchweave/base/clock.hpp>
#include <batchweave/base/error.hpp>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::s3 {

/// A string that no stream prints. `reveal()` is for the signer alone.
class secret {
 public:
  secret() = default;
  explicit secret(std::string s) : text_(std::move(s)) {}
  const std::string& reveal() const noexcept { return text_; }
  bool empty() const noexcept { return text_.empty(); }
  friend bool operator==(const secret&, const secret&) = default;

 private:
  std::string text_;
};

/// A key pair and, for temporary keys, its token: always from one provider.
class credentials {
 public:
  credentials() = default;
  credentials(std::string access_key, std::string secret_key, std::string session_token = std::string(), std::string from = "the program")
      : access_key_(std::move(access_key)), secret_(std::move(secret_key)), token_(std::move(session_token)), source_(std::move(from)) {}
  const std::string& access_key() const noexcept { return access_key_; }
  const secret& secret_key() const noexcept { return secret_; }
  const secret& session_token() const noexcept { return token_; }
  /// Where they came from, for messages.
  const std::string& source() const noexcept { return source_; }
  /// Until when the store takes them; nullopt: for good.
  const std::optional<wall_time>& expires() const noexcept { return expires_; }
  credentials& expires(std::optional<wall_time> t) { expires_ = t; return *this; }
  credentials& source(std::string from) { source_ = std::move(from); return *this; }
  bool empty() const noexcept { return access_key_.empty(); }
  bool same_keys(const credentials& o) const noexcept { return access_key_ == o.access_key_ && secret_ == o.secret_ && token_ == o.token_; }

 private:
  std::string access_key_;
  secret secret_, token_;
  std::string source_;
  std::optional<wall_time> expires_;
};

/// Looks a variable up; nullopt or empty: not set.
using environment = std::function<std::optional<std::string>(const std::string&)>;

inline environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* v = std::getenv(name.c_str());
    if (!v || !*v) return std::nullopt;
    return std::string(v);
  };
}

/// The sections of one file. Lines that cannot be read are named in `problems` and skipped.
class profile_file {
 public:
  using section = std::map<std::string, std::string>;
  enum class flavour {
    credentials,  ///< [name]
    config        ///< [default] and [profile name]
  };

  profile_file() = default;
  /// Source: AWS SDKs and Tools reference guide, "Shared config and credentials files"; oddities as the AWS CLI reads them.
  static profile_file parse(std::string_view text, std::string name, flavour kind) {
    profile_file r;
    r.name_ = std::move(name);
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    section* current = nullptr;
    bool in_block = false;          // below a key without a value, such as "s3 ="
    std::size_t block_indent = 0;
    std::size_t number = 0;
    while (!text.empty()) {
      ++number;
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      const std::size_t indent = line.find_first_not_of(" \t\r");
      if (indent == std::string_view::npos) continue;
      line = trim(line);
      if (line.front() == '#' || line.front() == ';') continue;
      if (line.front() == '[') {
        in_block = false;
        current = nullptr;
        const std::size_t close = line.find(']');
        if (close == std::string_view::npos) {
          r.problem(number, "a section without \"]\"");
          continue;
        }
        std::string_view title = trim(line.substr(1, close - 1));
        if (kind == flavour::config) {
          const bool prefixed = title.size() > 7 && title.starts_with("profile") && (title[7] == ' ' || title[7] == '\t');
          if (prefixed) title = trim(title.substr(7));
          else if (title != "default") continue;  // sso-session, services: not a profile
        }
        if (title.size() >= 2 && (title.front() == '"' || title.front() == '\'') && title.back() == title.front()) {
          title = title.substr(1, title.size() - 2);
        }
        if (title.empty()) {
          r.problem(number, "a section without a name");
          continue;
        }
        current = &r.sections_[std::string(title)];
        continue;
      }
      const std::size_t equals = line.find('=');
      if (in_block && indent > block_indent) continue;
      in_block = false;
      if (equals == std::string_view::npos || trim(line.substr(0, equals)).empty()) {
        r.problem(number, "neither a section, nor key = value, nor a comment");
        continue;
      }
      if (!current) continue;
      std::string_view value = trim(line.substr(equals + 1));
      for (std::size_t i = 1; i < value.size(); ++i) {
        if ((value[i] == '#' || value[i] == ';') && (value[i - 1] == ' ' || value[i - 1] == '\t')) {
          value = trim(value.substr(0, i));
          break;
        }
      }
      if (value.empty()) {
        in_block = true;
        block_indent = indent;
        continue;
      }
      std::string key(trim(line.substr(0, equals)));
      for (char& c : key) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      (*current)[key] = std::string(value);
    }
    return r;
  }

  /// An absent file is an empty one.
  static profile_file read(const std::string& path, flavour kind) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return parse(std::string_view(), path, kind);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    return parse(text, path, kind);
  }

  const std::string& name() const noexcept { return name_; }
  const std::map<std::string, section>& sections() const noexcept { return sections_; }
  const section* find(const std::string& profile) const {
    const auto at = sections_.find(profile);
    return at == sections_.end() ? nullptr : &at->second;
  }
  std::string get(const std::string& profile, const std::string& key) const {
    const section* s = find(profile);
    if (!s) return std::string();
    const auto at = s->find(key);
    return at == s->end() ? std::string() : at->second;
  }
  /// "file:line: what", never the line itself: it could hold a key.
  const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  static std::string_view trim(std::string_view s) {
    while (!s.empty() && (s.front() == ' ' || s.front() == '\t' || s.front() == '\r')) s.remove_prefix(1);
    while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
    return s;
  }
  void problem(std::size_t line, std::string what) { problems_.push_back(name_ + ":" + std::to_string(line) + ": " + std::move(what)); }

  std::string name_;
  std::map<std::string, section> sections_;
  std::vector<std::string> problems_;
};

/// The files that the environment names, and the profile chosen in them. Reads both files once.
class profiles {
 public:
  explicit profiles(const environment& env) {
    const std::string home = env("HOME").value_or("");
    chosen_ = env("AWS_PROFILE").value_or("default");
    named_ = env("AWS_PROFILE").has_value();
    keys_ = profile_file::read(env("AWS_SHARED_CREDENTIALS_FILE").value_or(home + "/.aws/credentials"), profile_file::flavour::credentials);
    config_ = profile_file::read(env("AWS_CONFIG_FILE").value_or(home + "/.aws/config"), profile_file::flavour::config);
  }
  const std::string& chosen() const noexcept { return chosen_; }
  /// Of the chosen profile, from the config file.
  std::string get(const std::string& key) const { return config_.get(chosen_, key); }
  /// Of any profile; the credentials file wins, as with the AWS CLI.
  std::string get(const std::string& profile, const std::string& key) const {
    std::string v = keys_.get(profile, key);
    return v.empty() ? config_.get(profile, key) : v;
  }
  bool has(const std::string& profile) const { return keys_.find(profile) || config_.find(profile); }

  /// Key and token from one section of one file. errc::credentials_missing names the files and the lines that could not be read.
  result<credentials> load() const { return load(chosen_); }
  result<credentials> load(const std::string& profile) const {
    for (const profile_file* file : {&keys_, &config_}) {
      const std::string id = file->get(profile, "aws_access_key_id"), key = file->get(profile, "aws_secret_access_key");
      if (id.empty() && key.empty()) continue;
      const std::string where = "profile \"" + profile + "\" of " + file->name();
      if (id.empty() || key.empty()) {
        return missing(where + " has no " + (id.empty() ? "aws_access_key_id" : "aws_secret_access_key"));
      }
      return credentials(id, key, file->get(profile, "aws_session_token"), where);
    }
    if (named_ && !has(chosen_)) {
      return missing("AWS_PROFILE names \"" + chosen_ + "\", which is neither in " + keys_.name() + " nor in " + config_.name());
    }
    return missing("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put them in profile \"" + profile + "\" of " +
                   keys_.name() + " or " + config_.name());
  }
  /// A profile of that name was asked for by AWS_PROFILE.
  bool named() const noexcept { return named_; }

  /// errc::credentials_missing, with the lines that could not be read.
  failure missing(std::string what) const {
    for (const profile_file* file : {&keys_, &config_}) {
      for (const std::string& p : file->problems()) what += "; " + p;
    }
    return failure(errc::credentials_missing, std::move(what)).with_fate(fate::did_not_happen);
  }

 private:
  std::string chosen_;
  bool named_ = false;
  profile_file keys_, config_;
};

/// From AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; nullopt when neither of the first two is set. Half a pair is an error, not a
/// reason to look elsewhere.
inline result<std::optional<credentials>> environment_credentials(const environment& env) {
  const auto id = env("AWS_ACCESS_KEY_ID"), key = env("AWS_SECRET_ACCESS_KEY");
  if (id && key) return std::optional<credentials>(credentials(*id, *key, env("AWS_SESSION_TOKEN").value_or(""), "the environment"));
  if (!id && !key) return std::optional<credentials>();
  return failure(errc::credentials_missing,
                 std::string(id ? "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not" : "AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not"))
      .with_fate(fate::did_not_happen);
}

/// Keys that are written down: the environment first, then the files. Nothing that has to be asked for; see credential_chain().
inline result<credentials> load_credentials(const environment& env) {
  const result<std::optional<credentials>> given = environment_credentials(env);
  if (!given) return given.error();
  if (*given) return **given;
  return profiles(env).load();
}

}  // namespace batchweave::s3
