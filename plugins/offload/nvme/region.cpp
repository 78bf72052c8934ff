#include "region.h"

#include <fcntl.h>
#include <xxhash.h>

#include <cerrno>

#include "failure.h"

namespace nvme {
namespace {

uint64_t round_up(uint64_t bytes) {
  if (bytes > INT64_MAX - kAlignment)
    throw Failure(GANNET_INVALID_ARGUMENT, "a region of " + std::to_string(bytes) + " bytes is larger than any file");
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Makes a file name such as "3-layer_0_weight", and replaces characters that a file name must not
// contain.
std::string file_name(uint64_t number, const std::string& name) {
  std::string text = std::to_string(number) + "-" + name.substr(0, 100);
  for (char& letter : text)
    if (!std::isalnum(static_cast<unsigned char>(letter)) && letter != '-' && letter != '.') letter = '_';
  return text;
}

void reserve(int file, const std::string& what, uint64_t bytes, const std::string& nvme_path) {
  if (bytes == 0) return;
  const auto fail = [&](int code) { throw system_failure("reserving " + bytes_text(bytes) + " for " + what, code, nvme_path); };
  // This is checked first, because fallocate would fill the drive for all its users before it
  // fails.
  if (const uint64_t free = free_bytes(nvme_path); free > 0 && free < bytes) fail(ENOSPC);
  int done;
  do done = ::fallocate(file, 0, 0, static_cast<off_t>(bytes));
  while (done != 0 && errno == EINTR);
  if (done == 0) return;
  // On a file system without fallocate this only sets the length; a full drive is then reported by
  // a write.
  if (errno != EOPNOTSUPP && errno != ENOSYS) fail(errno);
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) fail(errno);
}

std::string describe(const std::string& name, const std::string& path) { return "region '" + name + "' ('" + path + "')"; }

FileHandle make_file(const JobFolder& folder, const std::string& region, const std::string& file, bool direct) {
  FileHandle made = folder.create_file(file, direct ? O_DIRECT : 0);
  if (!made.is_open())
    throw system_failure("making the file of " + describe(region, folder.path() + "/" + file), errno, folder.nvme_path());
  return made;
}

}  // namespace

uint64_t BlockSums::of(const void* bytes, uint64_t count) {
  const uint64_t sum = XXH3_64bits(bytes, count);
  return sum == kNone ? 1 : sum;
}

Region::Region(const JobFolder& folder, const Options& options, const std::string& region_name, uint64_t wanted_bytes,
               uint64_t number, bool direct)
    : name(region_name),
      bytes(round_up(wanted_bytes)),
      nvme_path(folder.nvme_path()),
      path(folder.path() + "/" + file_name(number, region_name)),
      file(make_file(folder, region_name, file_name(number, region_name), direct)),
      block_size(options.block_size),
      checksum(options.checksum),
      sums(options.checksum ? (bytes + block_size - 1) / block_size : 0) {
  reserve(file.get(), describe(name, path), bytes, nvme_path);
}

int64_t Region::whole_block(uint64_t offset, uint64_t count) const {
  if (!checksum || offset % block_size != 0 || (count != block_size && offset + count != bytes)) return -1;
  return static_cast<int64_t>(offset / block_size);
}

}  // namespace nvme
