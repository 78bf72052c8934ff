// A library for LD_PRELOAD that makes file calls fail. GANNET_FAULT says which:
//
//   "pwrite ENOSPC 2"   the second pwrite and all after it fail with ENOSPC
//   "pwrite short 1"    every pwrite does half of what was asked for, from the first on
//   "fsync kill 3"      the process is killed before its third fsync
//   "rename killed 1"   ... right after its first rename
//   "pwrite stop 1"     the process stops before its first pwrite, until SIGCONT
//   "flock lies 1"      every flock succeeds, even on a locked file: each machine has its own locks. GANNET_FLOCK_LIES does the
//                       same beside another fault
//   "aio_write EIO 9"   the ninth asynchronous write (of libaio) and all after it fail; aio_read likewise
//
// Only calls on files whose path contains GANNET_FAULT_PATH count, of all processes or of the one whose RANK is
// GANNET_FAULT_RANK; with GANNET_FAULT_LATER only those after the process itself has called gannet_faults_begin().
#include <dlfcn.h>
#include <fcntl.h>
#include <libaio.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct Fault {
  char call[32] = "", action[32] = "";
  int from = 0;
  std::string path;
  std::atomic<bool> has_begun;
  Fault() : has_begun(!std::getenv("GANNET_FAULT_LATER")) {
    const char* text = std::getenv("GANNET_FAULT");
    const char* place = std::getenv("GANNET_FAULT_PATH");
    const char *rank = std::getenv("RANK"), *only = std::getenv("GANNET_FAULT_RANK");
    const bool is_mine = !only || (rank && !std::strcmp(rank, only));
    if (!text || !is_mine || std::sscanf(text, "%31s %31s %d", call, action, &from) != 3) call[0] = '\0';
    path = place ? place : "";
  }
};

Fault& fault() {
  static Fault one;
  return one;
}

int code_of(const char* name) {
  if (!std::strcmp(name, "ENOSPC")) return ENOSPC;
  if (!std::strcmp(name, "EIO")) return EIO;
  if (!std::strcmp(name, "EINVAL")) return EINVAL;
  if (!std::strcmp(name, "EOPNOTSUPP")) return EOPNOTSUPP;
  if (!std::strcmp(name, "EDQUOT")) return EDQUOT;
  return 0;
}

// The action for this call: nothing, or the action's name.
const char* strikes(const char* call, const std::string& path) {
  static std::atomic<int> count{0};
  const Fault& one = fault();
  if (std::strcmp(call, one.call) != 0 || !one.has_begun || path.find(one.path) == std::string::npos) return nullptr;
  const int number = ++count;
  if (number < one.from) return nullptr;
  if (!std::strcmp(one.action, "kill")) ::raise(SIGKILL);
  if (!std::strcmp(one.action, "stop") && number == one.from) ::raise(SIGSTOP);
  return one.action;
}

std::string path_of(int file) {
  char link[64], path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t size = ::readlink(link, path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "";
}

template <class Result, class Call>
Result pass(const char* name, const std::string& path, Call&& call) {
  const char* action = strikes(name, path);
  if (action && code_of(action) != 0) {
    errno = code_of(action);
    return -1;
  }
  const Result result = call();
  if (action && !std::strcmp(action, "killed")) ::raise(SIGKILL);
  return result;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

ssize_t faulty_pwrite(int file, const void* from, size_t bytes, off_t offset) {
  static auto* const call = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const char* action = strikes("pwrite", path_of(file));
  if (action && code_of(action) != 0) {
    errno = code_of(action);
    return -1;
  }
  const bool is_short = action && !std::strcmp(action, "short") && bytes > 1;
  const ssize_t result = call(file, from, is_short ? bytes / 2 : bytes, offset);
  if (action && !std::strcmp(action, "killed")) ::raise(SIGKILL);
  return result;
}

}  // namespace

extern "C" {

void gannet_faults_begin() { fault().has_begun = true; }

// libaio comes with a plugin, where RTLD_NEXT does not look.
int io_getevents(io_context_t context, long least, long most, io_event* events, timespec* timeout) {
  using Call = int(io_context_t, long, long, io_event*, timespec*);
  static auto* const call = reinterpret_cast<Call*>(::dlsym(::dlopen("libaio.so.1", RTLD_NOW), "io_getevents"));
  const int count = call(context, least, most, events, timeout);
  for (int i = 0; i < count; ++i) {
    const iocb& control = *events[i].obj;
    const char* action = strikes(control.aio_lio_opcode == IO_CMD_PWRITE ? "aio_write" : "aio_read", path_of(control.aio_fildes));
    if (action) events[i].res = static_cast<unsigned long>(-code_of(action));
  }
  return count;
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t offset) { return faulty_pwrite(file, from, bytes, offset); }
ssize_t pwrite64(int file, const void* from, size_t bytes, off_t offset) { return faulty_pwrite(file, from, bytes, offset); }

int fsync(int file) {
  static auto* const call = real<int(int)>("fsync");
  return pass<int>("fsync", path_of(file), [&] { return call(file); });
}

int flock(int file, int operation) noexcept {
  static auto* const call = real<int(int, int)>("flock");
  return std::getenv("GANNET_FLOCK_LIES") || strikes("flock", path_of(file)) ? 0 : call(file, operation);
}

int fallocate(int file, int mode, off_t offset, off_t bytes) {
  static auto* const call = real<int(int, int, off_t, off_t)>("fallocate");
  return pass<int>("fallocate", path_of(file), [&] { return call(file, mode, offset, bytes); });
}

int ftruncate(int file, off_t bytes) noexcept {
  static auto* const call = real<int(int, off_t)>("ftruncate");
  return pass<int>("ftruncate", path_of(file), [&] { return call(file, bytes); });
}

int rename(const char* from, const char* to) noexcept {
  static auto* const call = real<int(const char*, const char*)>("rename");
  return pass<int>("rename", to, [&] { return call(from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static auto* const call = real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return pass<int>("renameat2", to, [&] { return call(from_folder, from, to_folder, to, flags); });
}

ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  static auto* const call = real<ssize_t(int, void*, size_t, off_t)>("pread");
  return pass<ssize_t>("pread", path_of(file), [&] { return call(file, to, bytes, offset); });
}

}  // extern "C"
