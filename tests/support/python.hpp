// Runs a Python script of tests/integration and takes what it prints.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace test {

inline constexpr int skipped = 77;  ///< exit status of a script that lacks a package

class script_result {
 public:
  script_result() {}
  int status = -1;
  std::string output;
};

/// BATCHWEAVE_PYTHON (default python3) with tests/integration/<script> and arguments without quotes; its standard error goes to ours.
inline script_result python(const std::string& script, const std::vector<std::string>& arguments) {
  const char* program = std::getenv("BATCHWEAVE_PYTHON");
  const std::filesystem::path folder = std::filesystem::path(__FILE__).parent_path().parent_path() / "integration";
  std::string command = std::string(program && *program ? program : "python3") + " '" + (folder / script).string() + "'";
  for (const std::string& a : arguments) {
    if (a.find('\'') != std::string::npos) throw std::invalid_argument("an argument with a quote: " + a);
    command += " '" + a + "'";
  }
  script_result r;
  std::FILE* from = ::popen(command.c_str(), "r");
  if (!from) throw std::runtime_error("cannot run " + command);
  std::array<char, 65536> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), from)) > 0;) r.output.append(buffer.data(), n);
  const int status = ::pclose(from);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  if (r.status == 127) r.status = skipped;  // no Python at all
  return r;
}

}  // namespace test
