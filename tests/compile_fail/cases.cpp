// What the compiler must refuse, one CASE at a time; CASE 0 is the accepted counterpart of all of them.
#include <batchweave/aio/clock.hpp>
#include <batchweave/commit/policy.hpp>
#include <batchweave/store/store.hpp>

namespace bw = batchweave;

struct store {
  bw::asio::awaitable<bw::result<bw::read_outcome>> get(std::string, bw::byte_range, bw::mutable_buffers);
#if CASE == 2  // a put that cannot say "somebody else was first"
  bw::asio::awaitable<bw::result<bool>> put(std::string, bw::const_buffers, bw::put_condition);
#else
  bw::asio::awaitable<bw::result<bw::put_outcome>> put(std::string, bw::const_buffers, bw::put_condition);
#endif
  bw::asio::awaitable<bw::result<std::optional<bw::object_info>>> head(std::string);
  bw::asio::awaitable<bw::result<bw::list_page>> list(std::string, std::string, std::size_t);
#if CASE != 1
  bw::asio::awaitable<bw::result<std::vector<bw::remove_failure>>> remove(std::vector<std::string>);
#endif
  bw::store_capabilities capabilities() const;
  std::string name() const;
};
template <bw::object_store S>
void use_store(S) {}

struct policy {
  bw::duration delay_before_commit(const bw::commit::backlog&);
#if CASE != 3
  bw::duration delay_before_retry(const bw::commit::observation&);
#endif
  void observe(const bw::commit::observation&);
  void seed(std::uint64_t);
};
template <bw::commit::commit_policy P>
void use_policy(P) {}

struct own_clock {
  bw::time_point now();
  bw::wall_time wall_now();
#if CASE != 4
  bw::asio::awaitable<void> wait_until(bw::time_point);
#endif
};

void use() {
  use_store(store());
  use_policy(policy());
  bw::any_clock clock{own_clock()};
}
