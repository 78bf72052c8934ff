#include "kit/comm/store.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <gannet/sdk_errors.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/format.h"

namespace gannet::kit {

// Consecutive records; the last one with a key is valid. A record exists once `used` includes it,
// so a rank that is killed while writing leaves none.
struct SharedStore::Memory {
  static constexpr size_t kBytes = size_t{16} << 20;
  struct Record {
    uint64_t key_bytes, value_bytes;
  };
  pthread_mutex_t mutex;
  std::atomic<int32_t> is_ready;
  uint64_t used;
  char records[];

  static constexpr size_t kRoom = kBytes - 4096;
};

// The functions of the table.
struct StoreFunctions {
  using Memory = SharedStore::Memory;
  using Clock = std::chrono::steady_clock;

  class Lock {
   public:
    explicit Lock(Memory& memory) : memory_(memory) {
      // The rank that held the lock was killed; the records that it left are complete.
      if (::pthread_mutex_lock(&memory_.mutex) == EOWNERDEAD) ::pthread_mutex_consistent(&memory_.mutex);
    }
    ~Lock() { ::pthread_mutex_unlock(&memory_.mutex); }
    Lock(const Lock&) = delete;

   private:
    Memory& memory_;
  };

  static bool find(const Memory& memory, std::string_view key, std::string_view& value) {
    bool is_found = false;
    for (uint64_t at = 0; at < memory.used;) {
      Memory::Record record;
      std::memcpy(&record, memory.records + at, sizeof(record));
      const char* bytes = memory.records + at + sizeof(record);
      if (std::string_view(bytes, record.key_bytes) == key) {
        value = {bytes + record.key_bytes, record.value_bytes};
        is_found = true;
      }
      at += sizeof(record) + record.key_bytes + record.value_bytes;
    }
    return is_found;
  }

  static void put(Memory& memory, std::string_view key, std::string_view value) {
    const Memory::Record record{key.size(), value.size()};
    const uint64_t bytes = sizeof(record) + key.size() + value.size();
    if (bytes > Memory::kRoom - memory.used)
      throw sdk::Failure(GANNET_OUT_OF_MEMORY,
                         formatted("the store of the check is full: key '{}' has {} bytes", key, value.size()));
    char* to = memory.records + memory.used;
    std::memcpy(to, &record, sizeof(record));
    std::memcpy(to + sizeof(record), key.data(), key.size());
    std::memcpy(to + sizeof(record) + key.size(), value.data(), value.size());
    memory.used += bytes;
  }

  // Copies the value, so that writers do not wait for the reader.
  static std::string wait_for(Memory& memory, const char* key, std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    for (;;) {
      {
        const Lock lock(memory);
        std::string_view value;
        if (find(memory, key, value)) return std::string(value);
      }
      if (Clock::now() > until)
        throw sdk::Failure(GANNET_TIMEOUT, formatted("no rank has set the key '{}' of the store in {} ms", key, limit.count()));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  static SharedStore& of(void* context) { return *static_cast<SharedStore*>(context); }

  static int32_t set(void* context, const char* key, const void* bytes, uint64_t count, gannet_error* error) {
    return sdk::guarded(error, [&] {
      Memory& memory = *of(context).memory_;
      const Lock lock(memory);
      put(memory, key, {static_cast<const char*>(bytes), count});
    });
  }
  static int32_t get(void* context, const char* key, const void** bytes, uint64_t* count, gannet_error* error) {
    return sdk::guarded(error, [&] {
      thread_local std::string kept;  // valid until the next call on this thread
      kept = wait_for(*of(context).memory_, key, of(context).timeout_);
      *bytes = kept.data();
      *count = kept.size();
    });
  }
  static int32_t add(void* context, const char* key, int64_t amount, int64_t* result, gannet_error* error) {
    return sdk::guarded(error, [&] {
      Memory& memory = *of(context).memory_;
      const Lock lock(memory);
      std::string_view value;
      const int64_t before = find(memory, key, value) ? std::stoll(std::string(value)) : 0;
      put(memory, key, std::to_string(before + amount));
      *result = before + amount;
    });
  }
  static int32_t wait(void* context, const char* key, uint64_t timeout_ms, gannet_error* error) {
    return sdk::guarded(error, [&] { wait_for(*of(context).memory_, key, std::chrono::milliseconds(timeout_ms)); });
  }
  static int32_t check(void* context, const char* key, int32_t* exists, gannet_error* error) {
    return sdk::guarded(error, [&] {
      Memory& memory = *of(context).memory_;
      const Lock lock(memory);
      std::string_view value;
      *exists = find(memory, key, value);
    });
  }
};

namespace {

// A file that is there already is another rank's, which prepares it.
void* map_store(const std::string& file, size_t bytes, bool& is_first) {
  int opened = -1;
  if (!file.empty()) {
    opened = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    is_first = opened >= 0;
    if (!is_first) opened = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    if (opened < 0 || ::ftruncate(opened, static_cast<off_t>(bytes)) != 0)
      throw Error(ErrorCode::kUnavailable, formatted("the ranks' store '{}' cannot be opened: {}", file, std::strerror(errno)),
                  "name a file of /dev/shm with --launched");
  }
  const int kind = opened < 0 ? MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, opened, 0);
  if (opened >= 0) ::close(opened);
  if (shared == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "no memory to share between the ranks of a check");
  return shared;
}

}  // namespace

SharedStore::SharedStore(std::chrono::milliseconds timeout, const std::string& file) : timeout_(timeout) {
  bool is_first = true;
  memory_ = static_cast<Memory*>(map_store(file, Memory::kBytes, is_first));
  if (is_first) {
    pthread_mutexattr_t kind;
    ::pthread_mutexattr_init(&kind);
    ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&memory_->mutex, &kind);
    ::pthread_mutexattr_destroy(&kind);
    memory_->is_ready = 1;
  }
  while (memory_->is_ready == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  table_.struct_size = sizeof(table_);
  table_.context = this;
  table_.set = StoreFunctions::set;
  table_.get = StoreFunctions::get;
  table_.add = StoreFunctions::add;
  table_.wait = StoreFunctions::wait;
  table_.check = StoreFunctions::check;
}

SharedStore::~SharedStore() { ::munmap(memory_, Memory::kBytes); }

}  // namespace gannet::kit
