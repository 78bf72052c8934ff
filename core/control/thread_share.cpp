#include "control/thread_share.h"

#include <ATen/Parallel.h>
#include <gannet/log.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "base/format.h"

namespace gannet::control {
namespace {

// The number of physical cores to which the cores in `cores` belong.
uint32_t physical(const std::string& cores) {
  std::set<std::string> siblings;
  for (size_t core = 0; core < cores.size(); ++core) {
    if (cores[core] != '1') continue;
    std::ifstream file(formatted("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", core));
    std::string line = std::to_string(core);
    std::getline(file, line);
    siblings.insert(line);
  }
  return static_cast<uint32_t>(siblings.size());
}

}  // namespace

std::string own_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::string cores;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) {
      cores.resize(core, '0');
      cores += '1';
    }
  return cores;
}

uint32_t share_of_threads(uint32_t all_threads, const std::string& own, const std::vector<std::string>& of_machine) {
  double cores = 0, share = 0;
  for (size_t core = 0; core < own.size(); ++core) {
    if (own[core] != '1') continue;
    const auto has = [core](const std::string& rank) { return core < rank.size() && rank[core] == '1'; };
    ++cores;
    share += 1. / static_cast<double>(std::count_if(of_machine.begin(), of_machine.end(), has));
  }
  if (cores == 0) return all_threads;
  constexpr double kRounding = 1e-6;  // so that three thirds count as 1
  return std::max(1u, static_cast<uint32_t>(all_threads * share / cores + kRounding));
}

void share_threads(const std::vector<std::string>& of_machine, bool tells) {
  const std::string own = own_cores();
  if (std::getenv("OMP_NUM_THREADS") || own.empty()) return;
  const auto now = static_cast<uint32_t>(at::get_num_threads());
  if (now != static_cast<uint32_t>(std::count(own.begin(), own.end(), '1')) && now != physical(own)) return;
  const uint32_t share = share_of_threads(now, own, of_machine);
  if (share == now) return;
  at::set_num_threads(static_cast<int>(share));
  if (tells)
    log_info(
        formatted("{} ranks share the cores of this machine, so that each takes {} thread{} in place of {}; OMP_NUM_THREADS "
                  "sets another number",
                  of_machine.size(), share, share == 1 ? "" : "s", now));
}

}  // namespace gannet::control
