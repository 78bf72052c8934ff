// A key-value store in a folder, through which the processes of one host meet.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gannet/sdk_store.hpp>
#include <iterator>
#include <string>
#include <thread>

namespace nccl_double {

class FileStore {
 public:
  // `is_stopped`: ends the waits.
  FileStore(std::string folder, const std::atomic<bool>& is_stopped) : folder_(std::move(folder)), is_stopped_(is_stopped) {
    std::filesystem::create_directories(folder_);
    table_.struct_size = sizeof(table_);
    table_.context = this;
    table_.set = [](void* self, const char* key, const void* bytes, uint64_t count, gannet_error* error) -> int32_t {
      return gannet::sdk::guarded(error, [&] { of(self).set(key, std::string(static_cast<const char*>(bytes), count)); });
    };
    table_.get = [](void* self, const char* key, const void** bytes, uint64_t* count, gannet_error* error) -> int32_t {
      return gannet::sdk::guarded(error, [&] {
        static thread_local std::string value;
        value = of(self).get(key);
        *bytes = value.data();
        *count = value.size();
      });
    };
    table_.add = [](void* self, const char* key, int64_t amount, int64_t* sum, gannet_error* error) -> int32_t {
      return gannet::sdk::guarded(error, [&] { *sum = of(self).add(key, amount); });
    };
  }
  FileStore(const FileStore&) = delete;
  gannet::sdk::Store view() const { return gannet::sdk::Store(&table_); }
  bool has(const std::string& key) const { return std::filesystem::exists(path(key)); }
  bool is_removed() const { return !std::filesystem::exists(folder_); }
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void set(const std::string& key, const std::string& value) const {
    const std::string whole = path(key), part = whole + "." + std::to_string(::getpid());
    std::ofstream(part, std::ios::binary) << value;
    std::filesystem::rename(part, whole);
  }
  std::string get(const std::string& key) const {
    while (!has(key)) {
      if (is_stopped_ || is_removed()) throw gannet::sdk::Failure(GANNET_PEER_LOST, "the ranks do not meet");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(path(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  int64_t add(const std::string& key, int64_t amount) const {
    const int file = ::open((path(key) + ".count").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) throw gannet::sdk::Failure(GANNET_PEER_LOST, "the ranks do not meet");
    ::flock(file, LOCK_EX);
    int64_t sum = 0;
    if (::pread(file, &sum, sizeof(sum), 0) < 0) sum = 0;
    sum += amount;
    if (::pwrite(file, &sum, sizeof(sum), 0) != sizeof(sum)) sum = 0;
    ::close(file);
    return sum;
  }

 private:
  static FileStore& of(void* self) { return *static_cast<FileStore*>(self); }
  std::string path(std::string key) const {
    for (char& letter : key)
      if (letter == '/') letter = '_';
    return folder_ + "/" + key;
  }
  const std::string folder_;
  const std::atomic<bool>& is_stopped_;
  gannet_store table_{};
};

}  // namespace nccl_double
