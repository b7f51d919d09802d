// What the library counts and measures, and the concept of where it goes.
#pragma once

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>

namespace batchweave {

enum class metric_kind {
  counter,    ///< `record` adds
  gauge,      ///< `record` sets
  histogram,  ///< `record` observes one value
};

/// One quantity. Names follow the Prometheus conventions: base units, `_total` for counters.
class metric {
 public:
  constexpr metric(std::string_view name, metric_kind kind, std::string_view label, std::string_view help) noexcept
      : name_(name), label_(label), help_(help), kind_(kind) {}
  constexpr std::string_view name() const noexcept { return name_; }
  /// What the label of a value means: "producer", "consumer" (group/rank), "verb", "reason".
  constexpr std::string_view label() const noexcept { return label_; }
  constexpr std::string_view help() const noexcept { return help_; }
  constexpr metric_kind kind() const noexcept { return kind_; }

 private:
  std::string_view name_, label_, help_;
  metric_kind kind_;
};

namespace metrics {
inline constexpr metric batches_committed("batchweave_batches_committed_total", metric_kind::counter, "producer", "TGBs of this producer in the log");
inline constexpr metric bytes_committed("batchweave_bytes_committed_total", metric_kind::counter, "producer", "Object bytes of those TGBs");
inline constexpr metric commits("batchweave_commits_total", metric_kind::counter, "producer", "Versions of this producer in the log");
inline constexpr metric commit_attempts("batchweave_commit_attempts_total", metric_kind::counter, "producer", "Conditional PUTs of a version");
inline constexpr metric commit_conflicts("batchweave_commit_conflicts_total", metric_kind::counter, "producer", "Attempts that somebody else won");
inline constexpr metric batches_carried("batchweave_batches_carried_total", metric_kind::counter, "producer", "TGBs of others in this producer's commits");
inline constexpr metric visible_seconds("batchweave_visible_seconds", metric_kind::histogram, "producer", "From the call of publish() to the commit");
inline constexpr metric attempt_seconds("batchweave_commit_attempt_seconds", metric_kind::histogram, "producer", "Tail read and conditional PUT of one attempt");
inline constexpr metric manifest_bytes("batchweave_manifest_bytes", metric_kind::gauge, "producer", "Size of the newest version");
inline constexpr metric producer_pending("batchweave_producer_pending_batches", metric_kind::gauge, "producer", "Batches accepted and not committed");
inline constexpr metric producer_waits("batchweave_producer_waits_total", metric_kind::counter, "reason", "Waits of producers longer than their bound");

inline constexpr metric steps_delivered("batchweave_steps_delivered_total", metric_kind::counter, "consumer", "Steps handed out");
inline constexpr metric bytes_delivered("batchweave_bytes_delivered_total", metric_kind::counter, "consumer", "Slice bytes handed out");
inline constexpr metric next_seconds("batchweave_next_seconds", metric_kind::histogram, "consumer", "Time in next()");
inline constexpr metric fetch_seconds("batchweave_fetch_seconds", metric_kind::histogram, "consumer", "Time of one range read with its check");
inline constexpr metric refetches("batchweave_refetches_total", metric_kind::counter, "consumer", "Reads repeated because a checksum did not match");
inline constexpr metric lag_steps("batchweave_lag_steps", metric_kind::gauge, "consumer", "Steps that are visible and not handed out");
inline constexpr metric consumer_waits("batchweave_consumer_waits_total", metric_kind::counter, "reason", "Waits of consumers longer than their bound");

inline constexpr metric store_requests("batchweave_store_requests_total", metric_kind::counter, "verb", "Operations of the store");
inline constexpr metric store_failures("batchweave_store_failures_total", metric_kind::counter, "verb", "Operations that failed; absence and a broken condition are no failures");
inline constexpr metric store_bytes("batchweave_store_bytes_total", metric_kind::counter, "verb", "Object bytes read by get and written by applied puts");
inline constexpr metric store_seconds("batchweave_store_seconds", metric_kind::histogram, "verb", "Time of one operation");
}  // namespace metrics

/// Where measurements go. `record` may be called from any thread and must not throw or block; `label` lives for the call only.
template <class M>
concept metrics_sink = std::copy_constructible<M> && requires(M& m, const metric& which, std::string_view label, double value) {
  m.record(which, label, value);
};

/// A copyable handle to any sink. The default has none and costs one branch. Copies share the sink; thread safe as the sink is.
class any_metrics {
 public:
  any_metrics() noexcept = default;
  template <class M>
    requires(!std::same_as<M, any_metrics>) && metrics_sink<M>
  any_metrics(M sink) : self_(std::make_shared<model<M>>(std::move(sink))) {}

  explicit operator bool() const noexcept { return self_ != nullptr; }
  void record(const metric& which, std::string_view label, double value = 1) const {
    if (self_) self_->record(which, label, value);
  }

 private:
  struct interface {
    virtual ~interface() = default;
    virtual void record(const metric&, std::string_view, double) = 0;
  };
  template <class M>
  struct model final : interface {
    explicit model(M m) : held(std::move(m)) {}
    void record(const metric& which, std::string_view label, double value) override { held.record(which, label, value); }
    M held;
  };
  std::shared_ptr<interface> self_;
};

}  // namespace batchweave
