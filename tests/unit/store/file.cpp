// The folder store: what lies on disk, what a crash or a hostile file system can do.
#include "support/catch.hpp"

#include <batchweave/store/file_folder.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace bw = batchweave;
namespace fs = std::filesystem;
using bw::detail::file_folder;

namespace {

class place {
 public:
  place() : path_(fs::temp_directory_path() / ("batchweave-file-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~place() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  std::size_t temporaries() const {
    std::size_t n = 0;
    for (const auto& e : fs::directory_iterator(path_ / ".tmp")) n += e.path().filename().string().starts_with("put-");
    return n;
  }

 private:
  fs::path path_;
};

bw::result<bw::put_outcome> put(file_folder& f, const std::string& key, const std::string& text, const bw::put_condition& c) {
  const bw::const_buffers body{bw::as_bytes(text)};
  return f.put(key, body, c);
}

std::string read(file_folder& f, const std::string& key) {
  const auto head = f.head(key).value();
  if (!head) return "(absent)";
  std::string text(head->size(), '\0');
  const bw::mutable_buffers into{std::as_writable_bytes(std::span(text))};
  const auto got = f.get(key, bw::byte_range(0, text.size()), into).value();
  return got.found() ? text.substr(0, got.bytes()) : "(absent)";
}

const bw::put_condition always;
const bw::put_condition absent = bw::put_condition::if_absent();

}  // namespace

TEST_CASE("keys and file names: one name for each key, and back") {
  const std::pair<std::string, std::string> pairs[] = {
      {"a", "a.obj"},           {"a/b", "a/b.obj"},         {"a.obj/b", "a%2Eobj/b.obj"}, {"a.obj", "a.obj.obj"},
      {"..", "%2E..obj"},       {"../x", "%2E./x.obj"},     {"/abs", "%/abs.obj"},        {"trail/", "trail/%.obj"},
      {".tmp/x", "%2Etmp/x.obj"}, {"100%.csv", "100%25.csv.obj"}, {"a%2Fb", "a%252Fb.obj"},  {"a//b", "a/%/b.obj"},
  };
  for (const auto& [key, path] : pairs) {
    INFO(key);
    CHECK(bw::detail::key_to_path(key).value() == path);
  }
  CHECK_FALSE(bw::detail::key_to_path(std::string(252, 'x')).has_value());
  CHECK(bw::detail::key_to_path(std::string(251, 'x')).has_value());
  for (const char* foreign : {"README", ".nfs0001.obj", "%2.obj", "%zz.obj", "%41.obj", "..", "a%2eb.obj"}) {
    bool folder = false;
    INFO(foreign);
    const auto segment = bw::detail::name_to_segment(foreign, folder);
    CHECK((!segment || folder));  // never an object
  }
}

TEST_CASE("dangerous keys are refused or stay inside of the folder") {
  const place there;
  file_folder f((there.path()).string(), true);
  REQUIRE(f.open(false).has_value());
  for (const std::string& key : {std::string(), std::string("a\0b", 3), std::string("a\nb"), std::string(300, 'x'), std::string(1025, '/')}) {
    const auto r = put(f, key, "x", always);
    REQUIRE_FALSE(r.has_value());
    CHECK(r.error().code() == bw::errc::invalid_argument);
    CHECK(r.error().fate() == bw::fate::did_not_happen);
  }
  REQUIRE(put(f, "../escape", "x", always).value().applied());
  REQUIRE(put(f, "/etc/escape", "y", always).value().applied());
  CHECK_FALSE(fs::exists(there.path().parent_path() / "escape.obj"));
  CHECK(read(f, "../escape") == "x");
  CHECK(read(f, "/etc/escape") == "y");
}

TEST_CASE("FS-01 FS-04 one winner among threads, and a refused create changes nothing") {
  const place there;
  file_folder f((there.path()).string(), false);
  REQUIRE(f.open(false).has_value());
  std::vector<int> won(16);
  {
    std::vector<std::thread> racers;
    for (int i = 0; i < 16; ++i) {
      racers.emplace_back([&, i] { won[static_cast<std::size_t>(i)] = put(f, "deep/er/key", "racer " + std::to_string(i), absent).value().applied(); });
    }
    for (auto& r : racers) r.join();
  }
  CHECK(std::count(won.begin(), won.end(), 1) == 1);
  const auto winner = std::find(won.begin(), won.end(), 1) - won.begin();
  CHECK(read(f, "deep/er/key") == "racer " + std::to_string(winner));
  CHECK(there.temporaries() == 0);
}

TEST_CASE("FS-04 if_match: one of 16 threads that saw the same etag wins") {
  const place there;
  file_folder f((there.path()).string(), false);
  REQUIRE(f.open(false).has_value());
  for (int round = 0; round < 20; ++round) {
    const bw::put_condition same = bw::put_condition::if_match(put(f, "key", "base", always).value().etag());
    std::vector<int> won(16);
    std::vector<std::thread> racers;
    for (int i = 0; i < 16; ++i) {
      racers.emplace_back([&, i] { won[static_cast<std::size_t>(i)] = put(f, "key", "next", same).value().applied(); });
    }
    for (auto& r : racers) r.join();
    REQUIRE(std::count(won.begin(), won.end(), 1) == 1);
  }
}

TEST_CASE("FS-05 what a killed writer leaves is no object, is not listed, and is swept when it is old") {
  const place there;
  {
    file_folder f((there.path()).string(), true);
    REQUIRE(f.open(false).has_value());
  }
  const fs::path young = there.path() / ".tmp" / "put-1-1", lock = there.path() / ".tmp" / "lock";
  std::ofstream(young) << "half of an obj";
  std::ofstream(lock) << "";
  const fs::path dead = there.path() / ".tmp" / "put-2-2", alive = there.path() / ".tmp" / "put-3-3";
  for (const fs::path& p : {dead, alive, lock}) {
    std::ofstream(p) << "half";
    fs::last_write_time(p, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  const bw::detail::descriptor writer(::open(alive.c_str(), O_RDONLY));
  REQUIRE(::flock(writer.get(), LOCK_EX) == 0);  // a slow writer's sign of life
  file_folder f((there.path()).string(), true);
  REQUIRE(f.open(false).has_value());
  CHECK(f.list("", "", 10).value().objects().empty());
  CHECK(fs::exists(young));  // its writer may be alive: age alone decides nothing, and it is young
  CHECK(fs::exists(lock));
  CHECK(fs::exists(alive));
  CHECK_FALSE(fs::exists(dead));
  REQUIRE(put(f, "key", "whole", absent).value().applied());
  CHECK(read(f, "key") == "whole");
  CHECK(there.temporaries() == 2);
}

TEST_CASE("FS-06 an overwrite never passes through absence") {
  const place there;
  file_folder f((there.path()).string(), false);
  REQUIRE(f.open(false).has_value());
  REQUIRE(put(f, "key", std::string(3000, 'a'), always).has_value());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; !stop; ++i) (void)put(f, "key", std::string(3000, i % 2 ? 'a' : 'b'), always);
  });
  int torn = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text(3000, '\0');
    const bw::mutable_buffers into{std::as_writable_bytes(std::span(text))};
    const auto got = f.get("key", bw::byte_range(0, 3000), into).value();
    torn += !got.found() || got.bytes() != 3000 || text != std::string(3000, text[0]);
  }
  stop = true;
  writer.join();
  CHECK(torn == 0);
}

