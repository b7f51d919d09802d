// A fast S3-like server for benchmarks: one thread, epoll, a forked process, so that its cost is not the client's.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bench {

/// The eight bytes at `offset` (a multiple of 8) of the endless pattern that the server sends where it keeps no bytes.
inline std::uint64_t pattern_at(std::uint64_t offset) { return (offset / 8 + 1) * 0x9e3779b97f4a7c15u; }

/// What the server keeps. Everything below is for benchmarks: no signature is checked, nothing is durable.
/// - GET/HEAD of a key whose last path segment starts with "range": `pattern_bytes` bytes of the pattern, Range honoured.
/// - PUT: bodies up to `keep_bytes` are kept, larger ones are counted and dropped (their GET sends the pattern).
///   If-None-Match: * and If-Match are honoured: requests are served one at a time, so they are atomic.
/// - list-type=2, DELETE, POST ?delete, multipart uploads (parts are dropped beyond `keep_bytes` in all).
class range_server {
 public:
  range_server(int listener, std::uint64_t pattern_bytes, std::uint64_t keep_bytes)
      : listener_(listener), pattern_bytes_(pattern_bytes), keep_bytes_(keep_bytes) {
    pattern_ = ::memfd_create("pattern", 0);
    check(pattern_ >= 0 && ::ftruncate(pattern_, static_cast<off_t>(pattern_bytes)) == 0, "memfd");
    void* at = ::mmap(nullptr, pattern_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pattern_, 0);
    check(at != MAP_FAILED, "mmap");
    auto* words = static_cast<std::uint64_t*>(at);
    for (std::uint64_t i = 0; i < pattern_bytes / 8; ++i) words[i] = pattern_at(i * 8);
    ::munmap(at, pattern_bytes);
    epoll_ = ::epoll_create1(0);
    check(epoll_ >= 0, "epoll_create1");
    set_nonblocking(listener_);
    watch(listener_, EPOLLIN, EPOLL_CTL_ADD);
  }

