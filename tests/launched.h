// Commands that tests start: a command line; a program of the tests under `gannet run`, in a folder of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace launched {

struct Folder {
  explicit Folder(const std::string& name)
      : path(std::filesystem::temp_directory_path() / ("gannet_launched_" + std::to_string(getpid()) + "_" + name)) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  const std::filesystem::path path;
};

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Outcome {
  int exit_code = -1;  // -1: ended by a signal
  std::string output;  // stdout and stderr, of the ranks too
};

// A command line, with both streams in `output`.
inline Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.output.append(buffer, got);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// `program`: of build/tests. `environment`: "NAME=VALUE ".
inline Outcome run(const std::filesystem::path& folder, int ranks, const std::string& program, const std::string& arguments,
                   const std::string& environment = "") {
  const std::string command = "cd " + folder.string() + " && OMP_NUM_THREADS=1 " + environment +
                              " " GANNET_BINARY_DIR "/bin/gannet run --num_procs " + std::to_string(ranks) +
                              " " GANNET_BINARY_DIR "/tests/" + program + " " + arguments;
  return shell(command);
}

}  // namespace launched
