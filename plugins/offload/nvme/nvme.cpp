// Offload plugin "nvme": regions are files on a drive, accessed with direct I/O through libaio.
//
//   nvme.cpp        this file: parameters, regions, the plugin's table
//   job_folder      the locked folder of the swap files; the leftovers of dead jobs
//   direct_io       whether the file system supports direct I/O
//   region          a preallocated file and the checksums of its blocks
//   requests        the open requests: callers add them and wait, workers take pieces
//   worker          a thread with a kernel I/O context: submits, computes checksums, reaps
//   failure         error messages
#include <array>
#include <gannet/sdk_offload.hpp>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "direct_io.h"
#include "job_folder.h"
#include "options.h"
#include "requests.h"
#include "worker.h"

namespace nvme {
namespace {

namespace sdk = gannet::sdk;

Options options_of(const sdk::Params& params) {
  Options options;
  options.nvme_path = params.text("nvme_path");
  options.block_size = static_cast<uint64_t>(params.integer("block_size"));
  options.queue_depth = static_cast<uint32_t>(params.integer("queue_depth"));
  options.single_submit = params.boolean("single_submit");
  options.overlap_events = params.boolean("overlap_events");
  options.workers = static_cast<uint32_t>(params.integer("intra_op_parallelism"));
  options.checksum = params.boolean("checksum");
  if (options.block_size % kAlignment != 0)
    throw Failure(GANNET_INVALID_ARGUMENT, "block_size " + std::to_string(options.block_size) + " is not a multiple of " +
                                               std::to_string(kAlignment) + ", as direct I/O needs: write " +
                                               std::to_string((options.block_size / kAlignment + 1) * kAlignment));
  return options;
}

class Nvme : public sdk::OffloadBase {
 public:
  using Region = nvme::Region;
  using Work = nvme::Work;
  static constexpr std::array kParams{
      sdk::text("nvme_path", nullptr, nullptr, "folder on the drive, from the root", GANNET_PARAM_REQUIRED),
      sdk::at_most(sdk::at_least(sdk::integer("block_size", "1048576", "bytes of a transfer, and of what has a checksum"), 4096),
                   1 << 30),
      sdk::at_most(sdk::at_least(sdk::integer("queue_depth", "8", "transfers that a thread has in flight"), 1), 65536),
      sdk::boolean("single_submit", "false", "a system call for each transfer instead of one for all that are ready"),
      sdk::boolean("overlap_events", "true", "a transfer that is done is replaced at once; false: when all in flight are"),
      sdk::at_most(sdk::at_least(sdk::integer("intra_op_parallelism", "1", "threads that work on requests"), 1), 256),
      sdk::boolean("checksum", "true", "verify on reading that blocks are what was written"),
  };

  Nvme(const gannet_host& host, const sdk::Params& params, uint32_t rank)
      : OffloadBase(host, params, rank), options_(options_of(params)), folder_(options_.nvme_path, rank) {
    if (folder_.removed() > 0)
      log(GANNET_LOG_INFO,
          "removed " + std::to_string(folder_.removed()) + " folder(s) that dead jobs had left in '" + folder_.nvme_path() + "'");
    const DirectIo direct = try_direct_io(folder_);
    direct_ = direct.possible;
    if (!direct_) warn(direct.warning);
    for (uint32_t i = 0; i < options_.workers; ++i) workers_.push_back(std::make_unique<Worker>(requests_, options_));
    try {
      for (auto& worker : workers_) worker->start();
    } catch (...) {
      requests_.close();  // the destructors of the workers that have started join them
      throw;
    }
  }
  ~Nvme() {
    requests_.close();
    workers_.clear();  // waits for the open requests
  }

  uint64_t alignment_bytes() const { return kAlignment; }

  Region* allocate(uint64_t bytes, const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto region = std::make_unique<Region>(folder_, options_, name, bytes, allocated_++, direct_);
    Region* handle = region.get();
    regions_.emplace(handle, std::move(region));
    return handle;
  }
  void release(Region* region) {
    requests_.wait_for(*region);
    const std::lock_guard lock(mutex_);
    regions_.erase(region);
  }
  void* address(Region&) { return nullptr; }

  Work* read(Region& region, uint64_t offset, void* buffer, uint64_t bytes) {
    return requests_.add(region, offset, static_cast<char*>(buffer), bytes, /*is_write=*/false);
  }
  Work* write(Region& region, uint64_t offset, const void* buffer, uint64_t bytes) {
    return requests_.add(region, offset, static_cast<char*>(const_cast<void*>(buffer)), bytes, /*is_write=*/true);
  }
  void wait(Work* work) { requests_.wait(work); }

 private:
  const Options options_;
  const JobFolder folder_;
  bool direct_ = true;
  std::mutex mutex_;
  std::unordered_map<Region*, std::unique_ptr<Region>> regions_;  // guarded by mutex_
  uint64_t allocated_ = 0;                                        // guarded by mutex_
  Requests requests_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace
}  // namespace nvme

GANNET_PLUGINS("offload/nvme", GANNET_TIER_STABLE,
               gannet::sdk::offload<nvme::Nvme>("nvme", "0.1.0",
                                                "files on a drive, read and written past the page cache by libaio"))
