// What every store must do, as one suite without a test framework: run it against a store of your own.
#pragma once

#include <batchweave/store/probe.hpp>
#include <batchweave/store/store.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::testing {

/// One part of the suite, and what the store did wrong in it.
class conformance_section {
 public:
  explicit conformance_section(std::string n) : name(std::move(n)) {}
  std::string name;
  std::vector<std::string> violations;
};

namespace detail {

template <object_store S>
class conformance {
 public:
  conformance(S store, random64 random) : store_(std::move(store)), random_(random), base_("conformance-" + id128::draw(random_).to_string() + "/") {}

  asio::awaitable<void> run() {
    sections.emplace_back("absence");
    co_await absence();
    sections.emplace_back("create");
    co_await create_twice();
    sections.emplace_back("race");
    co_await racers();
    sections.emplace_back("overwrite");
    co_await overwrite();
    sections.emplace_back("if-match");
    co_await if_match();
    sections.emplace_back("ranges");
    co_await ranges();
    sections.emplace_back("pieces");
    co_await scatter_and_gather();
    sections.emplace_back("large");
    co_await large();
    sections.emplace_back("list");
    co_await listing();
    sections.emplace_back("nested");
    co_await nested_keys();
    sections.emplace_back("keys");
    co_await special_keys();
    sections.emplace_back("remove");
    co_await removal();
    sections.emplace_back("whole");
    co_await whole_reads();
    co_await clean_up();
  }

  std::vector<conformance_section> sections;

 private:
  void wrong(const std::string& what) { sections.back().violations.push_back(store_.name() + ": " + what); }
  void expect(bool ok, const std::string& what) {
    if (!ok) wrong(what);
  }
  /// False and noted when the operation failed.
  template <class T>
  bool worked(const result<T>& r, const std::string& what) {
    if (r) return true;
    wrong(what + " failed: " + r.error().what());
    return false;
  }

  asio::awaitable<bool> write(std::string key, std::string text, put_condition condition, bool applies) {
    const const_buffers body{as_bytes(text)};
    result<put_outcome> put = co_await store_.put(base_ + key, body, condition);
    if (!worked(put, "put " + key)) co_return false;
    expect(put->applied() == applies, "put " + key + (applies ? " was refused" : " was applied although its condition does not hold"));
    co_return put->applied() == applies;
  }
  asio::awaitable<void> holds(std::string key, std::string text) {
    const std::size_t size = text.size() + 16, limit = std::size_t{1} << 30;
    result<std::optional<byte_buffer>> got = co_await read_object(store_, base_ + key, size, limit);
    if (!worked(got, "read of " + key)) co_return;
    if (!*got) wrong(key + " is absent after it was written");
    else expect(as_text((*got)->bytes()) == text, key + " holds other bytes than were written");
  }
  asio::awaitable<void> range(std::string key, std::string whole, std::size_t offset, std::size_t length) {
    byte_buffer to(length);
    const mutable_buffers into{to.bytes()};
    const byte_range wanted(offset, length);
    result<read_outcome> got = co_await store_.get(base_ + key, wanted, into);
    const std::string what = "get " + key + " " + wanted.to_string() + " of " + std::to_string(whole.size());
    if (!worked(got, what)) co_return;
    const std::string part = offset < whole.size() ? whole.substr(offset, length) : std::string();
    expect(got->found(), what + ": reported absent");
    expect(got->object_size() == whole.size(), what + ": object size " + std::to_string(got->object_size()));
    expect(got->bytes() == part.size(), what + ": " + std::to_string(got->bytes()) + " bytes");
    expect(got->bytes() != part.size() || as_text(to.bytes().first(part.size())) == part, what + ": wrong bytes");
  }

  asio::awaitable<void> absence() {
    byte_buffer to(8);
    const mutable_buffers into{to.bytes()};
    const byte_range wanted(0, 8);
    result<read_outcome> got = co_await store_.get(base_ + "nothing/here", wanted, into);
    if (worked(got, "get of an absent key")) expect(!got->found(), "get finds a key that was never written");
    result<std::optional<object_info>> head = co_await store_.head(base_ + "nothing/here");
    if (worked(head, "head of an absent key")) expect(!*head, "head finds a key that was never written");
    const std::size_t max = 10;
    result<list_page> page = co_await store_.list(base_, std::string(), max);
    if (worked(page, "list of nothing")) expect(page->objects().empty() && !page->more(), "list finds keys that were never written");
  }

