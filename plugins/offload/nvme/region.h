// A region: a preallocated file, and the checksums of its contents.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "file_handle.h"
#include "job_folder.h"
#include "options.h"

namespace nvme {

// The checksums of the blocks: one for each block that was last written as a whole, and none for
// other blocks. Workers may access different blocks concurrently.
class BlockSums {
 public:
  explicit BlockSums(uint64_t blocks) : sums_(new std::atomic<uint64_t>[blocks]()) {}
  void set(uint64_t block, uint64_t sum) { sums_[block].store(sum, std::memory_order_relaxed); }
  void forget(uint64_t block) { set(block, kNone); }
  uint64_t get(uint64_t block) const { return sums_[block].load(std::memory_order_relaxed); }

  static constexpr uint64_t kNone = 0;
  static uint64_t of(const void* bytes, uint64_t count);  // XXH3-64, but never kNone

 private:
  std::unique_ptr<std::atomic<uint64_t>[]> sums_;
};

struct Region {
  // Reserves the space; if there is too little, throws GANNET_IO_ERROR naming the free space. With
  // `direct`, opens the file with O_DIRECT. Keeps block_size and checksum for the workers.
  Region(const JobFolder& folder, const Options& options, const std::string& name, uint64_t wanted_bytes, uint64_t number,
         bool direct);

  // Index of the block that [offset, offset + count) covers exactly; -1 if there is none or if
  // checksums are off.
  int64_t whole_block(uint64_t offset, uint64_t count) const;

  std::string name;
  uint64_t bytes;  // rounded up to the alignment
  std::string nvme_path;
  std::string path;  // path of the file before it was unlinked
  FileHandle file;
  uint64_t block_size;
  bool checksum;
  BlockSums sums;
  uint64_t requests_open = 0;  // number of unfinished requests; guarded by Requests
};

}  // namespace nvme
