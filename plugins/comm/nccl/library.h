// NVIDIA's NCCL, or AMD's RCCL, which has the same functions: opened by name, so that the plugin
// needs neither at build time. The declarations are those of NCCL 2.14 and later
// (docs.nvidia.com/deeplearning/nccl, API reference).
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gannet_nccl {

struct UniqueId {
  char bytes[128];
};
struct OpaqueComm;
using Comm = OpaqueComm*;
using Stream = void*;  // cudaStream_t or hipStream_t

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
enum DataType : int { kInt8 = 0, kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum ReduceOp : int { kSum = 0, kMax = 2, kMin = 3, kAverage = 4 };
enum ScalarPlace : int { kScalarOnHost = 1 };

// Layout and version of NCCL 2.18. Later versions read as much as `size` says and take their own
// defaults for the rest.
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int is_blocking = 0;  // calls return kInProgress instead of waiting, so that they can have a deadline
  int cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;  // INT_MIN: the library's default
  const char* net_name = nullptr;
  int shares_resources_of_split = INT_MIN;
};

// The library's functions. Those after `reduce_scatter` are null in versions without them.
struct Library {
  // Opens the library that `name` names, a file or a soname; "auto" is the vendor's soname: the copy
  // that LibTorch has brought into the process, or else the system's. Throws
  // Failure(GANNET_UNAVAILABLE).
  static const Library& open(const std::string& name, const std::string& soname);

  std::string file;  // where it was found
  int version = 0;   // 22703 is 2.27.3
  std::string version_text() const;

  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*init_rank_config)(Comm* comm, int size, UniqueId id, int rank, Config* config);
  Result (*finalize)(Comm comm);
  Result (*destroy)(Comm comm);
  Result (*abort)(Comm comm);
  Result (*get_async_error)(Comm comm, Result* error);
  const char* (*get_error_string)(Result result);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void* send, size_t count, DataType type, int peer, Comm comm, Stream stream);
  Result (*recv)(void* recv, size_t count, DataType type, int peer, Comm comm, Stream stream);
  Result (*broadcast)(const void* send, void* recv, size_t count, DataType type, int root, Comm comm, Stream stream);
  Result (*reduce)(const void* send, void* recv, size_t count, DataType type, int op, int root, Comm comm, Stream stream);
  Result (*all_reduce)(const void* send, void* recv, size_t count, DataType type, int op, Comm comm, Stream stream);
  Result (*all_gather)(const void* send, void* recv, size_t count, DataType type, Comm comm, Stream stream);
  Result (*reduce_scatter)(const void* send, void* recv, size_t count, DataType type, int op, Comm comm, Stream stream);
  // Since 2.11.
  Result (*create_premultiplied_sum)(int* op, void* scalar, DataType type, ScalarPlace place, Comm comm);
  Result (*destroy_op)(int op, Comm comm);
  // Since 2.13.
  const char* (*get_last_error)(Comm comm);
  // Since 2.18.
  Result (*split)(Comm comm, int color, int key, Comm* made, Config* config);
};

}  // namespace gannet_nccl
