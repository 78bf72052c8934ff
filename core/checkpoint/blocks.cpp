#include "checkpoint/blocks.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <gannet/sdk_threads.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "base/format.h"
#include "files/io.h"

namespace gannet::checkpoint {
namespace {

constexpr uint64_t kAlignment = 4096;  // required by direct I/O for offset, length and memory
constexpr size_t kThreads = 4;         // blocks in flight: while one is hashed, others are written

uint64_t rounded_up(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct MemoryDeleter {
  void operator()(char* memory) const { std::free(memory); }
};

// Calls body(i, buffer) for i in [0, count), with one buffer per thread. The threads block signals,
// so that the program's threads receive them.
void on_threads(uint64_t count, uint64_t buffer_bytes, const std::function<void(uint64_t i, char* buffer)>& body) {
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  auto work = [&] {
    try {
      // The buffer is aligned and rounded up to 2 MiB for transparent huge pages; direct I/O
      // accepts this.
      std::unique_ptr<char, MemoryDeleter> buffer(
          static_cast<char*>(std::aligned_alloc(2 << 20, (buffer_bytes + (2 << 20) - 1) >> 21 << 21)));
      if (!buffer) throw std::bad_alloc();
      ::madvise(buffer.get(), buffer_bytes, MADV_HUGEPAGE);
      for (uint64_t i; (i = next.fetch_add(1)) < count;) body(i, buffer.get());
    } catch (...) {
      // Stops all threads from starting another block.
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  sdk::BlockSignals blocked;
  std::vector<std::thread> threads;
  try {
    for (size_t i = 0; i < std::min<uint64_t>(kThreads, count); ++i) {
      threads.emplace_back(work);
      pthread_setname_np(threads.back().native_handle(), "gannet-blocks");
    }
  } catch (...) {  // the thread limit was reached: the threads that started do the work
    if (threads.empty()) throw;
  }
  blocked.restore();
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

// Opens a file for direct I/O if the file system supports it, otherwise for I/O through the page
// cache.
files::Descriptor open_direct(const std::string& path, int flags) {
  files::Descriptor file(::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC, 0666));
  return file >= 0 ? std::move(file) : files::open_file(path, flags);
}

[[noreturn]] void ends_early(const std::string& path, uint64_t at) {
  throw Error(ErrorCode::kCorrupt, formatted("{} ends at byte {}", path, at));
}
[[noreturn]] void read_failed(const std::string& path, uint64_t at) {
  throw Error(ErrorCode::kIo, formatted("cannot read {} at byte {}: {}", path, at, std::strerror(errno)));
}

// A file to read blocks from.
class BlockSource {
 public:
  explicit BlockSource(const BlockFile& file) : path_(file.path), bytes_(file.bytes), direct_(open_direct(file.path, O_RDONLY)) {
    // The mapping is used only to query which pages are cached. If that fails, everything is read
    // from the disk.
    void* mapping = bytes_ > 0 ? ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, direct_, 0) : MAP_FAILED;
    if (mapping != MAP_FAILED) mapping_ = static_cast<char*>(mapping);
    if (mapping_) cached_ = files::Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  }
  ~BlockSource() {
    if (mapping_) ::munmap(mapping_, bytes_);
  }
  BlockSource(const BlockSource&) = delete;

  // Whether the bytes are in the page cache. This is only a hint: pages may be evicted before they
  // are read, which makes the read slower but gives the same bytes.
  bool is_cached(uint64_t begin, uint64_t size) const {
    if (!mapping_ || cached_ < 0 || begin % kAlignment != 0) return false;
    std::vector<unsigned char> pages(rounded_up(size) / kAlignment);
    if (::mincore(mapping_ + begin, size, pages.data()) != 0) return false;
    return std::all_of(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  }

  // Reads through the page cache and hashes each stretch while it is in this core's cache. Returns
  // the checksum.
  uint64_t read_cached(char* to, uint64_t size, uint64_t begin) const {
    constexpr uint64_t kStretch = 256 << 10;
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (uint64_t done = 0; done < size;) {
      const ssize_t count = ::pread(cached_, to + done, std::min(kStretch, size - done), static_cast<off_t>(begin + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) read_failed(path_, begin + done);
      if (count == 0) ends_early(path_, begin + done);
      XXH3_64bits_update(&state, to + done, static_cast<size_t>(count));
      done += static_cast<uint64_t>(count);
    }
    return XXH3_64bits_digest(&state);
  }

  // `to` has room for `size` rounded up for direct I/O.
  uint64_t read_direct(char* to, uint64_t size, uint64_t begin) const {
    bool is_direct = true;  // as far as this call knows; other threads read the same file
    for (uint64_t done = 0; done < size;) {
      const ssize_t count = ::pread(direct_, to + done, rounded_up(size - done), static_cast<off_t>(begin + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EINVAL) {
        if (std::exchange(is_direct, false) && files::give_up_direct_io(direct_)) continue;
        errno = EINVAL;
      }
      if (count < 0) read_failed(path_, begin + done);
      if (count == 0) ends_early(path_, begin + done);
      done += static_cast<uint64_t>(count);
    }
    return XXH3_64bits(to, size);
  }

 private:
  std::string path_;
  uint64_t bytes_;
  files::Descriptor direct_, cached_;
  char* mapping_ = nullptr;
};

}  // namespace

std::vector<uint64_t> write_blocks(const std::string& path, uint64_t bytes, uint64_t block_bytes, const BlockFiller& fill) {
  files::Descriptor file = open_direct(path, O_WRONLY | O_CREAT | O_TRUNC);
  // Reserves all space first, so that a full disk is detected before the first byte is written, and
  // blocks need not extend the file.
  if (bytes > 0 && ::fallocate(file, 0, 0, static_cast<off_t>(rounded_up(bytes))) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    files::io_failed(formatted("reserve {} for", size_text(bytes)), path, errno);

  std::vector<uint64_t> checksums(block_count(bytes, block_bytes));
  on_threads(checksums.size(), std::min(rounded_up(bytes), block_bytes), [&](uint64_t block, char* buffer) {
    const uint64_t begin = block * block_bytes, size = std::min(block_bytes, bytes - begin);
    fill(begin, size, buffer);
    // Direct I/O writes whole pages: the last block is padded here, and ftruncate removes the
    // padding.
    std::memset(buffer + size, 0, rounded_up(size) - size);
    checksums[block] = XXH3_64bits(buffer, size);
    files::write_at(file, buffer, rounded_up(size), begin, path);
  });
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) files::io_failed("cut to its length", path, errno);
  files::sync(file, path);
  file.close(path);
  return checksums;
}

void read_blocks(const std::vector<BlockFile>& files, const std::vector<BlockRequest>& requests, const BlockReader& reader) {
  std::map<size_t, std::unique_ptr<BlockSource>> sources;
  uint64_t buffer_bytes = kAlignment;
  for (const BlockRequest& request : requests) {
    const BlockFile& file = files[request.file];
    buffer_bytes = std::max(buffer_bytes, std::min(rounded_up(file.bytes), file.block_bytes));
    if (sources.contains(request.file)) continue;
    auto& source = sources[request.file];
    try {
      source = std::make_unique<BlockSource>(file);
    } catch (const Error& error) {
      reader.bad(request, error);
    }
  }
  on_threads(requests.size(), buffer_bytes, [&](uint64_t i, char* buffer) {
    const BlockRequest& request = requests[i];
    const BlockFile& file = files[request.file];
    const auto& source = sources.at(request.file);
    if (!source) return;  // reported above
    const uint64_t begin = request.block * file.block_bytes, size = std::min(file.block_bytes, file.bytes - begin);
    char* placed = nullptr;
    try {
      const bool is_cached = source->is_cached(begin, size);
      if (is_cached && reader.place) placed = reader.place(request, size);
      const uint64_t checksum =
          is_cached ? source->read_cached(placed ? placed : buffer, size, begin) : source->read_direct(buffer, size, begin);
      if (checksum != file.checksums[request.block])
        throw Error(ErrorCode::kCorrupt,
                    formatted("{} is damaged: bytes {} to {} do not have the checksum that the manifest gives them", file.name,
                              begin, begin + size));
    } catch (const Error& error) {
      reader.bad(request, error);
      return;
    }
    if (!placed) reader.use(request, buffer, size);
  });
}

}  // namespace gannet::checkpoint
