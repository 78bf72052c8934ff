#include "interfaces/host_group.h"

#include <gannet/error.h>

#include <cstring>
#include <utility>

#include "base/format.h"

namespace gannet {
namespace {

// Checks the Comm before the group is created, because a later failure would leave the other
// members waiting.
Comm& for_host_memory(Comm& comm) {
  if (!serves_host_memory(comm.plugin()))
    throw Error(ErrorCode::kConfig,
                formatted("comm plugin '{}' moves memory of device '{}', and the ranks' numbers and strings are in the host's",
                          comm.plugin().name(), comm.plugin().device()),
                "name one that serves the host's memory: \"comm\": {\"host\": \"gloo\"}");
  return comm;
}

}  // namespace

HostGroup::HostGroup(Comm& comm, const std::vector<uint32_t>& ranks, const std::string& name)
    : name_(name), group_(for_host_memory(comm), ranks, formatted("{}/host", name)) {}

void HostGroup::all_reduce(double* values, uint64_t count, gannet_reduce_op op) {
  if (size() > 1) group_.start(collective::all_reduce(values, count, GANNET_FLOAT64, op), nullptr).wait();
}

void HostGroup::broadcast(void* data, uint64_t bytes, uint32_t root) {
  if (size() > 1) group_.start(collective::broadcast(data, bytes, GANNET_UINT8, root), nullptr).wait();
}

void HostGroup::all_gather(const void* mine, void* all, uint64_t bytes) { start_all_gather(mine, all, bytes).wait(); }

Work HostGroup::start_all_gather(const void* mine, void* all, uint64_t bytes) {
  if (size() > 1) return group_.start(collective::all_gather(mine, all, bytes, GANNET_UINT8), nullptr);
  if (bytes > 0) std::memmove(all, mine, bytes);
  return {};
}

std::vector<std::string> HostGroup::gather_texts(const std::string& mine) {
  if (size() == 1) return {mine};
  const uint64_t length = mine.size();
  std::vector<uint64_t> lengths(size());
  all_gather(&length, lengths.data(), sizeof(length));
  uint64_t total = 0;
  for (const uint64_t one : lengths) total += one;
  std::string all(total, '\0');
  auto args = collective::all_gather(mine.data(), all.data(), length, GANNET_UINT8);
  args.recv_counts = lengths.data();
  group_.start(args, nullptr).wait();
  std::vector<std::string> texts;
  uint64_t begin = 0;
  for (const uint64_t one : lengths) {
    texts.push_back(all.substr(begin, one));
    begin += one;
  }
  return texts;
}

Work HostGroup::start_exchange(const std::vector<SentBytes>& sent, const std::vector<ReceivedBytes>& received) {
  std::vector<gannet_collective_args> batch;
  for (const auto& [to, data, bytes] : sent) batch.push_back(collective::send(data, bytes, GANNET_UINT8, to));
  for (const auto& [from, data, bytes] : received) batch.push_back(collective::receive(data, bytes, GANNET_UINT8, from));
  return group_.start_many(std::move(batch), nullptr);
}

void HostGroup::barrier() {
  if (size() > 1) group_.start(collective::barrier(), nullptr).wait();
}

}  // namespace gannet
