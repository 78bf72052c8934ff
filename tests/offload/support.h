// Shared by the offload tests: a tier opened as the engine opens it, page-aligned buffers, folders
// on a disk.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "interfaces/offload.h"
#include "plugin/support.h"

namespace gannet::test {

// Random bytes at a page boundary.
class Bytes {
 public:
  explicit Bytes(uint64_t count, uint64_t seed = 0)
      : count_(count), data_(static_cast<char*>(std::aligned_alloc(4096, (count + 4095) / 4096 * 4096))) {
    std::mt19937_64 random(seed);
    for (uint64_t i = 0; i < count; i += sizeof(uint64_t)) {
      const uint64_t word = random();
      std::memcpy(data_ + i, &word, std::min<uint64_t>(sizeof(word), count - i));
    }
  }
  Bytes(Bytes&& other) noexcept : count_(other.count_), data_(std::exchange(other.data_, nullptr)) {}
  ~Bytes() { std::free(data_); }

  char* data() { return data_; }
  uint64_t size() const { return count_; }
  void clear() { std::memset(data_, 0, count_); }
  bool operator==(const Bytes& other) const { return count_ == other.count_ && std::memcmp(data_, other.data_, count_) == 0; }
  bool all_zero() const {
    return std::all_of(data_, data_ + count_, [](char byte) { return byte == 0; });
  }

 private:
  uint64_t count_;
  char* data_;
};

inline std::unique_ptr<Offload> open_tier(const std::string& name, const Dict& params, uint32_t rank = 0) {
  static plugin::Registry& registry = *new plugin::Registry({});
  static const Host& host = *new Host;
  const plugin::Plugin& plugin = registry.require(GANNET_KIND_OFFLOAD, name);
  return std::make_unique<Offload>(plugin, plugin::parse_params(plugin, params, [](const std::string& member) { return member; }),
                                   host, rank);
}

// The job folders in `path`.
inline std::vector<std::string> job_folders(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) names.push_back(entry.path().filename());
  return names;
}

}  // namespace gannet::test
