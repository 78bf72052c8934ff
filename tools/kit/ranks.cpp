#include "kit/ranks.h"

#include <gannet/error.h>

#include <cmath>
#include <cstring>
#include <exception>
#include <gannet/sdk_reduce.hpp>
#include <thread>

#include "base/format.h"
#include "kit/check.h"
#include "kit/numbers.h"
#include "kit/place.h"

namespace gannet::kit {
namespace {
constexpr uint64_t kMark = 1;  // seed of the mark that matching calls must share
}

void SimulatedRanks::barrier() {
  std::unique_lock lock(mutex_);
  if (is_aborted_) throw AbortedRank();
  const uint64_t mine = generation_;
  if (++arrived_ == size()) {
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
    return;
  }
  changed_.wait(lock, [&] { return generation_ != mine || is_aborted_; });
  if (generation_ == mine) throw AbortedRank();
}

void SimulatedRanks::publish(uint32_t rank, const void* pointer, uint64_t mark) {
  {
    const std::lock_guard lock(mutex_);
    given_[rank] = {pointer, mark};
  }
  barrier();
  for (const PublishedPointer& other : given_)
    if (other.mark != mark)
      throw CheckFailure("the ranks call different collectives: rank 0 another one, or another count, than a later rank",
                         text_of(place()), "every rank calls begin_step and end_step's collectives in the same order");
}

void SimulatedRanks::abort() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  changed_.notify_all();
}

void SimulatedRanks::all_reduce(uint32_t rank, double* values, size_t count, gannet_reduce_op op) {
  if (size() == 1) return;
  publish(rank, values, mixed(kMark, count, op));
  std::vector<double> result(count);
  for (size_t i = 0; i < count; ++i) {
    double total = static_cast<const double*>(given_[0].pointer)[i];
    for (uint32_t r = 1; r < size(); ++r) {
      const double other = static_cast<const double*>(given_[r].pointer)[i];
      if (op == GANNET_SUM)
        total += other;
      else if (std::isnan(total) || std::isnan(other))
        total = NAN;
      else
        total = op == GANNET_MAX ? std::fmax(total, other) : std::fmin(total, other);
    }
    result[i] = total;
  }
  barrier();  // returns when all ranks have read the values
  std::memcpy(values, result.data(), count * sizeof(double));
}

void SimulatedRanks::collective(uint32_t rank, const gannet_host_collective& args) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::kArgument, what); };
  if (args.dtype == GANNET_DTYPE_NONE || args.dtype > GANNET_BOOL)
    refuse(formatted("a collective was asked for of elements of an unknown dtype, {}", args.dtype));
  if (args.operation < GANNET_HOST_ALL_REDUCE || args.operation > GANNET_HOST_ALL_TO_ALL)
    refuse(formatted("a collective was asked for that this host does not know, {}", args.operation));
  const bool reduces = args.operation == GANNET_HOST_ALL_REDUCE || args.operation == GANNET_HOST_REDUCE_SCATTER;
  if (reduces && (args.reduce_op < GANNET_SUM || args.reduce_op > GANNET_AVERAGE))
    refuse(formatted("a collective was asked for with an unknown operation, {}", args.reduce_op));
  if (args.root >= size())
    refuse(formatted("a collective was asked for with root {}, and there are {} ranks", args.root, size()));
  if (args.count > 0 && (!args.recv || (!args.send && args.operation != GANNET_HOST_BROADCAST)))
    refuse("a collective was asked for with a null buffer");
  const uint64_t part = args.count * sdk::bytes_of(args.dtype);
  publish(rank, args.operation == GANNET_HOST_BROADCAST ? args.recv : args.send,
          mixed(kMark, args.count, args.operation * 1000 + args.dtype * 10 + (reduces ? args.reduce_op : args.root)));
  const auto from = [&](uint32_t r, uint64_t offset) { return static_cast<const char*>(given_[r].pointer) + offset; };
  const double factor = reduces && args.reduce_op == GANNET_AVERAGE ? 1.0 / size() : 1.0;
  std::vector<char> result(args.operation == GANNET_HOST_ALL_GATHER || args.operation == GANNET_HOST_ALL_TO_ALL ? part * size()
                                                                                                                : part);
  std::vector<const void*> parts;
  switch (args.operation) {
    case GANNET_HOST_ALL_REDUCE:
    case GANNET_HOST_REDUCE_SCATTER:
      for (uint32_t r = 0; r < size(); ++r)
        parts.push_back(from(r, args.operation == GANNET_HOST_REDUCE_SCATTER ? rank * part : 0));
      sdk::reduce_parts(result.data(), parts, args.count, args.dtype, args.reduce_op, sdk::is_16_bit_float(args.dtype), factor);
      break;
    case GANNET_HOST_BROADCAST:
      std::memcpy(result.data(), from(args.root, 0), part);
      break;
    case GANNET_HOST_ALL_GATHER:
      for (uint32_t r = 0; r < size(); ++r) std::memcpy(result.data() + r * part, from(r, 0), part);
      break;
    default:
      for (uint32_t r = 0; r < size(); ++r) std::memcpy(result.data() + r * part, from(r, rank * part), part);
  }
  barrier();
  std::memcpy(args.recv, result.data(), result.size());
}

void run_ranks(uint32_t size, const std::function<void(SimulatedRanks&, uint32_t)>& body) {
  SimulatedRanks ranks(size);
  if (size == 1) return body(ranks, 0);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  const CheckPlace given = place();
  for (uint32_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      use_place(rank + 1);
      place() = given;
      try {
        body(ranks, rank);
      } catch (const SimulatedRanks::AbortedRank&) {  // another rank reports the reason
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        ranks.abort();
      }
    });
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace gannet::kit
