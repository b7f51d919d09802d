// Draws figures over the number of producers as one plain SVG: four panels, a line for each policy.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

class chart {
 public:
  struct point {
    double x, y;
  };
  struct line {
    std::string name;
    std::vector<point> points;
    bool dashed = false;
  };
  struct panel {
    std::string title, unit;
    bool logarithmic = false;
    double lowest = 0, highest = 1;  // of the axis
    std::vector<double> marks;       // values with a grid line
    std::vector<line> lines;
  };

  explicit chart(std::string title) : title_(std::move(title)) {}
  void add(panel p) { panels_.push_back(std::move(p)); }

  void write(const std::string& file) const {
    std::vector<std::string> names;
    for (const panel& p : panels_) {
      for (const line& l : p.lines) {
        if (std::find(names.begin(), names.end(), l.name) == names.end()) names.push_back(l.name);
      }
    }
    const std::size_t rows = (panels_.size() + 1) / 2;
    const double width = 2 * (panel_width + gap) + gap, height = 84 + static_cast<double>(rows) * (panel_height + 78);
    std::string s = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(width) + " " + number(height) + "\" width=\"" +
                    number(width) + "\" height=\"" + number(height) + "\" font-family=\"sans-serif\" font-size=\"12\">\n";
    s += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" + text(gap, 26, title_, "start", "16");
    double at = gap;
    for (std::size_t i = 0; i < names.size(); ++i) {
      s += "<line x1=\"" + number(at) + "\" y1=\"46\" x2=\"" + number(at + 22) + "\" y2=\"46\" stroke=\"" + colour(i) + "\" stroke-width=\"2.5\"/>\n";
      s += text(at + 28, 50, names[i], "start");
      at += 46 + 7.2 * static_cast<double>(names[i].size());
    }
    for (std::size_t i = 0; i < panels_.size(); ++i) {
      const double left = gap + static_cast<double>(i % 2) * (panel_width + gap), top = 90 + static_cast<double>(i / 2) * (panel_height + 78);
      s += drawn(panels_[i], left, top, names);
    }
    s += "</svg>\n";
    std::ofstream out(file);
    out << s;
    out.flush();
    if (!out) throw std::runtime_error("cannot write " + file);
  }

 private:
  static constexpr double panel_width = 440, panel_height = 250, gap = 60;

  static std::string number(double v) {
    char t[40];
    std::snprintf(t, sizeof t, "%.5g", v);
    return t;
  }
  static const char* colour(std::size_t i) {
    static constexpr const char* all[] = {"#0b5fa5", "#d1495b", "#2e8b57", "#e0a100", "#7b4fa3", "#555555", "#17a2a2", "#a0522d"};
    return all[i % std::size(all)];
  }
  static std::string text(double x, double y, const std::string& what, const char* anchor, const char* size = "12") {
    std::string safe;
    for (const char c : what) safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
    return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\" font-size=\"" + size + "\">" + safe + "</text>\n";
  }

  static std::string drawn(const panel& p, double left, double top, const std::vector<std::string>& names) {
    const auto x_of = [&](double n) { return left + panel_width * std::log2(std::max(1.0, n)) / 10; };
    const auto y_of = [&](double v) {
      const auto scale = [&](double u) { return p.logarithmic ? std::log10(std::max(u, p.lowest)) : u; };
      const double part = (scale(std::clamp(v, p.lowest, p.highest)) - scale(p.lowest)) / (scale(p.highest) - scale(p.lowest));
      return top + panel_height * (1 - part);
    };
    std::string s = text(left, top - 10, p.title + (p.unit.empty() ? "" : " (" + p.unit + ")"), "start", "13");
    for (const double m : p.marks) {
      s += "<line x1=\"" + number(left) + "\" y1=\"" + number(y_of(m)) + "\" x2=\"" + number(left + panel_width) + "\" y2=\"" + number(y_of(m)) +
           "\" stroke=\"#ddd\"/>\n" + text(left - 6, y_of(m) + 4, number(m), "end");
    }
    for (int k = 0; k <= 10; k += 2) {
      const double n = std::pow(2.0, k);
      s += "<line x1=\"" + number(x_of(n)) + "\" y1=\"" + number(top) + "\" x2=\"" + number(x_of(n)) + "\" y2=\"" + number(top + panel_height) +
           "\" stroke=\"#eee\"/>\n" + text(x_of(n), top + panel_height + 18, number(n), "middle");
    }
    s += text(left + panel_width / 2, top + panel_height + 36, "producers", "middle");
    s += "<rect x=\"" + number(left) + "\" y=\"" + number(top) + "\" width=\"" + number(panel_width) + "\" height=\"" + number(panel_height) +
         "\" fill=\"none\" stroke=\"#888\"/>\n";
    for (const line& l : p.lines) {
      const auto which = static_cast<std::size_t>(std::find(names.begin(), names.end(), l.name) - names.begin());
      std::string path;
      for (const point& q : l.points) {
        if (!std::isfinite(q.y)) continue;
        path += (path.empty() ? "" : " ") + number(x_of(q.x)) + "," + number(y_of(q.y));
        s += "<circle cx=\"" + number(x_of(q.x)) + "\" cy=\"" + number(y_of(q.y)) + "\" r=\"3\" fill=\"" + colour(which) + "\"/>\n";
      }
      s += "<polyline fill=\"none\" stroke=\"" + std::string(colour(which)) + "\" stroke-width=\"2\"" +
           (l.dashed ? " stroke-dasharray=\"5 4\"" : "") + " points=\"" + path + "\"/>\n";
    }
    return s;
  }

  std::string title_;
  std::vector<panel> panels_;
};

}  // namespace bench
