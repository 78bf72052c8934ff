// Reports the versions of Gannet, of the LibTorch in this process (with its path), of compilers and
// of the system, and environment variables.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <gannet/abi.h>
#include <gannet/error.h>
#include <gnu/libc-version.h>
#include <torch/headeronly/version.h>

#include <cstdlib>
#include <filesystem>

#include "base/format.h"
#include "base/machine.h"
#include "base/text.h"
#include "control/environment.h"
#include "doctor/diagnosis.h"
#include "plugin/plugin.h"

namespace gannet::doctor {
namespace {

std::string file_of(const void* symbol) {
  Dl_info info{};
  if (!dladdr(symbol, &info) || !info.dli_fname) return "";
  std::error_code failed;
  const auto real = std::filesystem::canonical(info.dli_fname, failed);
  return failed ? info.dli_fname : real.string();
}

// The text after `name` in LibTorch's own description of how it was built, up to one of `ends`.
std::string after(const std::string& text, const std::string& name, const char* ends) {
  const size_t at = text.find(name);
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size();
  return text.substr(begin, text.find_first_of(ends, begin) - begin);
}

void look_at_libtorch(Diagnosis& diagnosis, Section& versions) {
  const std::string config = at::show_config(), running = after(config, "TORCH_VERSION=", ", \n"), compiled = TORCH_VERSION;
  const std::string file = file_of(reinterpret_cast<const void*>(&at::get_num_threads));
  versions.add("LibTorch", formatted("{}, compiled by GCC {}, kernels for {}", running.empty() ? compiled : running,
                                     after(config, "- GCC ", "\n"), at::get_cpu_capability()));
  versions.add("LibTorch library", file);
  if (!running.empty() && running != compiled)
    diagnosis.problem(
        formatted("Gannet was compiled for LibTorch {}, and {} is the one that was loaded, from {}", compiled, running, file),
        "remove the other one from LD_LIBRARY_PATH, or rebuild Gannet with LIBTORCH_ROOT set to this one");
}

void look_at_environment(Diagnosis& diagnosis) {
  Section& section = diagnosis.section("environment");
  const auto variables = control::variables_of_this_process();
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
        "GANNET_PLUGIN_PATH", "GLOO_SOCKET_IFNAME", "LD_LIBRARY_PATH", "LD_PRELOAD", "TMPDIR"})
    if (const char* value = std::getenv(name)) section.add(name, value);
  if (section.facts.empty()) section.add("variables", "none of those that Gannet reads is set");
  try {
    control::discover(variables, {});
  } catch (const Error& error) {
    diagnosis.problem(error.message(), error.next_step());
  }
}

}  // namespace

void look_at_software(Diagnosis& diagnosis) {
  const Machine machine = this_machine();
  Section& versions = diagnosis.section("versions");
  versions.add("Gannet", formatted("{} (plugin ABI {}.{}; interfaces: accelerator {}, comm {}, offload {})", GANNET_VERSION,
                                   GANNET_ABI_MAJOR, GANNET_ABI_MINOR, GANNET_ACCELERATOR_VERSION, GANNET_COMM_VERSION,
                                   GANNET_OFFLOAD_VERSION));
  versions.add("core library", file_of(reinterpret_cast<const void*>(&plugin::host_fingerprint)));
#if defined(__clang__)
  versions.add("compiled by", "Clang " __clang_version__);
#else
  versions.add("compiled by", "GCC " __VERSION__);
#endif
  look_at_libtorch(diagnosis, versions);
  versions.add("fingerprint", plugin::host_fingerprint());
  versions.add("system", formatted("{}{}, glibc {}", machine.distribution.empty() ? "" : formatted("{}, ", machine.distribution),
                                   machine.system, gnu_get_libc_version()));
  look_at_environment(diagnosis);
}

}  // namespace gannet::doctor
