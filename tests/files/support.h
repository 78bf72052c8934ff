// Shared by the tests of files: errors as text, pickles and zip archives written by hand.
#pragma once

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/support.h"

namespace gannet::files {

namespace fs = std::filesystem;

inline std::string data(const std::string& name) { return std::string(GANNET_SOURCE_DIR) + "/tests/files/data/" + name; }

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string file(const std::string& name) const { return (root_ / name).string(); }
  fs::path root_ = fs::temp_directory_path() / ("gannet-files-" + std::to_string(::getpid()));
};

inline std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

template <class Number>
std::string le(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

// An archive with fields that a test may falsify.
struct HandEntry {
  std::string name, content;
  uint16_t method = 0, flags = 0;
  int64_t claimed_bytes = -1, claimed_offset = -1;  // in the directory
  std::string local_name = {}, extra = {};
};
struct HandZip {
  std::vector<HandEntry> entries;
  int64_t claimed_entries = -1;
  std::string bytes() const {
    std::string file, directory;
    for (const HandEntry& entry : entries) {
      const auto crc =
          static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(entry.content.data()), entry.content.size()));
      const auto size = static_cast<uint32_t>(entry.content.size());
      const std::string& local = entry.local_name.empty() ? entry.name : entry.local_name;
      const auto offset = static_cast<uint32_t>(entry.claimed_offset < 0 ? file.size() : entry.claimed_offset);
      const auto claimed = entry.claimed_bytes < 0 ? size : static_cast<uint32_t>(entry.claimed_bytes);
      file += le<uint32_t>(0x04034b50) + le<uint16_t>(20) + le(entry.flags) + le(entry.method) + le<uint32_t>(0) + le(crc) +
              le(size) + le(size) + le(static_cast<uint16_t>(local.size())) + le<uint16_t>(0) + local + entry.content;
      directory += le<uint32_t>(0x02014b50) + le<uint16_t>(20) + le<uint16_t>(20) + le(entry.flags) + le(entry.method) +
                   le<uint32_t>(0) + le(crc) + le(claimed) + le(claimed) + le(static_cast<uint16_t>(entry.name.size())) +
                   le(static_cast<uint16_t>(entry.extra.size())) + le<uint16_t>(0) + le<uint16_t>(0) + le<uint16_t>(0) +
                   le<uint32_t>(0) + le(offset) + entry.name + entry.extra;
    }
    const auto count = static_cast<uint16_t>(claimed_entries < 0 ? entries.size() : static_cast<size_t>(claimed_entries));
    return file + directory + le<uint32_t>(0x06054b50) + le<uint32_t>(0) + le(count) + le(count) +
           le(static_cast<uint32_t>(directory.size())) + le(static_cast<uint32_t>(file.size())) + le<uint16_t>(0);
  }
};

}  // namespace gannet::files
