// Writes and reads a large file in fixed-size blocks, each with an XXH3 checksum, on a few threads,
// with direct I/O if the file system supports it. Memory use is one block per thread, regardless of
// the file's size.
//
//   std::vector<uint64_t> checksums = write_blocks(path, bytes, kBlockBytes, fill);   // synced when it returns
#pragma once

#include <gannet/error.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gannet::checkpoint {

inline constexpr uint64_t kBlockBytes = 4 << 20;       // hashed and copied while in the cache; larger blocks were slower
inline constexpr uint64_t kMaxBlockBytes = 256 << 20;  // limit for files that are read: each thread allocates a block

inline uint64_t block_count(uint64_t bytes, uint64_t block_bytes) { return bytes / block_bytes + (bytes % block_bytes != 0); }

// Fills `into` with bytes [offset, offset + bytes) of the file. Called from several threads
// concurrently; may throw.
using BlockFiller = std::function<void(uint64_t offset, uint64_t bytes, char* into)>;

// Creates or overwrites `path` and returns the checksum of each block. Throws Error(kIo, kNotFound), and what `fill` throws.
std::vector<uint64_t> write_blocks(const std::string& path, uint64_t bytes, uint64_t block_bytes, const BlockFiller& fill);

struct BlockFile {
  std::string path, name;  // name: for messages
  uint64_t bytes = 0, block_bytes = 0;
  std::vector<uint64_t> checksums;
};

struct BlockRequest {
  size_t file = 0;
  uint64_t block = 0;
};

// The functions that read_blocks() calls for blocks, from several threads concurrently. An
// exception in one of them ends read_blocks(), which rethrows it.
struct BlockReader {
  // Returns memory to read a whole block into, or null. This saves a copy for blocks in the page
  // cache. The contents of the memory are unspecified if the block failed its checksum.
  std::function<char*(const BlockRequest&, uint64_t bytes)> place = nullptr;
  std::function<void(const BlockRequest&, const char* data, uint64_t bytes)>
      use;  // called with a verified block, unless `place` gave memory
  std::function<void(const BlockRequest&, const Error& what)> bad;
};

// Reads every requested block, roughly in order. Blocks that are in the page cache (because the
// first rank of a machine read them, or the file was copied here) are read from there, others
// directly from the disk.
void read_blocks(const std::vector<BlockFile>& files, const std::vector<BlockRequest>& requests, const BlockReader& reader);

}  // namespace gannet::checkpoint