  asio::awaitable<void> create_twice() {
    const put_condition absent = put_condition::if_absent();
    co_await write("once", "first", absent, true);
    co_await write("once", "second", absent, false);
    co_await holds("once", "first");
    result<std::optional<object_info>> head = co_await store_.head(base_ + "once");
    if (worked(head, "head")) expect(*head && (*head)->size() == 5 && (*head)->key() == base_ + "once", "head tells a wrong size or key");
    co_await write("empty", "", absent, true);
    co_await write("empty", "x", absent, false);
  }

  asio::awaitable<void> racers() {
    constexpr unsigned many = 32;
    const id128 mark = id128::draw(random_);
    const std::string key = base_ + "race";
    auto race = co_await batchweave::detail::race_to_create(store_, key, many, mark);
    if (race->failed) wrong("a racing create failed: " + race->failed->what());
    expect(race->winners.size() == 1, std::to_string(race->winners.size()) + " of 32 racing creates of one key succeeded, not 1");
    if (!race->winners.empty()) co_await holds("race", race->bodies[race->winners.front()]);
  }

  asio::awaitable<void> overwrite() {
    const put_condition always;
    co_await write("over", "a long first text", always, true);
    co_await write("over", "short", always, true);
    co_await holds("over", "short");
    co_await write("over", "", always, true);  // a tombstone
    co_await holds("over", "");
    const put_condition absent = put_condition::if_absent();
    co_await write("over", "again", absent, false);
  }

  asio::awaitable<void> if_match() {
    const std::string one("one"), two("two");
    const put_condition always;
    const const_buffers first{as_bytes(one)}, second{as_bytes(two)};
    result<put_outcome> put = co_await store_.put(base_ + "match", first, always);
    if (!worked(put, "put")) co_return;
    result<std::optional<object_info>> head = co_await store_.head(base_ + "match");
    if (!worked(head, "head") || !*head) co_return;
    const put_condition same = put_condition::if_match((*head)->etag());
    result<put_outcome> replaced = co_await store_.put(base_ + "match", second, same);
    if (!replaced && replaced.error().code() == errc::not_supported) co_return;  // may be missing, must not be wrong
    if (!worked(replaced, "put with if_match")) co_return;
    expect(replaced->applied(), "put with if_match of the etag that head told was refused");
    co_await write("match", "three", same, false);
    co_await holds("match", "two");
    const put_condition gone = put_condition::if_match("\"no-such-etag\"");
    co_await write("match-nothing", "x", gone, false);
  }

  asio::awaitable<void> ranges() {
    const std::string text = "0123456789";
    const put_condition always;
    if (!co_await write("ranges", text, always, true)) co_return;
    const std::pair<std::size_t, std::size_t> parts[] = {{0, 10}, {0, 1}, {3, 4}, {9, 1}, {0, 100}, {5, 100}, {10, 5}, {11, 5}, {4, 0}};
    for (const auto& part : parts) co_await range("ranges", text, part.first, part.second);
    if (!co_await write("hollow", "", always, true)) co_return;
    co_await range("hollow", std::string(), 0, 4);
    co_await range("hollow", std::string(), 0, 0);
    co_await range("hollow", std::string(), 7, 4);
  }

  asio::awaitable<void> scatter_and_gather() {
    const std::string a("one "), b, c("two "), d("three");
    const const_buffers pieces{as_bytes(a), as_bytes(b), as_bytes(c), as_bytes(d)};
    const put_condition always;
    result<put_outcome> put = co_await store_.put(base_ + "pieces", pieces, always);
    if (!worked(put, "put of several pieces")) co_return;
    std::string x(3, '.'), y(6, '.'), z(20, '.');
    const mutable_buffers into{std::as_writable_bytes(std::span(x)), mutable_bytes(), std::as_writable_bytes(std::span(y)),
                               std::as_writable_bytes(std::span(z))};
    const byte_range wanted(1, 29);
    result<read_outcome> got = co_await store_.get(base_ + "pieces", wanted, into);
    if (!worked(got, "get into several pieces")) co_return;
    expect(got->bytes() == 12 && x == "ne " && y == "two th" && z == "ree.................", "get into several pieces puts bytes in wrong places");
  }

