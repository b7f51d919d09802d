// What the roles that run in the background, producer and consumer, let their user set alike.
#pragma once

#include <batchweave/aio/memory_budget.hpp>
#include <batchweave/aio/patient_options.hpp>
#include <batchweave/base/metrics.hpp>
#include <batchweave/waiting.hpp>

#include <chrono>
#include <utility>

namespace batchweave {

template <class Self>
class watched_options : public patient_options<Self> {
 public:
  /// Bounds the bytes on their way: being uploaded, or fetched and not delivered. Share one among roles. Default: 256 MiB of its own.
  Self& budget(memory_budget b) { budget_ = std::move(b); return this->self(); }
  /// Hears of every wait of an operation that lasts `bound`, and again after each further `bound`. Default: nobody.
  Self& on_wait(wait_listener f, duration bound = std::chrono::seconds(30)) {
    on_wait_ = std::move(f);
    wait_bound_ = bound;
    return this->self();
  }
  /// Where measurements go; the label is the producer, or group/rank. Default: nowhere.
  Self& metrics(any_metrics m) { metrics_ = std::move(m); return this->self(); }

  const memory_budget& budget() const noexcept { return budget_; }
  const wait_listener& on_wait() const noexcept { return on_wait_; }
  duration wait_bound() const noexcept { return wait_bound_; }
  const any_metrics& metrics() const noexcept { return metrics_; }

 protected:
  watched_options() = default;

 private:
  memory_budget budget_;
  wait_listener on_wait_;
  duration wait_bound_ = std::chrono::seconds(30);
  any_metrics metrics_;
};

}  // namespace batchweave
