// Examines the machine: processor, memory, limits, folders, network.
#include "base/machine.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/format.h"
#include "base/machine_limits.h"
#include "base/machine_memory.h"
#include "base/text.h"
#include "doctor/diagnosis.h"
#include "doctor/vector_target.h"

namespace gannet::doctor {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// The minimum that a plain run needs; less is reported as a finding.
constexpr uint64_t kLeastMemory = 512 * kMiB;  // LibTorch, a small model, its states
constexpr uint64_t kLeastFiles = 128;          // libraries, sockets of a few ranks, a checkpoint's files
constexpr uint64_t kLeastDisk = 256 * kMiB;
constexpr uint64_t kLeastShared = 64 * kMiB;  // many containers give only this much
constexpr uint64_t kPlainAioRequests = 1024;  // ranks x aio.intra_op_parallelism x aio.queue_depth of an ordinary run

std::string number_text(double number) {
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

Value bytes(uint64_t count) { return static_cast<int64_t>(count); }

void look_at_processor(Diagnosis& diagnosis, const Machine& machine, const MachineLimits& limits) {
  Section& section = diagnosis.section("processor");
  section.add("model", machine.processor.empty() ? "not said" : machine.processor);
  section.add("instructions", join(machine.instruction_sets, " "));
  section.add("plugins' loops", std::string("run with Highway's ") + vector_target());
  std::string cores = formatted("{} of the machine's {}", machine.cores, machine.cores_of_machine);
  if (limits.cores_of_cgroup)
    cores += formatted("; the cgroup gives processor time for {}", number_text(*limits.cores_of_cgroup));
  section.add("cores", cores, machine.cores);
  if (limits.cores_of_cgroup && *limits.cores_of_cgroup < static_cast<double>(machine.cores) - 0.5)
    diagnosis.note(formatted("the cgroup gives processor time for {} cores, and this process sees {}: that many threads would "
                             "wait for one another",
                             number_text(*limits.cores_of_cgroup), machine.cores),
                   formatted("set OMP_NUM_THREADS={}", std::max<int64_t>(1, static_cast<int64_t>(*limits.cores_of_cgroup))));
}

void look_at_memory(Diagnosis& diagnosis, const MachineLimits& limits) {
  const MachineMemory memory = machine_memory();
  Section& section = diagnosis.section("memory");
  section.add("built in", size_text(memory.physical_bytes), bytes(memory.physical_bytes));
  section.add("available", size_text(memory.available_bytes), bytes(memory.available_bytes));
  section.add("cgroup", memory.cgroup.limit_bytes ? formatted("{}, {} of it free", size_text(*memory.cgroup.limit_bytes),
                                                              size_text(memory.cgroup.free_bytes.value_or(0)))
                                                  : "without limit");
  if (memory.address_space_limit_bytes) section.add("ulimit -v", size_text(*memory.address_space_limit_bytes));
  if (memory.data_limit_bytes) section.add("ulimit -d", size_text(*memory.data_limit_bytes));
  section.add("ulimit -l (locked)", limits.locked_memory_bytes ? size_text(*limits.locked_memory_bytes) : "without limit");
  const uint64_t free = std::min(memory.host_free_bytes(), memory.process_free_bytes().value_or(UINT64_MAX));
  if (free < kLeastMemory)
    diagnosis.problem(formatted("only {} of memory is available", size_text(free)),
                      "end other programs, or raise the limit that is shown above");
  if (memory.address_space_limit_bytes)
    diagnosis.note("`ulimit -v` limits address space, and LibTorch reserves more of it than it uses",
                   "limit memory with a cgroup instead: ulimit -v unlimited");

  const FolderState shared = look_at("/dev/shm");
  const bool is_there = std::filesystem::is_directory("/dev/shm");
  section.add("/dev/shm",
              is_there ? formatted("{}, {} free", size_text(shared.total_bytes), size_text(shared.free_bytes)) : "not there",
              is_there ? bytes(shared.total_bytes) : Value());
  if (!is_there || shared.total_bytes <= kLeastShared)
    diagnosis.note(is_there ? formatted("/dev/shm has {}, which is little for GPUs of one machine that exchange gradients",
                                        size_text(shared.total_bytes))
                            : "there is no /dev/shm, through which GPUs of one machine exchange gradients",
                   "start the container with --shm-size=1g or --ipc=host; training on the CPU needs neither");
}

void look_at_limits(Diagnosis& diagnosis, const MachineLimits& limits) {
  Section& section = diagnosis.section("limits");
  std::string files = limits.open_files ? std::to_string(*limits.open_files) : "without limit";
  if (limits.open_files && limits.open_files_hard != limits.open_files)
    files += limits.open_files_hard ? formatted(", may be raised to {}", *limits.open_files_hard) : ", may be raised";
  section.add("open files", files, limits.open_files ? bytes(*limits.open_files) : Value());
  if (limits.open_files && *limits.open_files < kLeastFiles)
    diagnosis.problem(formatted("a process may open {} files, and a run with several ranks needs more", *limits.open_files),
                      "raise it: ulimit -n 4096");
  if (!limits.aio_requests) {
    section.add("asynchronous I/O", "the kernel has none");
    diagnosis.note("the kernel has no asynchronous I/O (/proc/sys/fs/aio-max-nr is not there)",
                   "the nvme offload needs it; nothing else does");
    return;
  }
  const uint64_t taken = limits.aio_requests_taken.value_or(0),
                 left = *limits.aio_requests - std::min(*limits.aio_requests, taken);
  section.add("asynchronous I/O", formatted("{} of fs.aio-max-nr {} requests free", left, *limits.aio_requests), bytes(left));
  if (left < kPlainAioRequests)
    diagnosis.note(formatted("fs.aio-nr is {} of fs.aio-max-nr {}: the nvme offload needs ranks x aio.intra_op_parallelism x "
                             "aio.queue_depth of them",
                             taken, *limits.aio_requests),
                   "raise it: sysctl -w fs.aio-max-nr=1048576");
}

std::string cache_folder() {
  if (const char* named = std::getenv("GANNET_CACHE")) return named;
  if (const char* folder = std::getenv("XDG_CACHE_HOME")) return formatted("{}/gannet", folder);
  const char* home = std::getenv("HOME");
  return home ? formatted("{}/.cache/gannet", home) : "";
}

void look_at_folder(Diagnosis& diagnosis, Section& section, const std::string& name, const std::string& folder) {
  if (folder.empty()) return;
  const FolderState state = look_at(folder);
  std::string text =
      formatted("{}: {} free of {}, {}", folder, size_text(state.free_bytes), size_text(state.total_bytes), state.file_system);
  if (state.is_memory) text += " (files there take memory)";
  text += !state.not_writable.empty() ? formatted(", not writable: {}", state.not_writable)
          : state.takes_direct_io     ? ", takes direct I/O"
                                      : ", takes no direct I/O";
  section.add(name, text, bytes(state.free_bytes));
  if (!state.not_writable.empty() && name != "cache")
    diagnosis.note(
        formatted("no file can be created in {}: {}", folder, state.not_writable),
        name == "TMPDIR" ? "name another folder in TMPDIR" : "name other folders for checkpoints and metrics, with whole paths");
  else if (state.free_bytes < kLeastDisk)
    diagnosis.note(formatted("{} has {} free", folder, size_text(state.free_bytes)),
                   "free space before checkpoints are written to it");
}

void look_at_network(Diagnosis& diagnosis, const Machine& machine) {
  Section& section = diagnosis.section("network");
  bool has_loopback = false, has_other = false;
  std::string text;
  for (const NetworkInterface& one : network_interfaces()) {
    (one.is_loopback ? has_loopback : has_other) = true;
    text += formatted("{}{} {}", text.empty() ? "" : ", ", one.name, one.address);
    if (!one.is_loopback) diagnosis.secrets.emplace_back(one.address, "<address>");
  }
  section.add("interfaces", text.empty() ? "none" : text);
  const std::string unresolved = why_not_resolved(machine.host);
  section.add("host name",
              machine.host + (unresolved.empty() ? " has an address" : formatted(" has no address: {}", unresolved)));
  if (!has_loopback)
    diagnosis.problem("no loopback interface is up: the ranks of this machine cannot reach one another", "ip link set lo up");
  if (!unresolved.empty())
    diagnosis.note(formatted("the host name {} resolves to no address ({})", machine.host, unresolved),
                   "add it to /etc/hosts before several machines train together; one machine works without it");
  if (!has_other)
    diagnosis.note("no interface but the loopback has an address",
                   "ranks of this machine reach one another; other machines cannot");
}

// Collects the names that a report must not contain.
void collect_secrets(Diagnosis& diagnosis, const Machine& machine) {
  const auto add = [&](const char* text, const char* placeholder) {
    if (text && std::string_view(text).size() > 1) diagnosis.secrets.emplace_back(text, placeholder);
  };
  add(std::getenv("HOME"), "~");
  for (const char* name : {"USER", "LOGNAME", "SUDO_USER"}) add(std::getenv(name), "<user>");
  if (const passwd* user = getpwuid(getuid())) {
    add(user->pw_dir, "~");
    add(user->pw_name, "<user>");
  }
  add(machine.host.c_str(), "<host>");
  add(machine.host.substr(0, machine.host.find('.')).c_str(), "<host>");
}

}  // namespace

void look_at_machine(Diagnosis& diagnosis) {
  const Machine machine = this_machine();
  const MachineLimits limits = machine_limits();
  look_at_processor(diagnosis, machine, limits);
  look_at_memory(diagnosis, limits);
  look_at_limits(diagnosis, limits);
  Section& folders = diagnosis.section("folders");
  std::error_code failed;
  look_at_folder(diagnosis, folders, "current", std::filesystem::current_path(failed).string());
  look_at_folder(diagnosis, folders, "TMPDIR", std::filesystem::temp_directory_path(failed).string());
  look_at_folder(diagnosis, folders, "cache", cache_folder());
  look_at_network(diagnosis, machine);
  collect_secrets(diagnosis, machine);
}

}  // namespace gannet::doctor
