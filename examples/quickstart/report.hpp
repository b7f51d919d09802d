// Figures: what a child writes down as it goes, what the parent adds up, and how the result is shown.
#pragma once

#include "checkpoint.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace quickstart {

/// One incarnation's figures. A file of "name value" lines, replaced atomically, so that a kill loses only the last moments.
class figures {
 public:
  std::uint64_t steps = 0;   ///< producer: published; rank: trained
  std::uint64_t commits = 0, conflicts = 0;
  std::vector<double> visible_ms;  ///< publish to commit, one for each batch

  void save(const std::filesystem::path& path) const {
    std::ostringstream out;
    out << "steps " << steps << "\ncommits " << commits << "\nconflicts " << conflicts << "\n";
    for (const double ms : visible_ms) out << "visible_ms " << ms << "\n";
    replace_file(path, out.str());
  }
  /// All zero when there is no such file.
  static figures load(const std::filesystem::path& path) {
    figures f;
    std::istringstream in(read_file(path).value_or(std::string()));
    std::string name;
    double value = 0;
    while (in >> name >> value) {
      if (name == "steps") f.steps = static_cast<std::uint64_t>(value);
      if (name == "commits") f.commits = static_cast<std::uint64_t>(value);
      if (name == "conflicts") f.conflicts = static_cast<std::uint64_t>(value);
      if (name == "visible_ms") f.visible_ms.push_back(value);
    }
    return f;
  }
};

/// Decides when figures are worth writing again: every 50 ms, and never more than a twentieth of the time.
class pace {
 public:
  using clock = std::chrono::steady_clock;
  template <class Write>
  void maybe(Write write) {
    const clock::time_point now = clock::now();
    if (now < next_) return;
    write();
    const clock::time_point end = clock::now();
    next_ = end + std::max<clock::duration>(std::chrono::milliseconds(50), 20 * (end - now));
  }

 private:
  clock::time_point next_{};
};

/// The outcome of a run.
class summary {
 public:
  std::uint64_t steps = 0;
  std::uint32_t slices_per_step = 0;
  std::uint64_t tokens = 0;  ///< bytes of the input, repeats included
  std::uint64_t bytes = 0;   ///< in slices, as published
  double seconds = 0;
  std::uint64_t commits = 0, conflicts = 0;
  std::uint32_t kills_asked = 0, kills_producers = 0, kills_ranks = 0;
  std::vector<double> visible_ms;
  std::vector<std::string> faults;  ///< empty: every token exactly once

  bool exactly_once() const noexcept { return faults.empty(); }

  double visible(double quantile) const {
    if (visible_ms.empty()) return 0;
    std::vector<double> sorted = visible_ms;
    std::sort(sorted.begin(), sorted.end());
    const double rank = std::ceil(quantile * static_cast<double>(sorted.size()));
    return sorted[static_cast<std::size_t>(std::max(1.0, rank)) - 1];
  }

  std::string text() const {
    std::string out;
    const auto line = [&](const char* name, const std::string& value) {
      std::string label = name;
      label.resize(28, ' ');
      out += label + value + "\n";
    };
    line("steps", std::to_string(steps));
    line("slices per step", std::to_string(slices_per_step));
    line("tokens", std::to_string(tokens));
    line("bytes", std::to_string(bytes));
    line("seconds", fixed(seconds));
    line("MB/s", fixed(seconds > 0 ? static_cast<double>(bytes) / 1e6 / seconds : 0));
    line("commits", std::to_string(commits));
    line("conflicts", std::to_string(conflicts));
    line("visible after, p50 / p99", fixed(visible(0.5)) + " / " + fixed(visible(0.99)) + " ms");
    line("kills survived", std::to_string(kills_producers + kills_ranks) + " (" + std::to_string(kills_producers) + " producers, " +
                               std::to_string(kills_ranks) + " ranks)" +
                               (kills_producers + kills_ranks < kills_asked ? "; the run was over before all " + std::to_string(kills_asked) : ""));
    line("every token exactly once", exactly_once() ? "yes" : "NO");
    for (const std::string& fault : faults) out += "  " + fault + "\n";
    return out;
  }

  std::string json() const {
    std::ostringstream out;
    out << "{\n  \"steps\": " << steps << ",\n  \"slices_per_step\": " << slices_per_step << ",\n  \"tokens\": " << tokens
        << ",\n  \"bytes\": " << bytes << ",\n  \"seconds\": " << fixed(seconds) << ",\n  \"commits\": " << commits
        << ",\n  \"conflicts\": " << conflicts << ",\n  \"kills\": " << kills_producers + kills_ranks
        << ",\n  \"exactly_once\": " << (exactly_once() ? "true" : "false") << ",\n  \"visible_p50_ms\": " << fixed(visible(0.5))
        << ",\n  \"visible_p99_ms\": " << fixed(visible(0.99)) << "\n}\n";
    return out.str();
  }

 private:
  static std::string fixed(double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.2f", value);
    return text;
  }
};

/// One line that is rewritten on a terminal, and a line at every quarter elsewhere.
class progress {
 public:
  explicit progress(bool terminal) : terminal_(terminal) {}
  void show(std::uint64_t done, std::uint64_t total, const std::string& more) {
    const unsigned percent = total ? static_cast<unsigned>(100 * done / total) : 100;
    const std::string text = "steps trained by every rank: " + std::to_string(done) + "/" + std::to_string(total) + " (" +
                             std::to_string(percent) + "%), " + more;
    if (terminal_) {
      std::printf("\r%s\033[K", text.c_str());
      drawn_ = true;
    } else if (percent >= next_) {
      std::printf("%s\n", text.c_str());
      next_ = percent / 25 * 25 + 25;
    }
    std::fflush(stdout);
  }
  /// Moves below the line, so that other output does not run into it.
  void leave_line() {
    if (drawn_) std::printf("\n");
    std::fflush(stdout);
    drawn_ = false;
  }

 private:
  bool terminal_;
  bool drawn_ = false;
  unsigned next_ = 0;
};

}  // namespace quickstart