  [[noreturn]] void run() {
    ::signal(SIGPIPE, SIG_IGN);
    std::vector<epoll_event> events(256);
    for (;;) {
      const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
      for (int i = 0; i < n; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == listener_) {
          accept_all();
        } else if (!serve(fd)) {
          connections_.erase(fd);
          ::close(fd);
        }
      }
    }
  }

 private:
  struct object {
    std::string kept;
    std::uint64_t size = 0;
    bool whole = false;  // `kept` holds all of it
    std::string etag;
  };
  struct request {
    std::string method, key, query;
    std::map<std::string, std::string> headers;
    std::string header(const std::string& name) const {
      const auto at = headers.find(name);
      return at == headers.end() ? std::string() : at->second;
    }
  };
  struct connection {
    std::string in;
    bool in_body = false;
    request now;
    std::uint64_t body_left = 0;
    std::string body;
    std::uint64_t body_size = 0;
    std::string out;
    std::size_t out_sent = 0;
    off_t file_at = 0;
    std::uint64_t file_left = 0;
    bool waits_for_space = false;
    bool close_after = false;
  };

  static void check(bool ok, const char* what) {
    if (!ok) throw std::system_error(errno, std::generic_category(), what);
  }
  static void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL, 0) | O_NONBLOCK); }
  void watch(int fd, std::uint32_t events, int how) {
    epoll_event e{};
    e.events = events;
    e.data.fd = fd;
    ::epoll_ctl(epoll_, how, fd, &e);
  }

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      connections_[fd] = std::make_unique<connection>();
      watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
  }

  // False: the connection is finished.
  bool serve(int fd) {
    connection& c = *connections_.at(fd);
    if (!flush(fd, c)) return false;
    while (!pending(c)) {
      if (c.close_after) return false;
      if (c.in_body ? !read_body(fd, c) : !read_head(fd, c)) return errno == EAGAIN;
      if (!flush(fd, c)) return false;
    }
    return true;
  }

  static bool pending(const connection& c) { return c.out_sent < c.out.size() || c.file_left > 0; }

  // Sends what is queued; false on a broken connection. Asks to be woken when the socket is full.
  bool flush(int fd, connection& c) {
    while (pending(c)) {
      ssize_t n;
      if (c.out_sent < c.out.size()) {
        n = ::send(fd, c.out.data() + c.out_sent, c.out.size() - c.out_sent, c.file_left ? MSG_MORE : 0);
        if (n > 0) c.out_sent += static_cast<std::size_t>(n);
      } else {
        n = ::sendfile(fd, pattern_, &c.file_at, std::min<std::uint64_t>(c.file_left, 1u << 20));
        if (n > 0) c.file_left -= static_cast<std::uint64_t>(n);
        if (static_cast<std::uint64_t>(c.file_at) >= pattern_bytes_) c.file_at = 0;
      }
      if (n < 0 && errno == EAGAIN) {
        if (!c.waits_for_space) watch(fd, EPOLLOUT, EPOLL_CTL_MOD);
        c.waits_for_space = true;
        return true;
      }
      if (n <= 0) return false;
    }
    c.out.clear();
    c.out_sent = 0;
    if (c.waits_for_space) watch(fd, EPOLLIN, EPOLL_CTL_MOD);
    c.waits_for_space = false;
    return true;
  }

  // Reads until one request head is complete; false with errno when there is no more for now (EAGAIN) or ever.
  bool read_head(int fd, connection& c) {
    for (;;) {
      const std::size_t end = c.in.find("\r\n\r\n");
      if (end != std::string::npos) {
        std::string head = c.in.substr(0, end + 2);
        c.in.erase(0, end + 4);
        start(c, head);
        return true;
      }
      char buffer[16384];
      const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0 || c.in.size() > 65536) {
        if (n >= 0) errno = ECONNRESET;
        return false;
      }
      c.in.append(buffer, static_cast<std::size_t>(n));
    }
  }

  void start(connection& c, std::string_view head) {
    request r;
    const std::size_t line = head.find("\r\n");
    const std::string_view first = head.substr(0, line);
    const std::size_t a = first.find(' '), b = first.rfind(' ');
    if (a == std::string_view::npos || a == b) return answer(c, 400, "Bad Request", "");
    r.method = first.substr(0, a);
    std::string_view target = first.substr(a + 1, b - a - 1);
    const std::size_t q = target.find('?');
    if (q != std::string_view::npos) r.query = target.substr(q + 1), target = target.substr(0, q);
    r.key = decoded(target.substr(target.starts_with('/') ? 1 : 0));
    for (std::size_t at = line + 2; at < head.size();) {
      const std::size_t stop = head.find("\r\n", at);
      const std::string_view h = head.substr(at, stop - at);
      at = stop + 2;
      const std::size_t colon = h.find(':');
      if (colon == std::string_view::npos) continue;
      std::string name(h.substr(0, colon));
      for (char& ch : name) ch = static_cast<char>(ch >= 'A' && ch <= 'Z' ? ch + 32 : ch);
      std::string_view value = h.substr(colon + 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      r.headers[name] = std::string(value);
    }
    c.close_after = r.header("connection") == "close";
    c.body_left = std::strtoull(r.header("content-length").c_str(), nullptr, 10);
    c.body.clear();
    c.body_size = 0;
    c.now = std::move(r);
    if (!c.now.header("transfer-encoding").empty()) {
      c.close_after = true;
      return answer(c, 501, "Not Implemented", "");
    }
    if (c.now.header("expect") == "100-continue") c.out += "HTTP/1.1 100 Continue\r\n\r\n";
    c.in_body = c.body_left > 0;
    if (!c.in_body) handle(c);
  }

  bool read_body(int fd, connection& c) {
    while (c.body_left > 0) {
      if (!c.in.empty()) {
        const std::size_t n = std::min<std::uint64_t>(c.in.size(), c.body_left);
        keep(c, c.in.data(), n);
        c.in.erase(0, n);
        continue;
      }
      ssize_t n;
      if (c.body_size + c.body_left <= keep_bytes_) {
        char buffer[65536];
        n = ::recv(fd, buffer, std::min<std::uint64_t>(sizeof buffer, c.body_left), 0);
        if (n > 0) keep(c, buffer, static_cast<std::size_t>(n));
      } else {
        // TCP drops the bytes without copying them.
        n = ::recv(fd, nullptr, std::min<std::uint64_t>(c.body_left, 4u << 20), MSG_TRUNC);
        if (n > 0) keep(c, nullptr, static_cast<std::size_t>(n));
      }
      if (n == 0) errno = ECONNRESET;
      if (n <= 0) return false;
    }
    c.in_body = false;
    handle(c);
    return true;
  }
  void keep(connection& c, const char* data, std::size_t n) {
    if (data && c.body_size == c.body.size() && c.body_size + c.body_left <= keep_bytes_) c.body.append(data, n);
    c.body_size += n;
    c.body_left -= n;
  }

  static std::string decoded(std::string_view s) {
    std::string r;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (s[i] == '%' && i + 2 < s.size()) {
        r += static_cast<char>(std::strtol(std::string(s.substr(i + 1, 2)).c_str(), nullptr, 16));
        i += 2;
      } else {
        r += s[i];
      }
    }
    return r;
  }
  static std::optional<std::string> parameter(const std::string& query, std::string_view name) {
    for (std::size_t at = 0; at <= query.size();) {
      std::size_t stop = query.find('&', at);
      if (stop == std::string::npos) stop = query.size();
      const std::string_view p = std::string_view(query).substr(at, stop - at);
      at = stop + 1;
      const std::size_t eq = p.find('=');
      if (p.substr(0, eq) == name) return eq == std::string_view::npos ? std::string() : decoded(p.substr(eq + 1));
    }
    return std::nullopt;
  }
  static std::string escaped(std::string_view s) {
    std::string r;
    for (const char ch : s) {
      if (ch == '&') r += "&amp;";
      else if (ch == '<') r += "&lt;";
      else r += ch;
    }
    return r;
  }

  void answer(connection& c, int status, std::string_view reason, std::string_view body, std::string_view more = {}) {
    c.out += "HTTP/1.1 " + std::to_string(status) + " ";
    c.out += reason;
    c.out += "\r\nServer: bench\r\nx-amz-request-id: bench\r\n";
    c.out += more;
    if (status != 204) c.out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    c.out += "\r\n";
    c.out += body;
  }
  void refuse(connection& c, int status, std::string_view reason, const std::string& code) {
    answer(c, status, reason, c.now.method == "HEAD" ? "" : "<Error><Code>" + code + "</Code><Message>bench</Message></Error>",
           "Content-Type: application/xml\r\n");
  }

  void handle(connection& c) {
    const std::string& m = c.now.method;
    if (m == "GET" && parameter(c.now.query, "list-type")) return list(c);
    if (m == "GET" || m == "HEAD") return get(c);
    if (m == "PUT") return put(c);
    if (m == "POST") return post(c);
    if (m == "DELETE") {
      if (const auto id = parameter(c.now.query, "uploadId")) uploads_.erase(*id);
      else objects_.erase(c.now.key);
      return answer(c, 204, "No Content", "");
    }
    refuse(c, 405, "Method Not Allowed", "MethodNotAllowed");
  }

  void get(connection& c) {
    const std::size_t slash = c.now.key.rfind('/');
    const bool endless = slash != std::string::npos && c.now.key.compare(slash + 1, 5, "range") == 0;
    const auto at = objects_.find(c.now.key);
    if (at == objects_.end() && !endless) return refuse(c, 404, "Not Found", "NoSuchKey");
    const object* o = at == objects_.end() ? nullptr : &at->second;
    const std::uint64_t size = o ? o->size : pattern_bytes_;
    std::uint64_t first = 0, last = size ? size - 1 : 0;
    const std::string range = c.now.header("range");
    const bool ranged = range.starts_with("bytes=");
    if (ranged) {
      char* end = nullptr;
      first = std::strtoull(range.c_str() + 6, &end, 10);
      if (*end == '-' && end[1]) last = std::min<std::uint64_t>(last, std::strtoull(end + 1, nullptr, 10));
      if (first >= size) {
        return answer(c, 416, "Range Not Satisfiable", c.now.method == "HEAD" ? "" : "<Error><Code>InvalidRange</Code></Error>",
                      "Content-Range: bytes */" + std::to_string(size) + "\r\n");
      }
    }
    const std::uint64_t n = size ? last - first + 1 : 0;
    c.out += ranged ? "HTTP/1.1 206 Partial Content\r\n" : "HTTP/1.1 200 OK\r\n";
    c.out += "Server: bench\r\nx-amz-request-id: bench\r\nAccept-Ranges: bytes\r\nETag: " + (o ? o->etag : "\"pattern\"") + "\r\n";
    if (ranged) {
      c.out += "Content-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" + std::to_string(size) + "\r\n";
    }
    c.out += "Content-Length: " + std::to_string(n) + "\r\n\r\n";
    if (c.now.method == "HEAD") return;
    if (o && o->whole) {
      c.out.append(o->kept, first, n);
    } else {
      c.file_at = static_cast<off_t>(first % pattern_bytes_);
      c.file_left = n;
    }
  }

  // 0 when the request's condition holds, else the status to answer.
  int condition(const connection& c) const {
    const auto at = objects_.find(c.now.key);
    if (c.now.header("if-none-match") == "*" && at != objects_.end()) return 412;
    const std::string match = c.now.header("if-match");
    if (match.empty()) return 0;
    if (at == objects_.end()) return 404;
    return match == "*" || match == at->second.etag ? 0 : 412;
  }
  void store(connection& c, object o, std::string_view body) {
    const int status = condition(c);
    if (status == 412) return refuse(c, 412, "Precondition Failed", "PreconditionFailed");
    if (status == 404) return refuse(c, 404, "Not Found", "NoSuchKey");
    o.etag = next_etag();
    const std::string etag = o.etag;
    objects_[c.now.key] = std::move(o);
    answer(c, 200, "OK", body, "ETag: " + etag + "\r\n");
  }
  std::string next_etag() { return "\"" + std::to_string(1000000 + ++etags_) + "\""; }

  static object taken(connection& c) {
    object o;
    o.size = c.body_size;
    o.whole = c.body.size() == c.body_size;
    o.kept = std::move(c.body);
    c.body.clear();
    return o;
  }

  void put(connection& c) {
    if (const auto id = parameter(c.now.query, "uploadId")) {
      const auto up = uploads_.find(*id);
      if (up == uploads_.end()) return refuse(c, 404, "Not Found", "NoSuchUpload");
      up->second[std::atoi(parameter(c.now.query, "partNumber").value_or("0").c_str())] = taken(c);
      return answer(c, 200, "OK", "", "ETag: " + next_etag() + "\r\n");
    }
    object o = taken(c);
    store(c, std::move(o), "");
  }

  void post(connection& c) {
    if (parameter(c.now.query, "delete")) {
      std::string_view xml = c.body;
      std::string deleted;
      const std::string bucket = c.now.key.substr(0, c.now.key.find('/')) + "/";
      for (std::size_t at = 0; (at = xml.find("<Key>", at)) != std::string_view::npos;) {
        const std::size_t end = xml.find("</Key>", at);
        const std::string key(xml.substr(at + 5, end - at - 5));
        objects_.erase(bucket + key);
        deleted += "<Deleted><Key>" + key + "</Key></Deleted>";
        at = end;
      }
      return answer(c, 200, "OK", "<DeleteResult>" + deleted + "</DeleteResult>", "Content-Type: application/xml\r\n");
    }
    if (parameter(c.now.query, "uploads")) {
      const std::string id = "upload" + std::to_string(++etags_);
      uploads_[id];
      return answer(c, 200, "OK",
                    "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>",
                    "Content-Type: application/xml\r\n");
    }
    const auto id = parameter(c.now.query, "uploadId");
    const auto up = id ? uploads_.find(*id) : uploads_.end();
    if (up == uploads_.end()) return refuse(c, 404, "Not Found", "NoSuchUpload");
    object o;
    o.whole = true;
    for (auto& [number, part] : up->second) {
      o.size += part.size;
      o.whole = o.whole && part.whole && o.size <= keep_bytes_;
      if (o.whole) o.kept += part.kept;
    }
    if (!o.whole) o.kept.clear();
    uploads_.erase(up);
    store(c, std::move(o), "<CompleteMultipartUploadResult><ETag>&quot;bench-1&quot;</ETag></CompleteMultipartUploadResult>");
  }

  void list(connection& c) {
    const std::string bucket = c.now.key.substr(0, c.now.key.find('/')) + "/";
    const std::string prefix = bucket + parameter(c.now.query, "prefix").value_or("");
    std::string after = parameter(c.now.query, "start-after").value_or("");
    after = std::max(after, parameter(c.now.query, "continuation-token").value_or(""));
    const auto max = std::strtoull(parameter(c.now.query, "max-keys").value_or("1000").c_str(), nullptr, 10);
    std::string entries, last;
    std::uint64_t n = 0;
    auto at = objects_.lower_bound(std::max(prefix, bucket + after));
    if (at != objects_.end() && !after.empty() && at->first == bucket + after) ++at;
    for (; at != objects_.end() && at->first.starts_with(prefix) && n < max; ++at, ++n) {
      last = at->first.substr(bucket.size());
      entries += "<Contents><Key>" + escaped(last) + "</Key><Size>" + std::to_string(at->second.size) + "</Size><ETag>" +
                 at->second.etag + "</ETag></Contents>";
    }
    const bool more = at != objects_.end() && at->first.starts_with(prefix);
    answer(c, 200, "OK",
           "<ListBucketResult><KeyCount>" + std::to_string(n) + "</KeyCount><MaxKeys>" + std::to_string(max) +
               "</MaxKeys><IsTruncated>" + (more ? "true" : "false") + "</IsTruncated>" +
               (more ? "<NextContinuationToken>" + escaped(last) + "</NextContinuationToken>" : "") + entries + "</ListBucketResult>",
           "Content-Type: application/xml\r\n");
  }

  int listener_, pattern_ = -1, epoll_ = -1;
  std::uint64_t pattern_bytes_, keep_bytes_;
  std::uint64_t etags_ = 0;
  std::unordered_map<int, std::unique_ptr<connection>> connections_;
  std::map<std::string, object> objects_;
  std::map<std::string, std::map<int, object>> uploads_;
};