TEST_CASE("pruning of empty folders races with creates, and no create is lost") {
  const place there;
  file_folder f((there.path()).string(), true);
  REQUIRE(f.open(false).has_value());
  std::atomic<bool> stop{false};
  std::thread remover([&] {
    while (!stop) (void)f.remove({"a/b/c/other"});
  });
  int lost = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string key = "a/b/c/" + std::to_string(i);
    const auto r = put(f, key, "x", absent);
    lost += !r || !r->applied() || read(f, key) != "x";
    lost += !f.remove({key}).value().empty();
  }
  stop = true;
  remover.join();
  CHECK(lost == 0);
  (void)f.remove({"a/b/c/other"});
  CHECK(f.remove({"a/b/c/0"}).value().empty());
  CHECK_FALSE(fs::exists(there.path() / "a"));
}

TEST_CASE("a missing, removed, read-only or odd folder is named") {
  const place there;
  file_folder missing((there.path() / "no").string(), true);
  const auto opened = missing.open(false);
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code() == bw::errc::bucket_missing);
  CHECK(opened.error().what().find((there.path() / "no").string()) != std::string::npos);
  CHECK(missing.open(true).has_value());
  fs::remove_all(there.path() / "no");
  CHECK(missing.head("key").error().code() == bw::errc::bucket_missing);  // not "absent"
  CHECK(missing.list("", "", 1).error().code() == bw::errc::bucket_missing);
  CHECK_FALSE(put(missing, "a/b", "x", absent).has_value());
  std::ofstream(there.path() / "plain") << "file";
  file_folder plain((there.path() / "plain").string(), true);
  CHECK(plain.open(false).error().code() == bw::errc::io_error);
}

TEST_CASE("a body that cannot be written whole is a clean failure: nothing is published, nothing is left") {
  const place there;
  file_folder f((there.path()).string(), true);
  REQUIRE(f.open(false).has_value());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{100000, before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto r = put(f, "key", std::string(200000, 'x'), absent);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  REQUIRE_FALSE(r.has_value());
  CHECK(r.error().code() == bw::errc::io_error);
  CHECK(r.error().fate() == bw::fate::did_not_happen);
  CHECK(r.error().what().find("cannot write key: File too large") != std::string::npos);
  CHECK(read(f, "key") == "(absent)");
  CHECK(there.temporaries() == 0);
  CHECK(put(f, "key", "x", absent).value().applied());
}

TEST_CASE("files of others in the folder are left alone") {
  const place there;
  file_folder f((there.path()).string(), true);
  REQUIRE(f.open(false).has_value());
  std::ofstream(there.path() / "README") << "hello";
  fs::create_directories(there.path() / "lost+found");
  fs::create_directories(there.path() / "x.obj");
  REQUIRE(put(f, "key", "x", always).has_value());
  const auto page = f.list("", "", 10).value();
  REQUIRE(page.objects().size() == 1);
  CHECK(page.objects()[0].key() == "key");
  CHECK_FALSE(f.head("x").value().has_value());
  CHECK(put(f, "README", "other", absent).value().applied());  // another file: README.obj
}
