// Runs a fuzz target over files and folders of inputs, for compilers without libFuzzer: replay PATH ...
#include "fuzz.hpp"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::vector<fs::path> inputs;
  for (int i = 1; i < argc; ++i) {
    if (fs::is_directory(argv[i])) {
      for (const auto& e : fs::recursive_directory_iterator(argv[i])) {
        if (e.is_regular_file()) inputs.push_back(e.path());
      }
    } else {
      inputs.emplace_back(argv[i]);
    }
  }
  for (const fs::path& p : inputs) {
    std::ifstream in(p, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (!in) {
      std::fprintf(stderr, "cannot read %s\n", p.c_str());
      return 1;
    }
    // An input that is cut off anywhere is an input, too.
    for (const std::size_t size : {bytes.size(), bytes.size() / 2, bytes.empty() ? 0 : bytes.size() - 1}) {
      // A copy of exactly that size, so that a sanitizer sees a read past the end.
      const std::vector<std::uint8_t> exact(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      try {
        LLVMFuzzerTestOneInput(exact.data(), exact.size());
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s, its first %zu bytes: %s\n", p.c_str(), size, e.what());
        return 1;
      }
    }
  }
  std::printf("%zu inputs\n", inputs.size());
  return inputs.empty() ? 1 : 0;
}
