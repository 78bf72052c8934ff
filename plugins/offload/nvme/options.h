// The options of this plugin, from the config's `aio` section and `offload_*` block.
#pragma once

#include <cstdint>
#include <string>

namespace nvme {

// The alignment of buffers, offsets and sizes: a page, which is also enough for direct I/O on every
// drive in use.
constexpr uint64_t kAlignment = 4096;

struct Options {
  std::string nvme_path;
  uint64_t block_size = 1u << 20;  // bytes of a piece, the largest single transfer
  uint32_t queue_depth = 8;        // pieces in flight per worker
  bool single_submit = false;      // one system call per piece instead of one for all ready pieces
  bool overlap_events = true;      // false: start queue_depth pieces and wait for all of them before the next
  uint32_t workers = 1;            // intra_op_parallelism
  bool checksum = true;
};

}  // namespace nvme
