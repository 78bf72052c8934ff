// Measures the offload plugin "nvme" on a folder's drive with given settings: speed, and processor
// time.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <string>
#include <vector>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet::cli {

struct NvmePoint {
  uint64_t block_size = 1u << 20;
  int64_t queue_depth = 8;
  int64_t parallelism = 1;

  Dict aio() const;  // the config section for this point
  uint64_t bytes_in_flight() const { return block_size * static_cast<uint64_t>(queue_depth * parallelism); }
};

struct NvmeSpeed {
  NvmePoint point;
  double write_gb_s = 0, read_gb_s = 0;                      // 10^9 bytes per second
  double write_cpu_ms_per_gib = 0, read_cpu_ms_per_gib = 0;  // processor time of this process, user and system
};

struct NvmeRun {
  std::string folder;
  uint64_t bytes = 1u << 30;
  bool checksum = true;
  int rounds = 1;  // each round writes everything, then reads it; the result is the median
};

// Uses the plugin as the engine does: opens it through the registry, and keeps two requests of up
// to 64 MiB in flight. A warm-up pass first writes the drive's blocks once.
NvmeSpeed measure_nvme(const plugin::Plugin& plugin, const Host& host, const NvmeRun& run, const NvmePoint& point);

// The fastest point for reads and writes together; among those within 3% of it, the one with the
// fewest bytes in flight.
const NvmeSpeed& best_of(const std::vector<NvmeSpeed>& speeds);

}  // namespace gannet::cli
