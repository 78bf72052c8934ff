// A function table between the host and the checked plugin: every call of the plugin passes through
// it, so that a check can watch the process around each call and pass structs in the other shapes
// that the contract allows.
//
//   const RelayScope scope({.appended_bytes = 64});   // structs as in a later ABI minor version
//   train(subject, ...);                              // must give the same bits
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "plugin/plugin.h"

namespace gannet::kit {

struct RelayOptions {
  // Compares the process before and after every call (process_state.h). The first change is kept for
  // throw_kept_fault() (relay_fault.h).
  bool watches_process = false;
  // Structs are longer by this many bytes, of arbitrary content, and so are the strides of arrays.
  uint64_t appended_bytes = 0;
  // Structs, and the host's table, end before the first field that is newer than this minor; an access beyond that faults.
  uint32_t minor = std::numeric_limits<uint32_t>::max();
  // Structs, pointer lists and strings are write-protected copies that live only during the call.
  bool copies_arguments = false;
  // Changes the tensor ids, the group numbers and the context's group count.
  bool relabels = false;
  uint64_t error_capacity = 0;  // of gannet_error::message; 0: the host's own

  std::optional<uint64_t> total_steps = {};  // overrides the run length passed to the scheduler

  // The host's services.
  uint32_t threads = 0;             // for thread_count and parallel_for; 0: the host's own
  bool reverses_chunks = false;     // parallel_for runs the last chunk first, in chunks of one grain
  int64_t allocations = -1;         // how many calls of allocate succeed; -1: all of them
  bool guards_allocations = false;  // allocate returns memory between canaries and guard pages
  bool watches_metrics = false;     // a call of metric that the host refuses is kept as a fault

  bool reshapes() const {
    return appended_bytes > 0 || minor != std::numeric_limits<uint32_t>::max() || copies_arguments || relabels || total_steps;
  }
  bool changes_host() const {
    return threads > 0 || reverses_chunks || allocations >= 0 || guards_allocations || watches_metrics || appended_bytes > 0 ||
           minor != std::numeric_limits<uint32_t>::max();
  }
};

// A copy of the plugin with a table whose functions call those of `plugin`. One plugin per process.
const plugin::Plugin* relayed(const plugin::Plugin* plugin);

// Sets the options for its lifetime. Those about the host apply only to objects created within the
// scope.
class RelayScope {
 public:
  explicit RelayScope(const RelayOptions& options);
  ~RelayScope();
  RelayScope(const RelayScope&) = delete;
};
const RelayOptions& relay_options();

// How many calls of allocate have been refused in this process.
uint64_t refused_allocations();

}  // namespace gannet::kit
