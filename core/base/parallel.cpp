#include "base/parallel.h"

#include <algorithm>
#include <atomic>

#ifdef GANNET_STD_THREADS
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace gannet {
namespace {

// Splits [begin, end) into `count` nearly equal chunks, each a multiple of `grain` except the last.
struct Chunks {
  Chunks(uint64_t begin, uint64_t end, uint64_t grain, uint64_t threads) : begin_(begin), end_(end) {
    const uint64_t grains = (end - begin + grain - 1) / grain;
    count = std::min<uint64_t>(threads, grains);
    step_ = (grains + count - 1) / count * grain;
    count = (end - begin + step_ - 1) / step_;
  }
  uint64_t first(uint64_t index) const { return begin_ + index * step_; }
  uint64_t last(uint64_t index) const { return std::min(end_, begin_ + (index + 1) * step_); }
  uint64_t count = 0;

 private:
  uint64_t begin_, end_, step_ = 0;
};

}  // namespace

#ifdef GANNET_STD_THREADS

uint32_t parallel_thread_count() {
  // The number is read only once, because the library opens and reads a file each time.
  static const uint32_t count = std::max(1u, std::min(4u, std::thread::hardware_concurrency()));
  return count;
}

int32_t parallel_for(uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument) {
  if (begin >= end) return GANNET_OK;
  const Chunks chunks(begin, end, std::max<uint64_t>(grain, 1), parallel_thread_count());
  std::atomic<int32_t> status{GANNET_OK};
  auto run = [&](uint64_t index) {
    const int32_t code = body(argument, chunks.first(index), chunks.last(index));
    int32_t expected = GANNET_OK;
    if (code != GANNET_OK) status.compare_exchange_strong(expected, code);
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i < chunks.count; ++i) threads.emplace_back(run, i);
  run(0);
  for (auto& thread : threads) thread.join();
  return status;
}

#else

// LibTorch uses OpenMP's thread pool as well, so this is the number that at::set_num_threads() has
// set.
uint32_t parallel_thread_count() { return static_cast<uint32_t>(std::max(1, omp_get_max_threads())); }

int32_t parallel_for(uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument) {
  if (begin >= end) return GANNET_OK;
  const Chunks chunks(begin, end, std::max<uint64_t>(grain, 1), parallel_thread_count());
  if (chunks.count == 1) return body(argument, begin, end);
  std::atomic<int32_t> status{GANNET_OK};
#pragma omp parallel for num_threads(static_cast<int>(chunks.count)) schedule(static, 1)
  for (int64_t i = 0; i < static_cast<int64_t>(chunks.count); ++i) {
    const int32_t code = body(argument, chunks.first(i), chunks.last(i));
    int32_t expected = GANNET_OK;
    if (code != GANNET_OK) status.compare_exchange_strong(expected, code);
  }
  return status;
}

#endif

}  // namespace gannet
