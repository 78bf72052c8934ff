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

// Makes `path` anew and gives the checksum of each block. Throws Error(kIo).
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

// Every requested block, in order as far as the threads go: `use` gets the bytes of one whose checksum is right, `bad` what is
// wrong with another one. Both are called from several threads at once; what they throw ends the reading and is thrown here.
void read_blocks(const std::vector<BlockFile>& files, const std::vector<BlockRequest>& requests,
                 const std::function<void(const BlockRequest&, const char* data, uint64_t bytes)>& use,
                 const std::function<void(const BlockRequest&, const Error& what)>& bad);

}  // namespace gannet::checkpoint
