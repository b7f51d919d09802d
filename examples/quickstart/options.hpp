// The command line: what the user may say, read and checked.
#pragma once

#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace quickstart {

inline constexpr const char* usage = R"(usage: quickstart [options] [file or folder ...]

Packs text into global batches with several producer processes, trains a byte bigram model with several
ranks (processes too), kills some of them with SIGKILL on the way, restarts them, and proves at the end that
every token was trained exactly once: the merged model equals the one counted directly from the input.
Default input: /usr/share/common-licenses. Default run: about 6 seconds, on a fresh temporary folder.

  --producers N     producer processes (3)
  --ranks N         trainer processes; must divide the slices (4)
  --slices N        slices in every step (8)
  --sequence N      tokens (bytes) in one sequence (256)
  --sequences N     sequences in one slice (8)
  --passes N        how often the input is repeated (0: until it has 8 MiB)
  --rate R          steps per second and producer; 0: as fast as possible (default: so that feeding takes 6 s)
  --policy P        dac | eager | fixed | every: when producers commit (dac)
  --codec C         binary | json: manifest format (binary)
  --kills N         SIGKILLs, producers and ranks in turn (2)
  --seed N          of the kills (drawn and printed)
  --checkpoint N    steps between two checkpoints of a rank (16)
  --store URL       a folder, file:///folder, or s3://bucket/prefix?endpoint=http://host:port
                    (credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY); a fresh sub-prefix is used
  --create-bucket   make the S3 bucket when it is missing
  --keep            keep the stream and the work folder
  --json FILE       write the figures as JSON
  --timeout S       the whole run fails after so many seconds (300)
  --help
)";

class options {
 public:
  std::vector<std::string> sources;
  std::uint32_t producers = 3, ranks = 4, slices = 8;
  std::uint32_t sequence = 256, sequences = 8;
  std::uint64_t passes = 0;
  double rate = -1;  ///< negative: chosen by the parent
  std::string policy = "dac", codec = "binary";
  std::uint32_t kills = 2;
  std::uint64_t seed = 0;
  bool seed_given = false;
  std::uint32_t checkpoint = 16;
  std::string store;
  bool create_bucket = false, keep = false, help = false;
  std::string json;
  std::uint32_t timeout = 300;
  std::string run_name;     ///< hidden: sub-prefix of this run, given to children
  std::string work_folder;  ///< hidden: where children write their figures and checkpoints

  std::uint32_t tokens_per_slice() const noexcept { return sequence * sequences; }
  std::uint64_t tokens_per_step() const noexcept { return std::uint64_t{tokens_per_slice()} * slices; }

  /// Throws std::invalid_argument that names the option. A later option replaces an earlier one.
  static options parse(const std::vector<std::string>& words) {
    options o;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string& w = words[i];
      const auto value = [&]() -> const std::string& {
        if (i + 1 == words.size()) throw std::invalid_argument(w + " needs a value");
        return words[++i];
      };
      if (w == "--help" || w == "-h") o.help = true;
      else if (w == "--producers") o.producers = number<std::uint32_t>(w, value(), 1, 256);
      else if (w == "--ranks") o.ranks = number<std::uint32_t>(w, value(), 1, 256);
      else if (w == "--slices") o.slices = number<std::uint32_t>(w, value(), 1, 65536);
      else if (w == "--sequence") o.sequence = number<std::uint32_t>(w, value(), 1, 1 << 20);
      else if (w == "--sequences") o.sequences = number<std::uint32_t>(w, value(), 1, 1024);
      else if (w == "--passes") o.passes = number<std::uint64_t>(w, value(), 0, 1'000'000'000);
      else if (w == "--rate") o.rate = number<double>(w, value(), 0, 1e6);
      else if (w == "--policy") o.policy = value();
      else if (w == "--codec") o.codec = value();
      else if (w == "--kills") o.kills = number<std::uint32_t>(w, value(), 0, 1000);
      else if (w == "--seed") o.seed = number<std::uint64_t>(w, value(), 0, ~std::uint64_t{0}), o.seed_given = true;
      else if (w == "--checkpoint") o.checkpoint = number<std::uint32_t>(w, value(), 1, 1'000'000);
      else if (w == "--store") o.store = value();
      else if (w == "--create-bucket") o.create_bucket = true;
      else if (w == "--keep") o.keep = true;
      else if (w == "--json") o.json = value();
      else if (w == "--timeout") o.timeout = number<std::uint32_t>(w, value(), 1, 86400);
      else if (w == "--run-name") o.run_name = value();
      else if (w == "--work-folder") o.work_folder = value();
      else if (w.substr(0, 1) == "-" && w.size() > 1) throw std::invalid_argument(w + ": unknown option, see --help");
      else o.sources.push_back(w);
    }
    if (o.sources.empty()) o.sources.push_back("/usr/share/common-licenses");
    return o;
  }

 private:
  template <class T>
  static T number(const std::string& option, const std::string& text, T least, T most) {
    T value{};
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (ec != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
      throw std::invalid_argument(option + " " + text + ": must be a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
  }
};

}  // namespace quickstart
