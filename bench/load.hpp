// What driving requests for a while gave, the ranges that every client asks for, and drivers on several threads.
#pragma once

#include "support.hpp"

#include <cstdint>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

/// Result of driving requests for a while.
struct load {
  std::uint64_t bytes = 0;
  std::uint64_t requests = 0;
  double wall = 0;
  double cpu = 0;
  std::vector<double> latencies;  // seconds
  double rate() const { return static_cast<double>(bytes) / wall / 1e9; }           ///< GB/s
  double cpu_per_gb() const { return cpu / (static_cast<double>(bytes) / 1e9); }    ///< seconds
  double requests_per_second() const { return static_cast<double>(requests) / wall; }
};

/// The offsets that every client asks for: contiguous ranges through the object, again and again.
class range_walk {
 public:
  range_walk(std::uint64_t object, std::uint64_t length) : steps_(object / length), length_(length) {}
  std::uint64_t next() { return (at_++ % steps_) * length_; }

 private:
  std::uint64_t steps_, length_, at_ = 0;
};

/// The median of one figure over rounds.
template <class F>
double median_of(const std::vector<load>& rounds, F f) {
  std::vector<double> v;
  v.reserve(rounds.size());
  for (const auto& r : rounds) v.push_back(f(r));
  return median(v);
}

/// Runs work(0) .. work(threads - 1), each on its own thread (on this one when there is one), and adds their loads up. Processor time is
/// that of the process. Throws what the first that failed threw.
template <class Work>
load on_threads(std::size_t threads, Work work) {
  if (threads == 1) return work(std::size_t{0});
  std::vector<load> loads(threads);
  std::vector<std::exception_ptr> thrown(threads);
  const stopwatch watch;
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      try {
        loads[i] = work(i);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    });
  }
  for (auto& t : all) t.join();
  load sum;
  sum.wall = watch.wall();
  sum.cpu = watch.cpu();
  for (std::size_t i = 0; i < threads; ++i) {
    if (thrown[i]) std::rethrow_exception(thrown[i]);
    sum.bytes += loads[i].bytes;
    sum.requests += loads[i].requests;
    sum.latencies.insert(sum.latencies.end(), loads[i].latencies.begin(), loads[i].latencies.end());
  }
  return sum;
}

}  // namespace bench
