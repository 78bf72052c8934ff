#include "offload/faulty_calls.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <map>
#include <mutex>

namespace gannet::test {
namespace {

struct State {
  std::mutex mutex;
  struct Failing {
    int code, times;
  };
  std::map<std::string, Failing> failing;
  std::function<void(io_event&)> change;
  long submit_at_most = LONG_MAX;
};

State& state() {
  static State& instance = *new State;
  return instance;
}

// 0, or the errno that this call is to fail with.
int strikes(const char* call) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().failing.find(call);
  if (found == state().failing.end()) return 0;
  const int code = found->second.code;
  if (--found->second.times == 0) state().failing.erase(found);
  return code;
}

template <class Function>
Function* of_libc(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
// The plugin brought libaio along, where RTLD_NEXT does not look.
template <class Function>
Function* of_libaio(const char* name) {
  static void* const library = dlopen("libaio.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

FaultyCalls::~FaultyCalls() {
  const std::lock_guard lock(state().mutex);
  state().failing.clear();
  state().change = {};
  state().submit_at_most = LONG_MAX;
}

void FaultyCalls::fail(const std::string& call, int code, int times) {
  const std::lock_guard lock(state().mutex);
  state().failing[call] = {code, times};
}

void FaultyCalls::on_event(std::function<void(io_event&)> change) {
  const std::lock_guard lock(state().mutex);
  state().change = std::move(change);
}

void FaultyCalls::submit_at_most(long count) {
  const std::lock_guard lock(state().mutex);
  state().submit_at_most = count;
}

}  // namespace gannet::test

using gannet::test::of_libaio;
using gannet::test::of_libc;
using gannet::test::state;
using gannet::test::strikes;

extern "C" {

int mkdir(const char* path, mode_t mode) noexcept {
  if (const int code = strikes("mkdir")) return errno = code, -1;
  static auto* const call = of_libc<int(const char*, mode_t)>("mkdir");
  return call(path, mode);
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t offset) {
  if (const int code = strikes("pwrite")) return errno = code, -1;
  static auto* const call = of_libc<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return call(file, from, bytes, offset);
}

int fallocate(int file, int mode, off_t offset, off_t bytes) {
  if (const int code = strikes("fallocate")) return errno = code, -1;
  static auto* const call = of_libc<int(int, int, off_t, off_t)>("fallocate");
  return call(file, mode, offset, bytes);
}

int io_setup(int depth, io_context_t* context) {
  if (const int code = strikes("io_setup")) return -code;
  static auto* const call = of_libaio<int(int, io_context_t*)>("io_setup");
  return call(depth, context);
}

int io_submit(io_context_t context, long count, iocb** controls) {
  if (const int code = strikes("io_submit")) return -code;
  static auto* const call = of_libaio<int(io_context_t, long, iocb**)>("io_submit");
  long most;
  {
    const std::lock_guard lock(state().mutex);
    most = state().submit_at_most;
  }
  return call(context, std::min(count, most), controls);
}

int io_getevents(io_context_t context, long least, long most, io_event* events, timespec* timeout) {
  if (const int code = strikes("io_getevents")) return -code;
  static auto* const call = of_libaio<int(io_context_t, long, long, io_event*, timespec*)>("io_getevents");
  const int count = call(context, least, most, events, timeout);
  const std::lock_guard lock(state().mutex);
  for (int i = 0; i < count && state().change; ++i) state().change(events[i]);
  return count;
}

}  // extern "C"