  asio::awaitable<void> large() {
    constexpr std::size_t size = std::size_t{20} << 20;
    std::string text(size, '\0');
    for (std::size_t i = 0; i + 8 <= size; i += 8) {
      const std::uint64_t word = random_();
      std::memcpy(text.data() + i, &word, 8);
    }
    const put_condition absent = put_condition::if_absent();
    if (!co_await write("large", text, absent, true)) co_return;
    co_await holds("large", text);
    co_await range("large", text, size - 5, 5);
    co_await range("large", text, (std::size_t{7} << 20) + 1, std::size_t{3} << 20);
  }

  /// All keys below `prefix`, page by page, relative to the suite's own prefix.
  asio::awaitable<std::vector<std::string>> all(std::string prefix, std::size_t max) {
    std::vector<std::string> keys;
    std::string after;
    for (;;) {
      result<list_page> page = co_await store_.list(base_ + prefix, after, max);
      if (!worked(page, "list " + prefix)) break;
      expect(page->objects().size() <= max, "list returns more than max keys");
      for (const object_info& o : page->objects()) {
        if (!o.key().starts_with(base_)) wrong("list returns " + o.key() + ", which is outside of the prefix");
        else keys.push_back(o.key().substr(base_.size()));
      }
      if (!page->more()) break;
      if (page->objects().empty()) {
        wrong("list says more after an empty page");
        break;
      }
      after = page->objects().back().key();
    }
    co_return keys;
  }

  asio::awaitable<void> listing() {
    std::vector<std::string> made{"list/a!", "list/a-", "list/a/1", "list/a/2/x", "list/a0", "list/b", "list/b.obj", "list/.hidden", "list/zz"};
    const put_condition always;
    for (const std::string& key : made) co_await write(key, key, always, true);
    std::sort(made.begin(), made.end());
    for (const std::size_t max : {std::size_t{1}, std::size_t{3}, std::size_t{1000}}) {
      std::vector<std::string> seen = co_await all("list/", max);
      if (!store_capabilities(store_.capabilities()).ordered_list) std::sort(seen.begin(), seen.end());
      expect(seen == made, "list in pages of " + std::to_string(max) + " returns wrong keys or a wrong order");
    }
    for (const std::string prefix : {"list/a", "list/a/", "list/b.", "list/a/2/x", "list/q", "list"}) {
      std::vector<std::string> wanted;
      for (const std::string& key : made) {
        if (key.starts_with(prefix)) wanted.push_back(key);
      }
      std::vector<std::string> seen = co_await all(prefix, 1000);
      std::sort(seen.begin(), seen.end());
      expect(seen == wanted, "list with prefix " + prefix + " returns wrong keys");
    }
    const std::size_t max = 2;
    result<list_page> page = co_await store_.list(base_ + "list/", base_ + "list/a/1", max);
    if (worked(page, "list after a key") && store_capabilities(store_.capabilities()).ordered_list) {
      expect(page->objects().size() == 2 && page->more() && page->objects()[0].key() == base_ + "list/a/2/x", "list after list/a/1 is wrong");
      expect(page->objects()[0].size() == 10, "list tells a wrong size");
    }
    const std::size_t plenty = 1000;
    result<list_page> last = co_await store_.list(base_ + "list/", base_ + "list/zz", plenty);
    if (worked(last, "list after the last key")) expect(last->objects().empty() && !last->more(), "list after the last key returns something");
  }

  // A key may begin with another key and a slash. No key of a stream does, so that stores over plain folders are usable all the same.
  asio::awaitable<void> nested_keys() {
    std::vector<std::string> made{"nested/a", "nested/a!", "nested/a/1", "nested/a/2/x", "nested/b.obj", "nested/b.obj/x"};
    const put_condition always;
    for (const std::string& key : made) co_await write(key, "bytes of " + key, always, true);
    for (const std::string& key : made) co_await holds(key, "bytes of " + key);
    std::sort(made.begin(), made.end());
    std::vector<std::string> seen = co_await all("nested/", 2);
    if (!store_capabilities(store_.capabilities()).ordered_list) std::sort(seen.begin(), seen.end());
    expect(seen == made, "list of keys that begin with other keys returns wrong keys or a wrong order");
  }

