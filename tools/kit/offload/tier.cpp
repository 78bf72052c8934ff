#include "kit/offload/tier.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/format.h"
#include "kit/numbers.h"

namespace gannet::kit {

// An alignment of 1 allows any address, so use an odd one.
GuardedBytes::GuardedBytes(uint64_t alignment, uint64_t count, uint64_t seed)
    : buffer_(count + 2 * std::max<uint64_t>(alignment, 64), "the buffer of a read or a write"), count_(count) {
  const auto begin = reinterpret_cast<uintptr_t>(buffer_.data());
  data_ = reinterpret_cast<char*>(alignment > 1 ? (begin + alignment) / alignment * alignment : begin + 3);
  fill(seed);
}

void GuardedBytes::fill(uint64_t seed) {
  for (uint64_t i = 0; i < count_; i += sizeof(uint64_t)) {
    const uint64_t word = mixed(seed + 1, i);
    std::memcpy(data_ + i, &word, std::min<uint64_t>(sizeof(word), count_ - i));
  }
}

bool GuardedBytes::is_zero() const {
  return std::all_of(data_, data_ + count_, [](char byte) { return byte == 0; });
}

bool GuardedBytes::is_intact() const {
  const auto* first = buffer_.as<const char>();
  const auto is_nothing = [](char byte) { return byte == 0; };
  return buffer_.is_intact() && std::all_of(first, static_cast<const char*>(data_), is_nothing) &&
         std::all_of(static_cast<const char*>(data_) + count_, first + buffer_.bytes(), is_nothing);
}

void require_same(const GuardedBytes& found, const GuardedBytes& expected, const std::string& what) {
  if (!found.is_intact() || !expected.is_intact())
    throw CheckFailure("it wrote beside the buffer", text_of(place()), "no access outside of a buffer");
  const auto [a, b] = std::mismatch(found.data(), found.data() + found.size(), expected.data());
  if (a == found.data() + found.size()) return;
  throw CheckFailure(
      formatted("{}: byte {} of {} is {:#x}, not {:#x}", what, a - found.data(), found.size(),
                static_cast<unsigned>(static_cast<unsigned char>(*a)), static_cast<unsigned>(static_cast<unsigned char>(*b))),
      text_of(place()));
}

Tier::Tier(const Subject& subject, uint32_t rank, const gannet_host* host)
    : plugin_(*subject.plugin), api_(*interfaces::api_of<gannet_offload_api>(plugin_)), params_(subject.parsed()) {
  const CallOutcome outcome = call("create", plugin_, api_.create, host ? host : host_.table(), &params_.view(), rank, &self_);
  require_explained("create", outcome);
  if (outcome.status == GANNET_UNAVAILABLE) throw SkippedCheck(outcome.message);
  require_ok("create", outcome);
  const CallScope calling("alignment_bytes", 0);
  alignment_ = api_.alignment_bytes(self_);
  if (alignment_ == 0 || (alignment_ & (alignment_ - 1)) != 0 || alignment_ > uint64_t{1} << 21)
    throw CheckFailure(formatted("alignment_bytes is {}", alignment_), text_of(place()), "a power of two of at most 2 MiB");
}

Tier::~Tier() {
  if (std::uncaught_exceptions() == 0) destroy();
}

void Tier::destroy() {
  if (!self_) return;
  const CallScope calling("destroy", 0);
  api_.destroy(std::exchange(self_, nullptr));
}

CallOutcome Tier::try_allocate(uint64_t bytes, const std::string& name, void** region) {
  set_detail(formatted("{} bytes for region '{}'", bytes, name));
  const CallOutcome outcome = call("allocate", plugin_, api_.allocate, self_, bytes, name.c_str(), region);
  require_explained("allocate", outcome);
  if (outcome.ok() && !*region) throw CheckFailure("allocate returned GANNET_OK and no region", text_of(place()));
  return outcome;
}

void* Tier::allocate(uint64_t bytes, const std::string& name) {
  void* region = nullptr;
  require_ok("allocate", try_allocate(bytes, name, &region));
  return region;
}

void Tier::release(void* region) {
  const CallScope calling("release", 0, place().detail);
  api_.release(self_, region);
}

void* Tier::address(void* region) {
  const CallScope calling("address", 0, place().detail);
  return api_.address(self_, region);
}

CallOutcome Tier::try_read(void* region, uint64_t offset, void* buffer, uint64_t bytes, void** work) {
  set_detail(formatted("{} bytes at offset {}", bytes, offset));
  const CallOutcome outcome = call("read", plugin_, api_.read, self_, region, offset, buffer, bytes, work);
  require_explained("read", outcome);
  return outcome;
}

CallOutcome Tier::try_write(void* region, uint64_t offset, const void* buffer, uint64_t bytes, void** work) {
  set_detail(formatted("{} bytes at offset {}", bytes, offset));
  const CallOutcome outcome = call("write", plugin_, api_.write, self_, region, offset, buffer, bytes, work);
  require_explained("write", outcome);
  return outcome;
}

void* Tier::start_read(void* region, uint64_t offset, const GuardedBytes& into) {
  void* work = nullptr;
  require_ok("read", try_read(region, offset, into.data(), into.size(), &work));
  return work;
}

void* Tier::start_write(void* region, uint64_t offset, const GuardedBytes& from) {
  void* work = nullptr;
  require_ok("write", try_write(region, offset, from.data(), from.size(), &work));
  return work;
}

CallOutcome Tier::try_wait(void* work) {
  const CallOutcome outcome = call("work_wait", plugin_, api_.work_wait, self_, work);
  require_explained("work_wait", outcome);
  return outcome;
}

void Tier::wait(void* work) { require_ok("work_wait", try_wait(work)); }

GuardedBytes Tier::read(void* region, uint64_t offset, uint64_t count) {
  GuardedBytes found(alignment_, count, 99);
  wait(start_read(region, offset, found));
  return found;
}

void Tier::write(void* region, uint64_t offset, const GuardedBytes& from) { wait(start_write(region, offset, from)); }

std::vector<std::string> files_of(const Subject& subject) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const auto& [name, value] : subject.params.entries()) {
    std::error_code failed;
    if (!value.is_string() || !fs::is_directory(value.as_string(), failed)) continue;
    for (fs::recursive_directory_iterator entry(value.as_string(), failed), end; !failed && entry != end; entry.increment(failed))
      files.push_back(entry->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace gannet::kit
