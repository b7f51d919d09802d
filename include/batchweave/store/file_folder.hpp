// The blocking half of the file store: POSIX calls that publish, read, list and remove whole objects in one folder.
#pragma once

#include <batchweave/base/random.hpp>
#include <batchweave/store/file_key.hpp>
#include <batchweave/store/key.hpp>
#include <batchweave/store/store.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace batchweave::detail {

/// Owns one file descriptor.
class descriptor {
 public:
  descriptor() noexcept = default;
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  descriptor(descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  descriptor& operator=(descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Closes and tells what close said: NFS and quotas report failed writes there.
  int close() noexcept { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_ = -1;
};

/// Repeats a call that a signal interrupted.
template <class Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto r = call();
    if (r != -1 || errno != EINTR) return r;
  }
}

inline int open_at(int folder, const char* path, int flags, mode_t mode = 0) {
  return uninterrupted([&] { return ::openat(folder, path, flags | O_CLOEXEC, mode); });
}

/// Thread safe: every call opens what it needs below two descriptors that never change.
class file_folder {
 public:
  file_folder(std::string root, bool durable) : root_(std::move(root)), durable_(durable) {}

  /// Opens the folder, proves that hard links work, sweeps what killed writers left.
  result<void> open(bool create) {
    if (create && ::mkdir(root_.c_str(), 0777) != 0 && errno != EEXIST) return failed("create the folder", std::string(), errno, fate::did_not_happen);
    top_ = descriptor(open_at(AT_FDCWD, root_.c_str(), O_RDONLY | O_DIRECTORY));
    if (!top_) {
      const int e = errno;
      if (e == ENOENT) {
        return failure(errc::bucket_missing, name() + ": the folder does not exist; create it first").with_fate(fate::did_not_happen);
      }
      return failed("open the folder", std::string(), e, fate::did_not_happen);
    }
    if (::mkdirat(top_.get(), temporary, 0777) != 0 && errno != EEXIST) {
      if (errno == EACCES || errno == EROFS || errno == EPERM) return result<void>();  // readable only: every put will say so
      return failed("create the folder for temporary files", std::string(), errno, fate::did_not_happen);
    }
    temp_ = descriptor(open_at(top_.get(), temporary, O_RDONLY | O_DIRECTORY));
    if (!temp_) return failed("open the folder for temporary files", std::string(), errno, fate::did_not_happen);
    if (::faccessat(temp_.get(), ".", W_OK, 0) != 0) {
      temp_ = descriptor();
      return result<void>();
    }
    result<void> linked = prove_hard_links();
    if (linked) sweep();
    return linked;
  }

  std::string name() const { return "file://" + root_; }

