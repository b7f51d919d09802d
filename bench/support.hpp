// What every benchmark needs: options, time and processor use, percentiles, the result table and its JSON form.
#pragma once

#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

/// `--name value` and `--flag` options. Reading an option declares it; done() refuses whatever was not declared.
class arguments {
 public:
  arguments(int argc, char** argv, std::string usage) : usage_(std::move(usage)) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view a = argv[i];
      if (a == "--help") {
        std::cout << usage_ << '\n';
        std::exit(0);
      }
      if (!a.starts_with("--")) fail("'" + std::string(a) + "' is not an option");
      const bool has_value = i + 1 < argc && !std::string_view(argv[i + 1]).starts_with("--");
      given_[std::string(a.substr(2))] = has_value ? argv[++i] : "";
    }
  }

  std::string text(const std::string& name, std::string otherwise = {}) {
    known_.insert(name);
    const auto at = given_.find(name);
    return at == given_.end() ? otherwise : at->second;
  }
  double number(const std::string& name, double otherwise) {
    const std::string t = text(name);
    if (t.empty()) return otherwise;
    char* end = nullptr;
    const double v = std::strtod(t.c_str(), &end);
    if (*end != '\0') fail("--" + name + " needs a number, not '" + t + "'");
    return v;
  }
  std::size_t count(const std::string& name, std::size_t otherwise) {
    const double v = number(name, static_cast<double>(otherwise));
    if (v < 0) fail("--" + name + " must not be negative");
    return static_cast<std::size_t>(v);
  }
  bool flag(const std::string& name) {
    known_.insert(name);
    return given_.contains(name);
  }
  void done() const {
    for (const auto& [name, value] : given_) {
      if (!known_.contains(name)) fail("unknown option --" + name);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    std::cerr << why << "\n" << usage_ << '\n';
    std::exit(2);
  }
  std::string usage_;
  std::map<std::string, std::string> given_;
  std::set<std::string> known_;
};

/// User plus system seconds of this process; children are not counted.
inline double cpu_seconds() {
  rusage r{};
  ::getrusage(RUSAGE_SELF, &r);
  const auto s = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return s(r.ru_utime) + s(r.ru_stime);
}

/// Seconds on a monotonic clock.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Wall and processor time since construction.
class stopwatch {
 public:
  stopwatch() : wall_(now_seconds()), cpu_(cpu_seconds()) {}
  double wall() const { return now_seconds() - wall_; }
  double cpu() const { return cpu_seconds() - cpu_; }

 private:
  double wall_, cpu_;
};

/// Resident bytes: now, and the highest since reset_peak_memory(). 0 when /proc does not tell.
inline std::uint64_t status_field(std::string_view field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(field)) return std::strtoull(line.c_str() + field.size(), nullptr, 10) * 1024;
  }
  return 0;
}
inline std::uint64_t resident_memory() { return status_field("VmRSS:"); }
inline std::uint64_t peak_memory() { return status_field("VmHWM:"); }
inline void reset_peak_memory() {
  std::ofstream out("/proc/self/clear_refs");
  out << '5';
}

/// The p-th part (0..1) of the values, nearest rank; NaN when there are none.
inline double percentile(const std::vector<double>& values, double p) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> v = values;
  std::sort(v.begin(), v.end());
  const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(v.size())));
  return v[rank ? rank - 1 : 0];
}
inline double median(const std::vector<double>& values) { return percentile(values, 0.5); }

/// "64 KiB", "16 MiB".
inline std::string size_text(std::uint64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB"};
  std::size_t u = 0;
  while (u + 1 < std::size(units) && bytes >= 1024 && bytes % 1024 == 0) bytes /= 1024, ++u;
  return std::to_string(bytes) + " " + units[u];
}

/// Collects results; prints them as a table as they come and writes them as a JSON list at the end.
class report {
 public:
  report(std::string title, std::string json_file) : json_file_(std::move(json_file)) {
    std::printf("%s\n%-58s %12s %-8s %12s %8s\n", title.c_str(), "what", "value", "unit", "peer", "ratio");
  }
  /// `peer` is the figure that value is held against (the raw limit, history 0, the budget); ratio = value / peer.
  void add(const std::string& name, double value, const std::string& unit, double peer = nan()) {
    rows_.push_back(row{name, unit, value, peer});
    if (std::isnan(peer)) {
      std::printf("%-58s %12.4g %-8s\n", name.c_str(), value, unit.c_str());
    } else {
      std::printf("%-58s %12.4g %-8s %12.4g %8.3f\n", name.c_str(), value, unit.c_str(), peer, value / peer);
    }
    std::fflush(stdout);
  }
  /// For programs with a table of their own: into the JSON list, not onto the screen.
  void record(const std::string& name, double value, const std::string& unit, double peer = nan()) {
    rows_.push_back(row{name, unit, value, peer});
  }
  /// Holds a promise against a figure. With --check the programs end with 3 when one is not kept.
  void expect(bool kept, const std::string& promise) {
    std::printf("  %s: %s\n", kept ? "ok" : "NOT KEPT", promise.c_str());
    all_kept_ = all_kept_ && kept;
  }
  bool all_kept() const { return all_kept_; }

  void write() const {
    if (json_file_.empty()) return;
    std::ostringstream out;
    out << "[\n";
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const row& r = rows_[i];
      out << "  {\"name\": \"" << escaped(r.name) << "\", \"value\": " << number(r.value) << ", \"unit\": \"" << escaped(r.unit)
          << "\", \"peer\": " << number(r.peer) << ", \"ratio\": " << number(r.value / r.peer) << (i + 1 < rows_.size() ? "},\n" : "}\n");
    }
    out << "]\n";
    std::ofstream file(json_file_);
    file << out.str();
    file.flush();
    if (!file) throw std::runtime_error("cannot write " + json_file_);
  }

  static double nan() { return std::numeric_limits<double>::quiet_NaN(); }

 private:
  struct row {
    std::string name, unit;
    double value, peer;
  };
  static std::string number(double v) {
    if (!std::isfinite(v)) return "null";
    char text[40];
    std::snprintf(text, sizeof text, "%.6g", v);
    return text;
  }
  static std::string escaped(const std::string& s) {
    std::string r;
    for (const char c : s) {
      if (c == '"' || c == '\\') r += '\\';
      r += c;
    }
    return r;
  }
  std::string json_file_;
  std::vector<row> rows_;
  bool all_kept_ = true;
};

}  // namespace bench
