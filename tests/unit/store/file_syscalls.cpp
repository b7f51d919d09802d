// What the folder store asks of the operating system, in which order, and what it does on a file system without hard links.
// This program puts its own fsync, linkat and close before those of the C library; they note down the call and make it.
#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/base/random.hpp>
#include <batchweave/store/file.hpp>

#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;

namespace {

std::mutex calls_mutex;
std::vector<std::string> calls;
bool hard_links = true;

std::string path_of(int fd) {
  char path[PATH_MAX];
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return n < 0 ? std::string() : std::string(path, static_cast<std::size_t>(n));
}
void note(const std::string& call) {
  const std::lock_guard lock(calls_mutex);
  calls.push_back(call);
}

class folder {
 public:
  folder() : path_(std::filesystem::temp_directory_path() / ("batchweave-syscalls-" + std::to_string(bw::random64()()))) {
    std::filesystem::create_directories(path_);
  }
  ~folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// The place of the first call at or after `from` that begins with `begin` and holds `part`.
std::size_t place(std::size_t from, const std::string& begin, const std::string& part) {
  for (std::size_t i = from; i < calls.size(); ++i) {
    if (calls[i].rfind(begin, 0) == 0 && calls[i].find(part) != std::string::npos) return i;
  }
  return std::string::npos;
}

}  // namespace

extern "C" int fsync(int fd) {
  note("fsync " + path_of(fd));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd) {
  note("fsync " + path_of(fd));
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
extern "C" int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  note("linkat " + path_of(to_folder) + "/" + to);
  if (!hard_links) {
    errno = EPERM;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
}
extern "C" int close(int fd) {
  const std::string path = path_of(fd);
  if (path.find("batchweave-syscalls-") != std::string::npos) note("close " + path);
  return static_cast<int>(::syscall(SYS_close, fd));
}

TEST_CASE("FS-07 FS-09 an object is synced and closed before its name appears, and the name is synced before put returns") {
  folder f;
  bw::file_store_options options;
  options.durable(true);
  bw::file_store store = bw::file_store::open(f.path(), options).value();
  test::run([](bw::file_store s, std::string root) -> asio::awaitable<void> {
    for (const bool absent : {true, false}) {
      calls.clear();
      const std::string key = "log/a/" + std::to_string(absent);
      const bw::const_buffers body{bw::as_bytes("one whole version")};
      const bw::put_condition condition = absent ? bw::put_condition::if_absent() : bw::put_condition();
      const bw::result<bw::put_outcome> put = co_await s.put(key, body, condition);
      REQUIRE(put.value().applied());
      INFO([] {
        std::string all;
        for (const std::string& c : calls) all += c + "\n";
        return all;
      }());
      const std::size_t synced = place(0, "fsync", "/.tmp/");
      REQUIRE(synced != std::string::npos);
      const std::size_t closed = place(synced, "close", "/.tmp/");
      REQUIRE(closed != std::string::npos);
      const std::size_t named = place(0, "linkat", "/" + std::to_string(absent));
      if (absent) {
        REQUIRE(named != std::string::npos);
        CHECK(closed < named);
      }
      const std::size_t folder_synced = place(absent ? named : closed, "fsync " + root + "/log/a", "");
      CHECK(folder_synced != std::string::npos);
      // The folders that this put has made have a name of their own to lose.
      if (absent) CHECK(place(named, "fsync " + root + "/log", "") != std::string::npos);
    }
  }(store, f.path()));
}

TEST_CASE("FS-02 a file system without hard links is refused by name at open, and nothing falls back to rename") {
  folder f;
  hard_links = false;
  const bw::file_store_options options;
  const bw::result<bw::file_store> opened = bw::file_store::open(f.path(), options);
  hard_links = true;
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code() == bw::errc::store_unsafe);
  CHECK(opened.error().what().find(f.path()) != std::string::npos);
  CHECK(opened.error().what().find("no working hard links") != std::string::npos);

  // Lost later, for instance by a remount: the put fails and leaves nothing under the name.
  bw::file_store store = bw::file_store::open(f.path(), options).value();
  hard_links = false;
  test::run([](bw::file_store s) -> asio::awaitable<void> {
    const std::string key = "log/1";
    const bw::const_buffers body{bw::as_bytes("v")};
    const bw::put_condition absent = bw::put_condition::if_absent();
    const bw::result<bw::put_outcome> put = co_await s.put(key, body, absent);
    CHECK_FALSE(put.has_value());
    const bw::result<std::optional<bw::object_info>> there = co_await s.head(key);
    CHECK_FALSE(there.value().has_value());
  }(store));
  hard_links = true;
}
