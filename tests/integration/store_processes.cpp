// Real processes on one folder: racing creates, and writers killed in the middle of a put.
#include "support/catch.hpp"

#include <batchweave/store/file_folder.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace bw = batchweave;
namespace fs = std::filesystem;
using bw::detail::file_folder;

namespace {

class place {
 public:
  place() : path_(fs::temp_directory_path() / ("batchweave-processes-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~place() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

std::string body_of(int process, int round) {
  return std::string(20000, static_cast<char>('a' + process)) + " " + std::to_string(round);
}

std::string read(file_folder& f, const std::string& key, std::uint64_t size) {
  std::string text(size, '\0');
  const bw::mutable_buffers into{std::as_writable_bytes(std::span(text))};
  const auto got = f.get(key, bw::byte_range(0, size), into).value();
  return got.found() ? text.substr(0, got.bytes()) : "(absent)";
}

/// A child process that runs `work` and exits with what it returns.
template <class Work>
pid_t child(Work work) {
  const pid_t id = ::fork();
  if (id == 0) ::_exit(work());
  return id;
}

}  // namespace

TEST_CASE("FS-01 FS-04 of 8 processes that race to create 50 keys, each key has one winner and its bytes") {
  constexpr int processes = 8, rounds = 50;
  const place there;
  int go[2], results[2];
  REQUIRE(::pipe(go) == 0);
  REQUIRE(::pipe(results) == 0);
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    children.push_back(child([&] {
      ::close(go[1]);
      file_folder f(there.path(), false);
      if (!f.open(false)) return 2;
      char start;
      (void)!::read(go[0], &start, 1);  // all at once, when the parent closes its end
      for (int r = 0; r < rounds; ++r) {
        const std::string text = body_of(p, r);
        const bw::const_buffers body{bw::as_bytes(text)};
        const auto put = f.put("log/" + std::to_string(r), body, bw::put_condition::if_absent());
        if (!put) return 3;
        const unsigned char won[2] = {static_cast<unsigned char>(p), static_cast<unsigned char>(r)};
        if (put->applied() && ::write(results[1], won, 2) != 2) return 4;
      }
      return 0;
    }));
  }
  ::close(go[0]);
  ::close(go[1]);
  ::close(results[1]);
  for (const pid_t id : children) {
    int status = 0;
    REQUIRE(::waitpid(id, &status, 0) == id);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  std::vector<std::vector<int>> winners(rounds);
  unsigned char won[2];
  while (::read(results[0], won, 2) == 2) winners[won[1]].push_back(won[0]);
  ::close(results[0]);
  file_folder f(there.path(), false);
  REQUIRE(f.open(false).has_value());
  for (int r = 0; r < rounds; ++r) {
    INFO("key log/" << r);
    REQUIRE(winners[static_cast<std::size_t>(r)].size() == 1);
    CHECK(read(f, "log/" + std::to_string(r), 30000) == body_of(winners[static_cast<std::size_t>(r)][0], r));
  }
}

TEST_CASE("FS-05 a writer killed in the middle leaves no half object, and the next one goes on") {
  const place there;
  file_folder f(there.path(), true);
  REQUIRE(f.open(false).has_value());
  constexpr std::size_t size = std::size_t{8} << 20;
  std::size_t next = 0;
  for (int round = 0; round < 15; ++round) {
    int said[2];
    REQUIRE(::pipe(said) == 0);
    const pid_t id = child([&] {
      file_folder mine(there.path(), true);
      if (!mine.open(false)) return 2;
      for (std::size_t n = next; n < next + 1000; ++n) {
        const std::string text(size, static_cast<char>('a' + n % 26));
        const bw::const_buffers body{bw::as_bytes(text)};
        (void)!::write(said[1], "s", 1);  // a put begins
        const auto put = mine.put("log/" + std::to_string(n), body, bw::put_condition::if_absent());
        if (!put || !put->applied()) return 3;
        (void)!::write(said[1], "d", 1);
      }
      return 5;
    });
    ::close(said[1]);
    std::size_t acknowledged = 0, begun = 0;
    char c = 0;
    while (begun < 2 && ::read(said[0], &c, 1) == 1) {
      begun += c == 's';
      acknowledged += c == 'd';
    }
    ::usleep(static_cast<useconds_t>(round * 700));
    ::kill(id, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(id, &status, 0) == id);
    REQUIRE(WIFSIGNALED(status));
    while (::read(said[0], &c, 1) == 1) acknowledged += c == 'd';
    ::close(said[0]);
    const std::size_t before = next;
    for (;; ++next) {
      const auto head = f.head("log/" + std::to_string(next)).value();
      if (!head) break;
      REQUIRE(head->size() == size);
      REQUIRE(read(f, "log/" + std::to_string(next), size) == std::string(size, static_cast<char>('a' + next % 26)));
    }
    CHECK(next - before >= acknowledged);  // what was acknowledged is there
    CHECK(next - before <= acknowledged + 1);
  }
}
