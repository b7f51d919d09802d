// Which proxy a connection goes through: HTTP_PROXY, HTTPS_PROXY and NO_PROXY, or one that the program names. Pure.
#pragma once

#include <batchweave/base/error.hpp>

#include <openssl/evp.h>

#include <cctype>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::http {

/// Host, port and, where the proxy wants it, the value of Proxy-Authorization. A value; never printed.
class proxy {
 public:
  proxy() = default;
  /// Reads "http://[user:password@]host[:port]" or "host:port". errc::invalid_argument, without the text: it may hold a password.
  static result<proxy> parse(std::string_view url) {
    if (const std::size_t scheme = url.find("://"); scheme != std::string_view::npos) {
      if (lower(url.substr(0, scheme)) != "http") return bad("only http:// proxies are supported");
      url.remove_prefix(scheme + 3);
    }
    url = url.substr(0, url.find('/'));
    proxy p;
    if (const std::size_t at = url.rfind('@'); at != std::string_view::npos) {
      const std::string who = decode(url.substr(0, at));
      std::string encoded(4 * ((who.size() + 2) / 3) + 1, '\0');
      const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()), reinterpret_cast<const unsigned char*>(who.data()),
                                    static_cast<int>(who.size()));
      encoded.resize(static_cast<std::size_t>(n));
      p.authorization_ = "Basic " + encoded;
      url.remove_prefix(at + 1);
    }
    std::string_view port;
    if (!url.empty() && url.front() == '[') {
      const std::size_t close = url.find(']');
      if (close == std::string_view::npos) return bad("\"]\" is missing");
      port = url.substr(close + 1);
      p.host_ = lower(url.substr(1, close - 1));
    } else {
      const std::size_t colon = url.rfind(':');
      if (colon != std::string_view::npos) port = url.substr(colon);
      p.host_ = lower(url.substr(0, colon));
    }
    if (p.host_.empty()) return bad("the host is empty");
    if (!port.empty()) {
      std::uint32_t n = 0;
      for (const char c : port.substr(1)) {
        if (c < '0' || c > '9' || n > 65535) return bad("the port must be 1 to 65535");
        n = n * 10 + static_cast<std::uint32_t>(c - '0');
      }
      if (port.front() != ':' || n == 0 || n > 65535) return bad("the port must be 1 to 65535");
      p.port_ = static_cast<std::uint16_t>(n);
    }
    return p;
  }
  const std::string& host() const noexcept { return host_; }
  std::uint16_t port() const noexcept { return port_; }
  const std::string& authorization() const noexcept { return authorization_; }
  friend bool operator==(const proxy&, const proxy&) = default;

  static std::string lower(std::string_view s) {
    std::string r(s);
    for (char& c : r) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return r;
  }

 private:
  static failure bad(const char* what) {
    return failure(errc::invalid_argument, std::string("proxy: ") + what + "; write http://host:port").with_fate(fate::did_not_happen);
  }
  static std::string decode(std::string_view s) {
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    std::string r;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (s[i] == '%' && i + 2 < s.size() && digit(s[i + 1]) >= 0 && digit(s[i + 2]) >= 0) {
        r += static_cast<char>(digit(s[i + 1]) * 16 + digit(s[i + 2]));
        i += 2;
      } else {
        r += s[i];
      }
    }
    return r;
  }
  std::string host_, authorization_;
  std::uint16_t port_ = 80;
};

/// Chooses for each target. Loopback and link-local addresses, where the credentials services of clouds live, never go through a proxy.
class proxy_settings {
 public:
  using lookup = std::function<std::optional<std::string>(const std::string&)>;

  proxy_settings() = default;
  /// Lower-case variables win over upper-case ones, as with curl. A proxy that cannot be read is in problem().
  static proxy_settings from(const lookup& variables) {
    proxy_settings r;
    const auto read = [&](const char* small, const char* large) {
      auto v = variables(small);
      if (!v || v->empty()) v = variables(large);
      return v.value_or("");
    };
    r.plain_ = r.take(read("http_proxy", "HTTP_PROXY"));
    r.secure_ = r.take(read("https_proxy", "HTTPS_PROXY"));
    r.except(read("no_proxy", "NO_PROXY"));
    return r;
  }
  /// One proxy for everything but loopback and link-local addresses; empty: none.
  static proxy_settings always(const std::string& url) {
    proxy_settings r;
    r.plain_ = r.secure_ = r.take(url);
    return r;
  }
  /// Comma-separated hosts, domains (with or without a leading dot, or "*."), host:port, or "*".
  void except(std::string_view list) {
    while (!list.empty()) {
      const std::size_t end = list.find_first_of(", ");
      const std::string_view one = list.substr(0, end);
      list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
      if (!one.empty()) except_.push_back(proxy::lower(one));
    }
  }

  std::optional<proxy> choose(bool tls, const std::string& host, std::uint16_t port) const {
    const std::optional<proxy>& p = tls ? secure_ : plain_;
    if (!p || is_local(host)) return std::nullopt;
    for (std::string_view rule : except_) {
      if (rule == "*") return std::nullopt;
      if (rule.front() == '[') continue;
      if (const std::size_t colon = rule.find(':'); colon != std::string_view::npos && rule.find(':', colon + 1) == std::string_view::npos) {
        if (rule.substr(colon + 1) != std::to_string(port)) continue;
        rule = rule.substr(0, colon);
      }
      if (rule.starts_with("*.")) rule.remove_prefix(1);
      if (rule.starts_with(".")) rule.remove_prefix(1);
      if (rule.empty()) continue;
      if (host == rule) return std::nullopt;
      if (host.size() > rule.size() && host.ends_with(rule) && host[host.size() - rule.size() - 1] == '.') return std::nullopt;
    }
    return p;
  }
  const std::optional<failure>& problem() const noexcept { return problem_; }

  /// Loopback and link-local: 127/8, 169.254/16, ::1, fe80::/10, the fd00:ec2:: services, localhost.
  static bool is_local(std::string_view host) {
    return host == "localhost" || host.ends_with(".localhost") || (is_ipv4(host) && (host.starts_with("127.") || host.starts_with("169.254."))) ||
           host == "::1" || host.starts_with("fd00:ec2:") || (host.find(':') != std::string_view::npos && host.starts_with("fe80:"));
  }

 private:
  static bool is_ipv4(std::string_view host) { return host.find_first_not_of("0123456789.") == std::string_view::npos; }
  std::optional<proxy> take(const std::string& url) {
    if (url.empty()) return std::nullopt;
    const result<proxy> p = proxy::parse(url);
    if (p) return *p;
    problem_ = p.error();
    return std::nullopt;
  }
  std::optional<proxy> plain_, secure_;
  std::vector<std::string> except_;
  std::optional<failure> problem_;
};

}  // namespace batchweave::http