  asio::awaitable<void> special_keys() {
    const std::vector<std::string> names{"a b",       "c++/x+1",     "~x",  "\xE6\x97\xA5\xE6\x9C\xAC/\xC3\xA9", "100%.csv", "a%2Fb", "Tom & Jerry",
                                         "<x>",       "q?y=1#f",     "*'()", "a=b;c,d:e@f$g!",                   "\"quoted\"", "back\\slash", "dot/../up",
                                         "dot/./here", "trail/.", "upper/KEY", "upper/key"};
    const put_condition absent = put_condition::if_absent();
    std::vector<std::string> made;
    for (const std::string& name : names) {
      made.push_back("special/" + name);
      if (!co_await write(made.back(), "bytes of " + name, absent, true)) co_return;
    }
    for (const std::string& name : names) co_await holds("special/" + name, "bytes of " + name);
    std::vector<std::string> seen = co_await all("special/", 7);
    std::sort(seen.begin(), seen.end());
    std::sort(made.begin(), made.end());
    expect(seen == made, "list returns special characters changed");
  }

  asio::awaitable<void> removal() {
    const put_condition always;
    std::vector<std::string> keys;
    for (unsigned i = 0; i < 1001; ++i) keys.push_back(base_ + "remove/" + std::to_string(i));  // more than one S3 request takes; most are absent
    for (const unsigned i : {0u, 500u, 1000u}) co_await write("remove/" + std::to_string(i), "x", always, true);
    co_await write("remove/kept", "x", always, true);
    result<std::vector<remove_failure>> removed = co_await store_.remove(keys);
    if (!worked(removed, "remove of 1001 keys")) co_return;
    expect(removed->empty(), "remove reports keys that do not exist as failed");
    std::vector<std::string> left = co_await all("remove/", 100);
    expect(left.size() == 1 && left.front() == "remove/kept", "remove left keys behind or took others");
    const std::vector<std::string> none;
    result<std::vector<remove_failure>> nothing = co_await store_.remove(none);
    worked(nothing, "remove of no keys");
    const put_condition absent = put_condition::if_absent();
    co_await write("remove/0", "back", absent, true);
  }

  asio::awaitable<void> whole_reads() {
    const std::string text(5000, 'w');
    const put_condition always;
    if (!co_await write("whole", text, always, true)) co_return;
    const std::size_t small = 100, limit = 6000, low = 4000;
    result<std::optional<byte_buffer>> two = co_await read_object(store_, base_ + "whole", small, limit);
    if (worked(two, "read_object in two requests")) expect(*two && as_text((*two)->bytes()) == text, "read_object in two requests returns wrong bytes");
    result<std::optional<byte_buffer>> big = co_await read_object(store_, base_ + "whole", small, low);
    expect(!big && big.error().code() == errc::damaged, "read_object ignores its limit");
  }

  asio::awaitable<void> clean_up() {
    for (int round = 0; round < 100; ++round) {
      const std::size_t max = 1000;
      result<list_page> page = co_await store_.list(base_, std::string(), max);
      if (!worked(page, "list for the removal") || page->objects().empty()) co_return;
      std::vector<std::string> keys;
      for (const object_info& o : page->objects()) keys.push_back(o.key());
      result<std::vector<remove_failure>> removed = co_await store_.remove(keys);
      if (!worked(removed, "the removal")) co_return;
    }
    wrong("keys come back after they were removed");
  }

  S store_;
  random64 random_;
  std::string base_;
};

}  // namespace detail

/// Runs the suite under a random prefix (`conformance-<random>/`) and removes its keys. Returns what the store did wrong, in words that
/// start with its name, part by part: absence, create, race (32 creates of one key at once), overwrite, if-match, ranges, pieces (scatter and
/// gather), large (20 MiB), list, nested (a key that begins with another key and a slash), keys (unusual characters), remove, whole
/// (read_object). About 300 requests. Needs a single-threaded executor or a strand. if_match may be missing (errc::not_supported).
/// Exceptions of the store pass through.
template <object_store S>
asio::awaitable<std::vector<conformance_section>> check_store_by_section(S store, random64 random) {
  detail::conformance<S> suite(std::move(store), random);
  co_await suite.run();
  co_return std::move(suite.sections);
}

/// Everything that check_store_by_section finds wrong; empty when the store conforms.
template <object_store S>
asio::awaitable<std::vector<std::string>> check_store(S store, random64 random) {
  std::vector<conformance_section> sections = co_await check_store_by_section(std::move(store), random);
  std::vector<std::string> violations;
  for (auto& s : sections) {
    for (auto& v : s.violations) violations.push_back(std::move(v));
  }
  co_return violations;
}

}  // namespace batchweave::testing
