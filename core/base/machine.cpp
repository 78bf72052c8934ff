#include "base/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/format.h"

namespace gannet {
namespace {

// The instruction sets by their names in /proc/cpuinfo, those of x86 first, then those of Arm.
constexpr std::array kSets = {"sse4_2",      "avx",      "f16c",  "fma",     "avx2", "avx512f", "avx512bw", "avx512_bf16",
                              "avx512_fp16", "amx_bf16", "asimd", "asimdhp", "bf16", "sve",     "sve2"};

// The value, without quotes, of the first line with the key `name`; "" if there is no such line.
std::string field(const std::string& file, std::string_view name, char separator) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    std::string_view key = std::string_view(line).substr(0, at), value = std::string_view(line).substr(at + 1);
    while (!key.empty() && (key.back() == ' ' || key.back() == '\t')) key.remove_suffix(1);
    if (key != name) continue;
    while (!value.empty() && (value.front() == ' ' || value.front() == '"')) value.remove_prefix(1);
    while (!value.empty() && value.back() == '"') value.remove_suffix(1);
    return std::string(value);
  }
  return {};
}

}  // namespace

Machine this_machine(const std::string& proc) {
  Machine machine;
  utsname names{};
  if (uname(&names) == 0) {
    machine.host = names.nodename;
    machine.system = formatted("{} {} {}", names.sysname, names.release, names.machine);
  }
  machine.distribution = field("/etc/os-release", "PRETTY_NAME", '=');
  const std::string cpuinfo = formatted("{}/cpuinfo", proc);
  machine.processor = field(cpuinfo, "model name", ':');
  std::string flags = field(cpuinfo, "flags", ':');
  if (flags.empty()) flags = field(cpuinfo, "Features", ':');
  std::istringstream words(flags);
  std::vector<std::string> has;
  for (std::string word; words >> word;) has.push_back(word);
  for (const char* set : kSets)
    if (std::find(has.begin(), has.end(), set) != has.end()) machine.instruction_sets.emplace_back(set);
  machine.cores_of_machine = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  machine.cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : machine.cores_of_machine;
  return machine;
}

}  // namespace gannet
