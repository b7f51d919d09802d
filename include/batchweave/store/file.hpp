// An object store in a folder of a local disk or NFS mount, safe between threads, processes and crashes.
#pragma once

#include <batchweave/store/file_folder.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

class file_store_options {
 public:
  file_store_options() noexcept = default;
  /// A put returns when the object and its name are on disk (fsync of file and folders). Off: faster, and a power cut may lose
  /// acknowledged objects; no reader ever sees half of one either way.
  file_store_options& durable(bool on) { durable_ = on; return *this; }
  /// Creates the folder (not its parents) when it is missing. Off by default, so that a disk that is not mounted is noticed.
  file_store_options& create_folder(bool on) { create_ = on; return *this; }
  bool durable() const noexcept { return durable_; }
  bool create_folder() const noexcept { return create_; }

 private:
  bool durable_ = true;
  bool create_ = false;
};

/// Objects are files `<key>.obj` below the root; temporary files and a lock lie in `<root>/.tmp`. A put stages the whole body there,
/// fsyncs and closes it, then publishes the name: link() for if_absent (atomic between all processes), rename() otherwise; if_match
/// compares under an flock. Reads open a file once and keep its inode, so an overwrite never tears them.
/// Blocking: each operation gives way once through the caller's executor, then runs file system calls on the calling thread.
/// Give the store a thread of its own (an io_context for it) when that matters. Cancellation is noticed before the calls only.
/// Errors: errc::bucket_missing (no folder), errc::store_unsafe (no hard links), errc::access_denied, errc::io_error (with the text of
/// the operating system), errc::invalid_argument (key). A folder that cannot be written still serves reads.
/// list() reads the folders below the prefix: its cost grows with the number of keys, so ordered_list is false although the order holds.
/// Case-insensitive file systems are not supported. Copies refer to the same folder. Thread safe.
class file_store {
 public:
  /// Throws batchweave::error.
  explicit file_store(const std::filesystem::path& root) : file_store(open(root, file_store_options()).value()) {}
  file_store(const std::filesystem::path& root, const file_store_options& options) : file_store(open(root, options).value()) {}

  static result<file_store> open(const std::filesystem::path& root, const file_store_options& options) {
    std::error_code ignored;
    std::filesystem::path absolute = std::filesystem::absolute(root, ignored);
    auto folder = std::make_shared<detail::file_folder>((ignored ? root : absolute).string(), options.durable());
    result<void> opened = folder->open(options.create_folder());
    if (!opened) return opened.error();
    return file_store(std::move(folder));
  }

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return get_from(folder_, std::move(key), range, std::move(into));
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return put_to(folder_, std::move(key), std::move(body), std::move(condition));
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) { return head_of(folder_, std::move(key)); }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return list_of(folder_, std::move(prefix), std::move(after), max);
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) {
    return remove_from(folder_, std::move(keys));
  }
  store_capabilities capabilities() const noexcept {
    store_capabilities c;
    c.ordered_list = false;
    return c;
  }
  std::string name() const { return folder_->name(); }

 private:
  using folder_ptr = std::shared_ptr<detail::file_folder>;
  explicit file_store(folder_ptr f) : folder_(std::move(f)) {}

  static asio::awaitable<void> take_turn() {
    auto executor = co_await asio::this_coro::executor;
    co_await asio::post(executor, asio::use_awaitable);
  }
  static asio::awaitable<result<read_outcome>> get_from(folder_ptr f, std::string key, byte_range range, mutable_buffers into) {
    co_await take_turn();
    co_return f->get(key, range, into);
  }
  static asio::awaitable<result<put_outcome>> put_to(folder_ptr f, std::string key, const_buffers body, put_condition condition) {
    co_await take_turn();
    co_return f->put(key, body, condition);
  }
  static asio::awaitable<result<std::optional<object_info>>> head_of(folder_ptr f, std::string key) {
    co_await take_turn();
    co_return f->head(key);
  }
  static asio::awaitable<result<list_page>> list_of(folder_ptr f, std::string prefix, std::string after, std::size_t max) {
    co_await take_turn();
    co_return f->list(prefix, after, max);
  }
  static asio::awaitable<result<std::vector<remove_failure>>> remove_from(folder_ptr f, std::vector<std::string> keys) {
    co_await take_turn();
    co_return f->remove(keys);
  }

  folder_ptr folder_;
};

static_assert(object_store<file_store>);

}  // namespace batchweave
