#include "kit/relay_host.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <gannet/sdk_errors.hpp>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/format.h"
#include "kit/call_memory.h"
#include "kit/check.h"
#include "kit/memory.h"
#include "kit/place.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"

namespace gannet::kit {
namespace {

std::atomic<uint64_t> refused{0};

struct VariedHost {
  gannet_host table{};  // first: the plugin passes this object's address as `context`
  const gannet_host* base = nullptr;
  RelayOptions options;
  std::atomic<int64_t> allocations{0};
  std::mutex mutex;
  std::map<void*, Buffer> given;  // with guards_allocations
  Buffer reshaped;                // the table that the plugin gets, if its length differs from `table`'s
};

std::mutex& hosts_mutex = *new std::mutex;
std::set<void*>& hosts = *new std::set<void*>;

// Returns null, and keeps a fault, if `context` does not belong to a table.
VariedHost* varied(void* context, const char* service) {
  {
    const std::lock_guard lock(hosts_mutex);
    if (hosts.count(context)) return static_cast<VariedHost*>(context);
  }
  keep_fault(formatted("it called gannet_host::{} with another context than the table's", service));
  return nullptr;
}

uint32_t thread_count(void* context) {
  VariedHost* const host = varied(context, "thread_count");
  if (!host) return 1;
  return host->options.threads > 0 ? host->options.threads : host->base->thread_count(host->base->context);
}

int32_t run_chunks(const VariedHost& host, uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument) {
  const uint64_t step = std::max<uint64_t>(grain, 1);
  std::vector<std::pair<uint64_t, uint64_t>> chunks;
  const uint64_t threads = std::max<uint32_t>(host.options.threads, 1);
  // One chunk per thread or, if reversed, one per grain, at most 1000.
  const uint64_t grains = (end - begin + step - 1) / step;
  const uint64_t wanted = host.options.reverses_chunks ? std::min<uint64_t>(grains, 1000) : std::min(grains, threads);
  const uint64_t length = wanted > 0 ? (grains + wanted - 1) / wanted * step : step;
  for (uint64_t at = begin; at < end; at += length) chunks.emplace_back(at, std::min(end, at + length));
  if (host.options.reverses_chunks) std::reverse(chunks.begin(), chunks.end());
  std::atomic<size_t> next{0};
  std::atomic<int32_t> status{GANNET_OK};
  const auto work = [&] {
    for (size_t i; (i = next++) < chunks.size();) {
      const int32_t found = body(argument, chunks[i].first, chunks[i].second);
      int32_t expected = GANNET_OK;
      if (found != GANNET_OK) status.compare_exchange_strong(expected, found);
    }
  };
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < std::min<uint64_t>(threads, chunks.size()); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return status;
}

int32_t parallel_for(void* context, uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument) {
  VariedHost* const host = varied(context, "parallel_for");
  if (!host) return GANNET_INTERNAL;
  if (host->options.threads > 0 || host->options.reverses_chunks) return run_chunks(*host, begin, end, grain, body, argument);
  return host->base->parallel_for(host->base->context, begin, end, grain, body, argument);
}

void* allocate(void* context, uint64_t bytes, uint64_t alignment) {
  VariedHost* const host = varied(context, "allocate");
  if (!host) return nullptr;
  if (host->options.allocations >= 0 && host->allocations++ >= host->options.allocations) {
    ++refused;
    return nullptr;
  }
  if (!host->options.guards_allocations || alignment > 4096 || bytes > uint64_t{1} << 30)
    return host->base->allocate(host->base->context, bytes, alignment);
  Buffer buffer(std::max<uint64_t>(bytes, 1), formatted("memory of gannet_host::allocate ({} bytes)", bytes), true,
                std::max<uint64_t>(alignment, 64));
  std::memset(buffer.data(), 0xa7, bytes);  // the contents are unspecified
  void* const memory = buffer.data();
  const std::lock_guard lock(host->mutex);
  host->given.emplace(memory, std::move(buffer));
  return memory;
}

void deallocate(void* context, void* memory) {
  VariedHost* const host = varied(context, "deallocate");
  if (!host || !memory) return;
  const std::lock_guard lock(host->mutex);
  const auto found = host->given.find(memory);
  if (found == host->given.end()) {
    if (host->options.guards_allocations)
      return keep_fault("it gave memory to gannet_host::deallocate that allocate had not given");
    return host->base->deallocate(host->base->context, memory);
  }
  if (std::string where; !found->second.is_intact(&where))
    keep_fault(formatted("it wrote to memory of gannet_host::allocate, {}", where));
  host->given.erase(found);
}

uint32_t rank(void* context, uint32_t group) {
  VariedHost* const host = varied(context, "rank");
  if (group != GANNET_GROUP_DATA) keep_fault(formatted("it called gannet_host::rank for an unknown group, {}", group));
  return host ? host->base->rank(host->base->context, group) : 0;
}

uint32_t world_size(void* context, uint32_t group) {
  VariedHost* const host = varied(context, "world_size");
  if (group != GANNET_GROUP_DATA) keep_fault(formatted("it called gannet_host::world_size for an unknown group, {}", group));
  return host ? host->base->world_size(host->base->context, group) : 1;
}

void log(void* context, int32_t level, const char* message) {
  VariedHost* const host = varied(context, "log");
  if (level < GANNET_LOG_DEBUG || level > GANNET_LOG_ERROR)
    keep_fault(formatted("it called gannet_host::log with {}, which is not a gannet_log_level", level));
  if (host) host->base->log(host->base->context, level, message);
}

int32_t collective(void* context, const gannet_host_collective* args, gannet_error* error) {
  VariedHost* const host = varied(context, "collective");
  return host ? host->base->collective(host->base->context, args, error) : GANNET_INTERNAL;
}

int32_t metric(void* context, const char* name, double value, gannet_error* error) {
  VariedHost* const host = varied(context, "metric");
  if (!host) return GANNET_INTERNAL;
  char text[512] = "";
  gannet_error own{sizeof(gannet_error), 0, sizeof(text), text};
  const int32_t status = host->base->metric(host->base->context, name, value, &own);
  if (status == GANNET_OK) return status;
  // Kept, since a plugin may ignore the status.
  if (host->options.watches_metrics) keep_fault(formatted("gannet_host::metric refused its call: {}", text));
  return sdk::report(error, status, text);
}

}  // namespace

uint64_t refused_allocations() { return refused; }

const gannet_host* varied_host(const gannet_host* host) {
  const RelayOptions& options = relay_options();
  if (!options.changes_host() && !options.watches_process) return host;
  auto& made = *new VariedHost;
  made.base = host;
  made.options = options;
  made.table = *host;
  made.table.context = &made;
  made.table.log = log;
  made.table.parallel_for = parallel_for;
  made.table.thread_count = thread_count;
  made.table.allocate = allocate;
  made.table.deallocate = deallocate;
  made.table.rank = rank;
  made.table.world_size = world_size;
  made.table.collective = collective;
  made.table.metric = metric;
  if (options.minor < GANNET_ABI_MINOR) made.table.abi_minor = static_cast<uint16_t>(options.minor);
  if (options.appended_bytes > 0) made.table.abi_minor = GANNET_ABI_MINOR + 1;
  {
    const std::lock_guard lock(hosts_mutex);
    hosts.insert(&made);
  }
  const size_t known = bytes_in(host, options.minor), bytes = known + options.appended_bytes;
  if (bytes == sizeof(gannet_host)) return &made.table;
  // Copies the table to separate memory that ends where the table does.
  made.reshaped = Buffer(bytes, "gannet_host", true, alignof(gannet_host));
  std::memset(made.reshaped.data(), 0x5a, bytes);
  made.table.struct_size = static_cast<uint32_t>(bytes);
  std::memcpy(made.reshaped.data(), &made.table, known);
  return made.reshaped.as<gannet_host>();
}

}  // namespace gannet::kit
