// What the config's `aio` section and `offload_*` block say, as the parts of this plugin read it.
#pragma once

#include <cstdint>
#include <string>

namespace nvme {

// Of buffers, offsets and sizes: what direct I/O asks for on every drive in use, and a page.
constexpr uint64_t kAlignment = 4096;

struct Options {
  std::string nvme_path;
  uint64_t block_size = 1u << 20;  // bytes of a piece, the largest single transfer
  uint32_t queue_depth = 8;        // pieces that a worker has in flight
  bool single_submit = false;      // a system call for each piece instead of one for all that are ready
  bool overlap_events = true;      // false: queue_depth pieces are started, and all awaited before the next
  uint32_t workers = 1;            // intra_op_parallelism
  bool checksum = true;
};

}  // namespace nvme
