// Times opening and registering each plugin found, in a process that has opened none: one JSON
// object, file -> milliseconds. "search" is the total time to find all files and read their notes.
#include <chrono>
#include <cstdio>
#include <string>

#include "plugin/plugin.h"

namespace {

double milliseconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

int main() {
  auto began = std::chrono::steady_clock::now();
  gannet::plugin::Registry registry({});
  std::printf("{\"search\": %.3f", milliseconds_since(began));
  for (const auto& candidate : registry.candidates()) {
    const std::string name = candidate.file.substr(candidate.file.rfind('/') + 1);
    if (!candidate.rejected.empty() || name.find("cuda") != std::string::npos)
      continue;  // the CUDA plugin loads a driver and the rest of LibTorch
    began = std::chrono::steady_clock::now();
    registry.open_file(candidate.file);
    std::printf(", \"%s\": %.3f", name.c_str(), milliseconds_since(began));
  }
  std::printf("}\n");
}