/// A listening socket on 127.0.0.1; port 0 picks a free one. Returns the socket and its port.
inline std::pair<int, std::uint16_t> listen_on_loopback(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // A host that is set to BBR paces even the loopback by an estimate, and the same loop measures 1 or 4 GB/s from run to run.
  // Accepted connections inherit this.
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof a;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 || ::listen(fd, 512) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &length) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot listen on 127.0.0.1:" + std::to_string(port));
  }
  return {fd, ntohs(a.sin_port)};
}

/// The server in a forked process that dies with this one. Start it before any thread.
class server_process {
 public:
  explicit server_process(std::uint64_t pattern_bytes = 256u << 20, std::uint64_t keep_bytes = 1u << 20) {
    const auto [fd, port] = listen_on_loopback(0);
    port_ = port;
    const pid_t parent = ::getpid();
    int ready[2];
    if (::pipe(ready) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    pid_ = ::fork();
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(0);
      try {
        range_server server(fd, pattern_bytes, keep_bytes);
        if (::write(ready[1], "r", 1) != 1) ::_exit(1);
        server.run();
      } catch (const std::exception&) {
        ::_exit(1);
      }
    }
    ::close(fd);
    ::close(ready[1]);
    char told = 0;
    const bool started = ::read(ready[0], &told, 1) == 1;
    ::close(ready[0]);
    if (!started) throw std::runtime_error("the benchmark server did not start");
  }
  server_process(const server_process&) = delete;
  server_process& operator=(const server_process&) = delete;
  ~server_process() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::uint16_t port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace bench
