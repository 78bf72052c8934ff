#include "library.h"

#include <dlfcn.h>

#include <gannet/sdk_errors.hpp>
#include <map>
#include <mutex>

namespace gannet_nccl {
namespace {

using gannet::sdk::Failure;

constexpr int kOldest = 21400;  // the first with communicators that do not block

template <class Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

Library opened(const std::string& file) {
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw Failure(GANNET_UNAVAILABLE, "comm plugin 'nccl' cannot open " + file + " (" + ::dlerror() +
                                          "): install the library (PyTorch for GPUs brings it), give its file as the "
                                          "parameter \"library\", or name the Comm 'gloo'");
  Library found{};
  found.file = file;
  const auto require = [&](const char* name, auto& function) {
    if (!find(handle, name, function))
      throw Failure(GANNET_UNAVAILABLE,
                    "comm plugin 'nccl': " + file + " has no function " + name + ", so it is older than 2.14");
  };
  if (!find(handle, "ncclGetVersion", found.get_version))
    throw Failure(GANNET_UNAVAILABLE, "comm plugin 'nccl': " + file + " is not NCCL: it has no function ncclGetVersion");
  if (found.get_version(&found.version) != kSuccess || found.version < kOldest)
    throw Failure(GANNET_UNAVAILABLE,
                  "comm plugin 'nccl': " + file + " is version " + found.version_text() + ", and 2.14 is the oldest that serves");
  require("ncclGetUniqueId", found.get_unique_id);
  require("ncclCommInitRankConfig", found.init_rank_config);
  require("ncclCommFinalize", found.finalize);
  require("ncclCommDestroy", found.destroy);
  require("ncclCommAbort", found.abort);
  require("ncclCommGetAsyncError", found.get_async_error);
  require("ncclGetErrorString", found.get_error_string);
  require("ncclGroupStart", found.group_start);
  require("ncclGroupEnd", found.group_end);
  require("ncclSend", found.send);
  require("ncclRecv", found.recv);
  require("ncclBroadcast", found.broadcast);
  require("ncclReduce", found.reduce);
  require("ncclAllReduce", found.all_reduce);
  require("ncclAllGather", found.all_gather);
  require("ncclReduceScatter", found.reduce_scatter);
  find(handle, "ncclRedOpCreatePreMulSum", found.create_premultiplied_sum);
  find(handle, "ncclRedOpDestroy", found.destroy_op);
  find(handle, "ncclGetLastError", found.get_last_error);
  find(handle, "ncclCommSplit", found.split);
  return found;
}

}  // namespace

std::string Library::version_text() const {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

// A library stays open: its threads may outlive every communicator.
const Library& Library::open(const std::string& name, const std::string& soname) {
  static std::mutex mutex;
  static std::map<std::string, Library>& libraries = *new std::map<std::string, Library>;
  const std::string file = name == "auto" ? soname : name;
  const std::lock_guard lock(mutex);
  const auto known = libraries.find(file);
  return known != libraries.end() ? known->second : libraries.emplace(file, opened(file)).first->second;
}

}  // namespace gannet_nccl
