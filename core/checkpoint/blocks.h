// A large file in blocks of a fixed size, each with its XXH3: written and read by a few threads, with direct I/O where the file
// system has it. The memory is a block for each thread, whatever the size of the file.
//
//   std::vector<uint64_t> checksums = write_blocks(path, bytes, kBlockBytes, fill);   // synced when it returns
#pragma once

#include <gannet/error.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gannet::checkpoint {

inline constexpr uint64_t kBlockBytes = 4 << 20;       // hashed and copied while it is in the cache; larger ones were slower
inline constexpr uint64_t kMaxBlockBytes = 256 << 20;  // of files that are read: each thread allocates one

inline uint64_t block_count(uint64_t bytes, uint64_t block_bytes) { return bytes / block_bytes + (bytes % block_bytes != 0); }

// Puts bytes [offset, offset + bytes) of the file into `into`. Called from several threads at once; may throw.
using Fill = std::function<void(uint64_t offset, uint64_t bytes, char* into)>;

// Creates or overwrites `path` and returns the checksum of each block. Throws Error(kIo).
std::vector<uint64_t> write_blocks(const std::string& path, uint64_t bytes, uint64_t block_bytes, const Fill& fill);

struct BlockFile {
  std::string path, name;  // name: for messages
  uint64_t bytes = 0, block_bytes = 0;
  std::vector<uint64_t> checksums;
};

struct BlockRequest {
  size_t file = 0;
  uint64_t block = 0;
};

// What to do with blocks. All are called from several threads at once; what they throw ends the reading and is thrown by it.
struct BlockReader {
  // Memory to read a whole block into, or null: a copy less, where the block comes from the page cache. What stands there after a
  // block was bad is nothing to go by.
  std::function<char*(const BlockRequest&, uint64_t bytes)> place = nullptr;
  std::function<void(const BlockRequest&, const char* data, uint64_t bytes)>
      use;  // its checksum is right; not called where `place` gave memory
  std::function<void(const BlockRequest&, const Error& what)> bad;
};

// Every requested block, in order as far as the threads go: from the page cache what is there already (the first rank of a
// machine read it, the file was copied here), else from the disk directly.
void read_blocks(const std::vector<BlockFile>& files, const std::vector<BlockRequest>& requests, const BlockReader& reader);

}  // namespace gannet::checkpoint
