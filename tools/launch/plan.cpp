#include "launch/plan.h"

#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include "base/format.h"
#include "base/text.h"
#include "launch/devices.h"
#include "launch/marked.h"

extern char** environ;

namespace gannet::launch {
namespace {

enum class FileKind { kMissing, kFolder, kNotExecutable, kProgram };

FileKind kind_of(const std::string& file) {
  struct stat status{};
  if (stat(file.c_str(), &status) != 0) return FileKind::kMissing;
  if (S_ISDIR(status.st_mode)) return FileKind::kFolder;
  return access(file.c_str(), X_OK) == 0 ? FileKind::kProgram : FileKind::kNotExecutable;
}

bool can_bind(uint16_t port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool free = bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(descriptor, 1) == 0;
  close(descriptor);
  return free;
}

}  // namespace

uint32_t LaunchOptions::first_rank() const {
  const auto& each = node.procs_of_nodes;
  return each.empty() ? node.index * procs : std::accumulate(each.begin(), each.begin() + node.index, 0u);
}

uint32_t LaunchOptions::world_size() const {
  const auto& each = node.procs_of_nodes;
  return each.empty() ? node.count * procs : std::accumulate(each.begin(), each.end(), 0u);
}

std::vector<std::string> inherited_environment(const LaunchOptions& options) {
  if (!options.environment.empty()) return options.environment;
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) entries.push_back(*entry);
  return entries;
}

std::string path_in(const std::vector<std::string>& environment) {
  for (const std::string& entry : environment)
    if (entry.rfind("PATH=", 0) == 0) return entry.substr(5);
  return "/usr/local/bin:/usr/bin:/bin";
}

std::string find_program(const std::string& program, const std::string& path) {
  if (program.find('/') != std::string::npos) {
    switch (kind_of(program)) {
      case FileKind::kMissing:
        throw StartError(127, formatted("cannot start '{}': there is no such file", program),
                         "check the path; relative ones start at the current folder");
      case FileKind::kFolder:
        throw StartError(126, formatted("cannot start '{}': it is a folder", program), "name the program inside it");
      case FileKind::kNotExecutable:
        throw StartError(126, formatted("cannot start '{}': it is not executable", program),
                         formatted("chmod +x {}, or name the interpreter before it", program));
      case FileKind::kProgram:
        return program;
    }
  }
  for (const auto& folder : split(path, ':')) {
    const std::string file = formatted("{}/{}", folder, program);
    if (kind_of(file) == FileKind::kProgram) return file;
  }
  if (const FileKind here = kind_of(formatted("./{}", program)); here == FileKind::kProgram || here == FileKind::kNotExecutable)
    throw StartError(127, formatted("cannot start '{}': no folder of PATH has it", program),
                     formatted("the current folder does: write ./{}", program));
  throw StartError(127, formatted("cannot start '{}': no folder of PATH has it", program), "give the path to the program");
}

std::vector<int> available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::vector<int> core_slice(const std::vector<int>& cores, uint32_t procs, uint32_t index) {
  const size_t each = cores.size() / procs;
  if (each == 0)
    throw Error(ErrorCode::kArgument, formatted("--bind_cores_to_rank: {} ranks and only {} cores", procs, cores.size()),
                "start at most one rank per core, or leave the option out");
  return std::vector<int>(cores.begin() + static_cast<long>(index * each), cores.begin() + static_cast<long>((index + 1) * each));
}

uint16_t free_port() {
  int first = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  std::random_device random;
  const int lowest = first > 20'500 ? 20'000 : 1'024;
  const int highest = first > lowest + 500 ? first - 1 : 65'535;
  for (int attempt = 0; attempt < 200; ++attempt) {
    const auto port = static_cast<uint16_t>(lowest + static_cast<int>(random() % static_cast<unsigned>(highest - lowest + 1)));
    if (can_bind(port)) return port;
  }
  throw Error(ErrorCode::kUnavailable, "no free port was found on this machine", "name one with --master_port");
}

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, const LaunchOptions& options, uint32_t local,
                                          const StartValues& start) {
  std::map<std::string, std::string> own = {
      {"RANK", std::to_string(options.first_rank() + local)},
      {"LOCAL_RANK", std::to_string(local)},
      {"WORLD_SIZE", std::to_string(options.world_size())},
      {"LOCAL_SIZE", std::to_string(options.procs)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.procs)},
      {"CROSS_RANK", std::to_string(options.node.index)},
      {"CROSS_SIZE", std::to_string(options.node.count)},
      {"MASTER_ADDR", options.node.master_addr},
      {"MASTER_PORT", std::to_string(start.port)},
      {"GANNET_RESTART", std::to_string(start.restart)},
      {kMarkVariable, start.mark},
  };
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  const bool threads_chosen = std::any_of(inherited.begin(), inherited.end(),
                                          [&](const std::string& entry) { return name_of(entry) == "OMP_NUM_THREADS"; });
  if (!threads_chosen || options.bind_cores_to_rank)
    own["OMP_NUM_THREADS"] = std::to_string(std::max<size_t>(1, start.cores / options.procs));

  if (!options.slots.empty()) {
    const std::string entry = visible_devices(options.slots, inherited);
    own[name_of(entry)] = entry.substr(entry.find('=') + 1);
  }

  std::vector<std::string> entries;
  for (const auto& entry : inherited) {
    const std::string name = name_of(entry);
    // If this launcher is itself a rank's program, its ranks also belong to the outer launcher.
    if (name == kMarkVariable) own[name] = formatted("{}/{}", entry.substr(name.size() + 1), start.mark);
    // An outer torchrun's variables describe its own ranks, not ours.
    if (!own.count(name) && name.rfind("TORCHELASTIC_", 0) != 0) entries.push_back(entry);
  }
  for (const auto& [name, value] : own) entries.push_back(formatted("{}={}", name, value));
  return entries;
}

}  // namespace gannet::launch
