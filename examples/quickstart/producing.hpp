// The producer role: packs its share of the input and publishes it, resuming from the state that was committed last.
#pragma once

#include "any_policy.hpp"
#include "corpus.hpp"
#include "options.hpp"
#include "packing.hpp"
#include "report.hpp"

#include <batchweave/aio/clock.hpp>
#include <batchweave/as_result.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/any_store.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace quickstart {

namespace bw = batchweave;
namespace asio = boost::asio;

/// Producer `index` packs tokens [begin, end).
class share {
 public:
  share(const corpus& input, const options& o, std::uint32_t index)
      : begin(input.size() / o.producers * index),
        end(index + 1 == o.producers ? input.size() : input.size() / o.producers * (index + 1)),
        steps((end - begin + o.tokens_per_step() - 1) / o.tokens_per_step()) {}
  std::uint64_t begin, end, steps;
};

inline figures figures_of(const bw::producer_stats& stats, std::uint64_t steps) {
  figures f;
  f.steps = steps;
  f.commits = stats.commits();
  f.conflicts = stats.conflicts();
  for (const bw::duration d : stats.visible()) f.visible_ms.push_back(std::chrono::duration<double, std::milli>(d).count());
  return f;
}

inline asio::awaitable<void> produce(bw::any_store store, options o, std::uint32_t index, std::filesystem::path figures_file) {
  corpus input(o.sources);
  input.repeat(o.passes);
  const share mine(input, o, index);

  bw::producer_options settings("producer-" + std::to_string(index));
  settings.give_up_after(std::chrono::seconds(o.timeout));
  any_policy policy(o.policy);
  auto opening = bw::as_result(bw::open_producer(store, settings, policy));
  auto opened = co_await std::move(opening);
  // The stream ends only when every producer has closed, so an earlier incarnation of this one had finished when it was killed.
  if (!opened && opened.error().code() == bw::errc::stream_closed) co_return;
  auto producer = std::move(opened.value());

  const std::string state(producer.state());
  packer steps(input, state.empty() ? mine.begin : std::stoull(state), mine.end, o.slices, o.tokens_per_slice());
  bw::any_clock clock;
  bw::time_point due = clock.now();
  pace writing;
  std::uint64_t published = 0;
  while (!steps.done()) {
    if (o.rate > 0) {
      co_await clock.wait_until(due);
      due += std::chrono::duration_cast<bw::duration>(std::chrono::duration<double>(1 / o.rate));
    }
    const std::uint64_t from = steps.offset();
    std::vector<bw::byte_buffer> slices = steps.next();
    bw::global_batch batch(std::move(slices));
    batch.samples(steps.offset() - from);
    std::string cursor = std::to_string(steps.offset());
    co_await producer.publish(std::move(batch), std::move(cursor));
    ++published;
    writing.maybe([&] { figures_of(producer.stats(), published).save(figures_file); });
  }
  co_await producer.close();
  figures_of(producer.stats(), published).save(figures_file);
}

}  // namespace quickstart
