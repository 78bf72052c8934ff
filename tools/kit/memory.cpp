#include "kit/memory.h"

#include <gannet/error.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "kit/place.h"

namespace gannet::kit {
namespace {

constexpr unsigned char kCanary = 0xc5;

size_t page_size() {
  static const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// The signal handler's record of all buffers, in a table that never moves. Entries are reused; a
// handler that reads during a write sees, at worst, an old name.
struct BufferEntry {
  char* memory;  // null: free
  size_t length;
  char* data;
  size_t bytes;
  char name[96];
};
constexpr size_t kMost = 16384;
BufferEntry entries[kMost];
size_t used = 0;
std::mutex& mutex = *new std::mutex;

void add_entry(char* memory, size_t length, char* data, size_t bytes, const std::string& name) {
  const std::lock_guard lock(mutex);
  size_t i = 0;
  while (i < used && entries[i].memory) ++i;
  if (i == kMost) return;
  BufferEntry& entry = entries[i];
  entry.length = length;
  entry.data = data;
  entry.bytes = bytes;
  std::snprintf(entry.name, sizeof(entry.name), "%s", name.c_str());
  entry.memory = memory;
  used = std::max(used, i + 1);
}

void remove_entry(const char* memory) {
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < used; ++i)
    if (entries[i].memory == memory) entries[i].memory = nullptr;
}

const char* verb_of(const void* context) {
#ifdef __x86_64__
  return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? "wrote to" : "read";
#else
  (void)context;
  return "read or wrote to";
#endif
}

// Runs on its own stack: a plugin may have used up the thread's.
void handle(int, siginfo_t* info, void* context) {
  const auto* address = static_cast<const char*>(info->si_addr);
  CheckPlaces& all = places();
  CheckPlace& here = place();
  all.faulting = static_cast<int32_t>(place_number());
  for (size_t i = 0; i < used; ++i) {
    const BufferEntry& entry = entries[i];
    if (!entry.memory || address < entry.memory || address >= entry.memory + entry.length) continue;
    if (address >= entry.data && address < entry.data + entry.bytes)
      std::snprintf(here.fault, sizeof(here.fault), "it %s %s, byte %zu", verb_of(context), entry.name,
                    static_cast<size_t>(address - entry.data));
    else if (address < entry.data)
      std::snprintf(here.fault, sizeof(here.fault), "it %s memory %zu bytes before %s", verb_of(context),
                    static_cast<size_t>(entry.data - address), entry.name);
    else
      std::snprintf(here.fault, sizeof(here.fault), "it %s memory %zu bytes after the end of %s", verb_of(context),
                    static_cast<size_t>(address - (entry.data + entry.bytes)), entry.name);
    return;  // the access is then repeated with the default action
  }
}

}  // namespace

Buffer::Buffer(size_t bytes, const std::string& name, bool tight, size_t alignment) : bytes_(bytes) {
  const size_t page = page_size(), rounded = (bytes + alignment - 1) / alignment * alignment;
  const size_t used_bytes = rounded + 128 + alignment;  // at least 64 bytes on either side
  const size_t inner = (used_bytes + page - 1) / page * page;
  length_ = inner + 2 * page;
  void* memory = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "no memory for a buffer of the check");
  memory_ = static_cast<char*>(memory);
  std::memset(memory_ + page, kCanary, inner);
  data_ = memory_ + page + (tight ? inner - rounded : std::max<size_t>(alignment, 64));
  std::memset(data_, 0, bytes);
  ::mprotect(memory_, page, PROT_NONE);
  ::mprotect(memory_ + page + inner, page, PROT_NONE);
  add_entry(memory_, length_, static_cast<char*>(data_), bytes, name);
}

Buffer::~Buffer() {
  if (!memory_) return;
  remove_entry(memory_);
  ::munmap(memory_, length_);
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(length_, other.length_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

bool Buffer::is_intact(std::string* where) const {
  if (!memory_) return true;
  const auto* first = reinterpret_cast<const unsigned char*>(memory_) + page_size();
  const auto* last = reinterpret_cast<const unsigned char*>(memory_) + length_ - page_size();
  const auto* data = static_cast<const unsigned char*>(data_);
  const auto differs = [](unsigned char byte) { return byte != kCanary; };
  const auto behind = std::find_if(data + bytes_, last, differs);
  if (behind != last) {
    if (where) *where = std::to_string(behind - (data + bytes_)) + " bytes after its end";
    return false;
  }
  const auto before = std::find_if(first, data, differs);
  if (before == data) return true;
  if (where) *where = std::to_string(data - before) + " bytes before its beginning";
  return false;
}

void Buffer::set_writable(bool on) const {
  if (memory_) ::mprotect(memory_ + page_size(), length_ - 2 * page_size(), on ? PROT_READ | PROT_WRITE : PROT_READ);
}

void Buffer::forbid() const {
  if (memory_) ::mprotect(memory_ + page_size(), length_ - 2 * page_size(), PROT_NONE);
}

void report_bad_accesses() {
  stack_t stack{};
  stack.ss_size = 64 << 10;
  stack.ss_sp = new char[stack.ss_size];
  ::sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGBUS}) ::sigaction(signal, &action, nullptr);
}

}  // namespace gannet::kit