  result<read_outcome> get(const std::string& key, byte_range range, const mutable_buffers& into) const {
    result<std::string> path = path_of(key);
    if (!path) return path.error();
    if (total_size(into) < range.length()) {
      return failure(errc::invalid_argument, name() + ": get " + key + ": the destination is smaller than the range").with_fate(fate::did_not_happen);
    }
    const descriptor file(open_at(top_.get(), path->c_str(), O_RDONLY | O_NOFOLLOW));
    if (!file) {
      if (is_absence(errno)) return still_there(read_outcome());
      return failed("open", key, errno, fate::did_not_happen);
    }
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return failed("stat", key, errno, fate::did_not_happen);
    if (!S_ISREG(info.st_mode)) return read_outcome();
    const auto size = static_cast<std::uint64_t>(info.st_size);
    const std::uint64_t first = std::min(range.offset(), size);
    const std::uint64_t wanted = std::min(range.length(), size - first);
    std::vector<iovec> pieces;
    std::uint64_t planned = 0;
    for (const mutable_bytes b : into) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(b.size(), wanted - planned));
      if (n) pieces.push_back(iovec{b.data(), n});
      planned += n;
    }
    std::uint64_t done = 0;
    for (std::size_t at = 0; at < pieces.size();) {
      const int count = static_cast<int>(std::min<std::size_t>(pieces.size() - at, 512));
      const ssize_t n = uninterrupted([&] { return ::preadv(file.get(), &pieces[at], count, static_cast<off_t>(first + done)); });
      if (n < 0) return failed("read", key, errno, fate::did_not_happen);
      if (n == 0) {
        return failure(errc::body_truncated, name() + ": get " + key + ": the file ends at byte " + std::to_string(first + done) + " of " +
                                                 std::to_string(size) + "; something else than this library cut it")
            .with_fate(fate::did_not_happen);
      }
      done += static_cast<std::uint64_t>(n);
      advance(pieces, at, static_cast<std::size_t>(n));
    }
    return read_outcome(wanted, size, etag_of(info));
  }

  result<put_outcome> put(const std::string& key, const const_buffers& body, const put_condition& condition) {
    result<std::string> path = path_of(key);
    if (!path) return path.error();
    if (!temp_) return failure(errc::access_denied, name() + ": put " + key + ": the folder is not writable").with_fate(fate::did_not_happen);
    if (condition.absent()) {  // saves writing a body that is refused anyway; link() below decides
      struct stat there {};
      if (::fstatat(top_.get(), path->c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) return put_outcome::condition_failed();
    }
    result<staged> body_file = stage(key, body);
    if (!body_file) return body_file.error();
    result<bool> published = condition.absent() ? create(key, *path, *body_file) : replace(key, *path, *body_file, condition);
    ::unlinkat(temp_.get(), body_file->name.c_str(), 0);
    if (!published) return published.error();
    if (!*published) return put_outcome::condition_failed();
    if (durable_) {
      result<void> kept = sync_folders(key, *path);
      if (!kept) return kept.error();
    }
    return put_outcome::done(body_file->etag);
  }

  result<std::optional<object_info>> head(const std::string& key) const {
    result<std::string> path = path_of(key);
    if (!path) return path.error();
    struct stat info {};
    if (::fstatat(top_.get(), path->c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (is_absence(errno)) return still_there(std::optional<object_info>());
      return failed("stat", key, errno, fate::did_not_happen);
    }
    if (!S_ISREG(info.st_mode)) return std::optional<object_info>();
    return std::optional<object_info>(object_info(key, static_cast<std::uint64_t>(info.st_size), etag_of(info)));
  }

  result<list_page> list(const std::string& prefix, const std::string& after, std::size_t max) const {
    listing walk{prefix, after, max, list_page()};
    // Start in the deepest folder that the prefix names in full.
    const std::size_t slash = prefix.rfind('/');
    const std::string base = slash == std::string::npos ? std::string() : prefix.substr(0, slash + 1);
    std::string path = ".";
    std::string_view rest = base;
    while (!rest.empty()) {
      const std::size_t end = rest.find('/');
      path += "/" + segment_to_name(rest.substr(0, end), true);
      rest.remove_prefix(end + 1);
    }
    result<bool> done = walk_folder(walk, path, base);
    if (!done) return done.error();
    return still_there(std::move(walk.page));
  }

  result<std::vector<remove_failure>> remove(const std::vector<std::string>& keys) {
    std::vector<remove_failure> failures;
    std::set<std::string, std::greater<>> folders;  // deepest first: a longer path sorts after its own beginning
    for (const std::string& key : keys) {
      result<std::string> path = path_of(key);
      if (!path) {
        failures.emplace_back(key, path.error());
        continue;
      }
      const descriptor lock = lock_overwrites(LOCK_SH);
      if (::unlinkat(top_.get(), path->c_str(), 0) != 0 && !is_absence(errno)) {
        failures.emplace_back(key, failed("remove", key, errno, fate::did_not_happen));
        continue;
      }
      const std::size_t slash = path->rfind('/');
      if (slash != std::string::npos) folders.insert(path->substr(0, slash));
    }
    // An empty folder is removed; a writer that loses its folder this way makes it again. rmdir refuses when anything is in it.
    while (!folders.empty()) {
      const std::string folder = *folders.begin();
      folders.erase(folders.begin());
      if (::unlinkat(top_.get(), folder.c_str(), AT_REMOVEDIR) != 0) continue;
      const std::size_t slash = folder.rfind('/');
      if (slash != std::string::npos) folders.insert(folder.substr(0, slash));
    }
    return failures;
  }

 private:
  static constexpr const char* temporary = ".tmp";
  static constexpr int tries = 1000;  // of a publication whose folder somebody keeps pruning

  struct staged {
    std::string name;
    std::string etag;
  };
  struct listing {
    const std::string& prefix;
    const std::string& after;
    std::size_t max;
    list_page page;
  };

  static bool is_absence(int e) noexcept { return e == ENOENT || e == ENOTDIR; }

  static std::string etag_of(const struct stat& s) {
    return "\"" + std::to_string(s.st_ino) + "-" + std::to_string(s.st_size) + "-" + std::to_string(s.st_mtim.tv_sec) + "." +
           std::to_string(s.st_mtim.tv_nsec) + "\"";
  }

  /// Moves `at` past the first `n` bytes of the pieces.
  static void advance(std::vector<iovec>& pieces, std::size_t& at, std::size_t n) {
    while (at < pieces.size() && n >= pieces[at].iov_len) n -= pieces[at++].iov_len;
    if (n) {
      pieces[at].iov_base = static_cast<char*>(pieces[at].iov_base) + n;
      pieces[at].iov_len -= n;
    }
  }

  failure failed(std::string_view step, const std::string& key, int e, fate f) const {
    const bool refused = e == EACCES || e == EPERM || e == EROFS;
    std::string text = name() + ": cannot " + std::string(step) + (key.empty() ? std::string() : " " + key) + ": " +
                       std::generic_category().message(e);
    if (e == ENOSPC || e == EDQUOT) text += "; free some space, nothing was lost";
    return failure(refused ? errc::access_denied : errc::io_error, std::move(text)).with_fate(f);
  }

  result<std::string> path_of(const std::string& key) const {
    if (auto wrong = check_key(name(), key)) return *wrong;
    std::optional<std::string> path = key_to_path(key);
    if (!path) {
      return failure(errc::invalid_argument, name() + ": the key " + key + " has a segment too long for a file name (255 bytes with .obj)")
          .with_fate(fate::did_not_happen);
    }
    return std::move(*path);
  }

  /// Absence is believed only while the folder itself exists.
  template <class Outcome>
  result<Outcome> still_there(Outcome outcome) const {
    struct stat info {};
    if (::fstat(top_.get(), &info) != 0 || info.st_nlink == 0) {
      return failure(errc::bucket_missing, name() + ": the folder was removed while in use").with_fate(fate::did_not_happen);
    }
    return outcome;
  }

  std::uint64_t draw() const {
    const std::lock_guard lock(random_mutex_);
    return random_();
  }

  std::string temporary_name(std::string_view what) const {
    return std::string(what) + "-" + std::to_string(::getpid()) + "-" + std::to_string(draw()) + std::to_string(draw());
  }

  result<void> prove_hard_links() const {
    const std::string one = temporary_name("put"), two = temporary_name("put");
    descriptor file(open_at(temp_.get(), one.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666));
    if (!file) return failed("create a temporary file", std::string(), errno, fate::did_not_happen);
    const bool linked = ::linkat(temp_.get(), one.c_str(), temp_.get(), two.c_str(), 0) == 0;
    const int why = errno;
    const bool twice = linked && ::linkat(temp_.get(), one.c_str(), temp_.get(), two.c_str(), 0) == 0;
    struct stat info {};
    const bool counted = ::fstat(file.get(), &info) == 0 && info.st_nlink == 2;
    ::unlinkat(temp_.get(), one.c_str(), 0);
    ::unlinkat(temp_.get(), two.c_str(), 0);
    if (linked && !twice && counted) return result<void>();
    return failure(errc::store_unsafe, name() + ": this file system has no working hard links" +
                                           (linked ? std::string() : " (" + std::generic_category().message(why) + ")") +
                                           ", so an object cannot be created only if it is absent; use a local disk or NFS")
        .with_fate(fate::did_not_happen);
  }

  /// Removes temporary files of writers that are gone: old, and their lock is free. A living writer holds the lock while it writes, and
  /// one that lost its file after all fails cleanly when it publishes.
  void sweep() const {
    const std::time_t old = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() - std::chrono::hours(1));
    read_names(".tmp", [&](const char* entry) {
      if (!std::string_view(entry).starts_with("put-")) return;
      struct stat info {};
      if (::fstatat(temp_.get(), entry, &info, AT_SYMLINK_NOFOLLOW) != 0 || info.st_mtim.tv_sec > old) return;
      const descriptor file(open_at(temp_.get(), entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
      if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlinkat(temp_.get(), entry, 0);
    });
  }

  /// Calls `each(name)` for all entries of a folder; the errno, or 0.
  template <class Each>
  int read_names(const std::string& path, Each each) const {
    const int fd = open_at(top_.get(), path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (fd < 0) return errno;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(fd), ::closedir);
    if (!folder) {
      const int e = errno;
      ::close(fd);
      return e;
    }
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(folder.get());
      if (!entry) return errno;
      each(static_cast<const char*>(entry->d_name));
    }
  }

  /// Writes the body to a temporary file, complete, on disk and closed.
  result<staged> stage(const std::string& key, const const_buffers& body) const {
    staged s;
    s.name = temporary_name("put");
    descriptor file(open_at(temp_.get(), s.name.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666));
    if (!file) return failed("create a temporary file for", key, errno, fate::did_not_happen);
    const auto give_up = [&](std::string_view step) {
      const int e = errno;
      ::unlinkat(temp_.get(), s.name.c_str(), 0);
      return failed(step, key, e, fate::did_not_happen);
    };
    ::flock(file.get(), LOCK_EX | LOCK_NB);  // the sign of life that the sweep looks for
    std::vector<iovec> pieces;
    for (const const_bytes b : body) {
      if (!b.empty()) pieces.push_back(iovec{const_cast<std::byte*>(b.data()), b.size()});
    }
    for (std::size_t at = 0; at < pieces.size();) {
      const int count = static_cast<int>(std::min<std::size_t>(pieces.size() - at, 512));
      const ssize_t n = uninterrupted([&] { return ::writev(file.get(), &pieces[at], count); });
      if (n < 0) return give_up("write");
      advance(pieces, at, static_cast<std::size_t>(n));
    }
    // Random nanoseconds: an inode that is used again within one clock tick still gives another etag.
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return give_up("stat");
    const timespec times[2] = {{0, UTIME_OMIT}, {info.st_mtim.tv_sec, static_cast<long>(draw() % 1000000000u)}};
    ::futimens(file.get(), times);
    if (durable_ && uninterrupted([&] { return ::fsync(file.get()); }) != 0) return give_up("fsync");
    if (::fstat(file.get(), &info) != 0) return give_up("stat");
    if (file.close() != 0) return give_up("close");
    s.etag = etag_of(info);
    return s;
  }

  /// What a failed link or rename says about its effect: refusals have none, the rest (EIO, ESTALE) may have.
  static fate fate_of(int e) noexcept {
    return e == ENOSPC || e == EDQUOT || e == EACCES || e == EPERM || e == EROFS || e == ENAMETOOLONG || e == ENOENT || e == ENOTDIR
               ? fate::did_not_happen
               : fate::unknown;
  }

  result<bool> create(const std::string& key, const std::string& path, const staged& s) const {
    for (int attempt = 0;; ++attempt) {
      if (::linkat(temp_.get(), s.name.c_str(), top_.get(), path.c_str(), 0) == 0) return true;
      const int e = errno;
      if (e == EEXIST) {
        // A repeated request of the NFS client finds its own link: two names on our file mean that it is ours.
        struct stat info {};
        return ::fstatat(temp_.get(), s.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_nlink > 1;
      }
      if (e != ENOENT || attempt == tries) return failed("publish", key, e, fate_of(e));
      result<void> made = make_folders(key, path);
      if (!made) return made.error();
    }
  }

  result<bool> replace(const std::string& key, const std::string& path, const staged& s, const put_condition& condition) const {
    const descriptor lock = lock_overwrites(condition.etag() ? LOCK_EX : LOCK_SH);
    if (condition.etag()) {
      if (!lock) {
        return failure(errc::not_supported, name() + ": put " + key + ": this file system has no locks, which if_match needs")
            .with_fate(fate::did_not_happen);
      }
      struct stat info {};
      if (::fstatat(top_.get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (is_absence(errno)) return false;
        return failed("stat", key, errno, fate::did_not_happen);
      }
      if (etag_of(info) != *condition.etag()) return false;
    }
    for (int attempt = 0;; ++attempt) {
      if (::renameat(temp_.get(), s.name.c_str(), top_.get(), path.c_str()) == 0) return true;
      const int e = errno;
      if (e != ENOENT || attempt == tries) return failed("publish", key, e, fate_of(e));
      result<void> made = make_folders(key, path);
      if (!made) return made.error();
    }
  }

  /// if_match compares and renames under the exclusive lock; whoever else overwrites or removes holds it shared. Between processes and,
  /// because every call opens the file anew, between threads. Empty when the file system has no locks.
  descriptor lock_overwrites(int how) const {
    if (!temp_) return descriptor();
    descriptor lock(open_at(temp_.get(), "lock", O_RDWR | O_CREAT, 0666));
    if (!lock || uninterrupted([&] { return ::flock(lock.get(), how); }) != 0) return descriptor();
    return lock;
  }

  result<void> make_folders(const std::string& key, const std::string& path) const {
    struct stat info {};
    if (::fstat(top_.get(), &info) != 0 || info.st_nlink == 0) {
      return failure(errc::bucket_missing, name() + ": the folder was removed while in use").with_fate(fate::did_not_happen);
    }
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      const std::string folder = path.substr(0, slash);
      if (::mkdirat(top_.get(), folder.c_str(), 0777) != 0 && errno != EEXIST) {
        if (errno == ENOENT) return result<void>();  // pruned meanwhile: the caller tries again
        return failed("create the folder of", key, errno, fate::did_not_happen);
      }
    }
    return result<void>();
  }

  /// Makes the name durable: its folder and all above, because a folder that somebody else just made may not be on disk yet.
  result<void> sync_folders(const std::string& key, const std::string& path) const {
    std::string folder = path;
    for (;;) {
      const std::size_t slash = folder.rfind('/');
      folder = slash == std::string::npos ? std::string(".") : folder.substr(0, slash);
      const descriptor open(open_at(top_.get(), folder.c_str(), O_RDONLY | O_DIRECTORY));
      // Gone: the object was removed again by somebody else, together with its folder. There is nothing left to keep.
      if (!open && is_absence(errno)) {
        if (folder == ".") return result<void>();
        continue;
      }
      if (!open || uninterrupted([&] { return ::fsync(open.get()); }) != 0) return failed("fsync the folder of", key, errno, fate::unknown);
      if (folder == ".") return result<void>();
    }
  }

  /// Appends the keys below `path` (which stand for `base...`) in byte order; true when the page is full.
  result<bool> walk_folder(listing& walk, const std::string& path, const std::string& base) const {
    struct entry {
      std::string key;  // a folder's ends in '/', which puts it where its contents belong
      std::string name;
      bool folder;
    };
    std::vector<entry> entries;
    const int e = read_names(path, [&](const char* raw) {
      bool folder = false;
      std::optional<std::string> segment = name_to_segment(raw, folder);
      if (!segment) return;
      std::string key = base + *segment + (folder ? "/" : "");
      if (folder ? !(key.starts_with(walk.prefix) || walk.prefix.starts_with(key)) || (walk.after > key && !walk.after.starts_with(key))
                 : !key.starts_with(walk.prefix) || key <= walk.after) {
        return;
      }
      entries.push_back(entry{std::move(key), raw, folder});
    });
    if (is_absence(e) || e == ELOOP) return false;
    if (e) return failed("list", base, e, fate::did_not_happen);
    std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) { return a.key < b.key; });
    for (const entry& it : entries) {
      const std::string below = path + "/" + it.name;
      if (it.folder) {
        result<bool> full = walk_folder(walk, below, it.key);
        if (!full || *full) return full;
        continue;
      }
      struct stat info {};
      if (::fstatat(top_.get(), below.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) continue;  // removed meanwhile
      if (walk.page.objects().size() == walk.max) {
        walk.page.more(true);
        return true;
      }
      walk.page.objects().emplace_back(it.key, static_cast<std::uint64_t>(info.st_size), etag_of(info));
    }
    return false;
  }

  std::string root_;
  bool durable_;
  descriptor top_;
  descriptor temp_;
  mutable std::mutex random_mutex_;
  mutable random64 random_;
};

}  // namespace batchweave::detail
