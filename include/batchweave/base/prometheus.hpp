// A metrics sink that renders the Prometheus text format.
#pragma once

#include <batchweave/base/metrics.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave {

/// Collects in memory; render() gives the text that a scrape of /metrics answers (exposition format 0.0.4). Copies share the numbers.
/// Thread safe. Histograms have the bounds 1 ms * 2^k up to 131 s.
class prometheus_metrics {
 public:
  prometheus_metrics() : state_(std::make_shared<state>()) {}

  void record(const metric& which, std::string_view label, double value) {
    const std::lock_guard lock(state_->mutex);
    family& f = state_->families.try_emplace(which.name(), which).first->second;
    auto at = f.by_label.find(label);
    if (at == f.by_label.end()) at = f.by_label.emplace(std::string(label), series()).first;
    series& s = at->second;
    switch (which.kind()) {
      case metric_kind::counter: s.value += value; break;
      case metric_kind::gauge: s.value = value; break;
      case metric_kind::histogram:
        s.value += value;
        ++s.count;
        for (std::size_t i = 0; i < buckets; ++i) {
          if (value <= bound(i)) {
            ++s.in[i];
            break;
          }
        }
        break;
    }
  }

  std::string render() const {
    const std::lock_guard lock(state_->mutex);
    std::string out;
    for (const auto& [name, f] : state_->families) {
      const metric& m = f.what;
      static constexpr std::string_view kinds[] = {"counter", "gauge", "histogram"};
      out.append("# HELP ").append(name).append(" ").append(m.help()).append("\n# TYPE ").append(name).append(" ");
      out.append(kinds[static_cast<std::size_t>(m.kind())]).append("\n");
      for (const auto& [label, s] : f.by_label) {
        const std::string tag = std::string(m.label()) + "=\"" + escaped(label) + "\"";
        if (m.kind() != metric_kind::histogram) {
          line(out, name, "", tag, s.value);
          continue;
        }
        std::uint64_t below = 0;
        for (std::size_t i = 0; i < buckets; ++i) {
          below += s.in[i];
          line(out, name, "_bucket", tag + ",le=\"" + number(bound(i)) + "\"", static_cast<double>(below));
        }
        line(out, name, "_bucket", tag + ",le=\"+Inf\"", static_cast<double>(s.count));
        line(out, name, "_sum", tag, s.value);
        line(out, name, "_count", tag, static_cast<double>(s.count));
      }
    }
    return out;
  }

 private:
  static constexpr std::size_t buckets = 18;
  static double bound(std::size_t i) { return std::ldexp(0.001, static_cast<int>(i)); }

  struct series {
    double value = 0;  // of a histogram: the sum
    std::uint64_t count = 0;
    std::array<std::uint64_t, buckets> in{};
  };
  struct family {
    explicit family(const metric& m) : what(m) {}
    metric what;
    std::map<std::string, series, std::less<>> by_label;
  };
  struct state {
    std::mutex mutex;
    std::map<std::string_view, family> families;
  };

  static std::string number(double v) {
    char text[32];
    const int n = std::snprintf(text, sizeof text, "%.15g", v);
    return std::string(text, static_cast<std::size_t>(n));
  }
  static std::string escaped(std::string_view v) {
    std::string s;
    for (const char c : v) {
      if (c == '\\' || c == '"') s += '\\';
      if (c == '\n') s += "\\n";
      else s += c;
    }
    return s;
  }
  static void line(std::string& out, std::string_view name, std::string_view suffix, const std::string& tag, double v) {
    out.append(name).append(suffix).append("{").append(tag).append("} ").append(number(v)).append("\n");
  }

  std::shared_ptr<state> state_;
};

static_assert(metrics_sink<prometheus_metrics>);

}  // namespace batchweave
