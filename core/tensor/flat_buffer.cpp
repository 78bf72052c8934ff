#include "tensor/flat_buffer.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/format.h"

namespace gannet {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2u << 20;
std::atomic<int64_t> alive{0};

}  // namespace

at::Tensor allocate_flat(int64_t numel, at::ScalarType dtype, at::Device device) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  if (!device.is_cpu() || numel == 0) return at::zeros({numel}, options);

  // Large buffers come from mmap, which returns equal page offsets for equal sizes. Therefore each
  // buffer starts at a different multiple of 7 pages in its mapping, so that no two of the few
  // buffers that are traversed together share their cache sets.
  static std::atomic<size_t> made{0};
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  const size_t shift = (made.fetch_add(1) % 16) * 7 * kPage;
  const size_t mapped = (bytes + shift + kHugePage - 1) / kHugePage * kHugePage;
  if (bytes < kHugePage) {
    const size_t whole = (bytes + kPage - 1) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, whole);
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0, whole);
    alive += static_cast<int64_t>(bytes);
    const auto give_back = [bytes](void* pointer) {
      std::free(pointer);
      alive -= static_cast<int64_t>(bytes);
    };
    return at::from_blob(memory, {numel}, give_back, options);
  }
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    throw Error(ErrorCode::kOutOfMemory, formatted("no memory for a buffer of {} bytes", bytes),
                "use a smaller model, more ranks, or a machine with more memory");
  madvise(base, mapped, MADV_HUGEPAGE);  // only advice: without huge pages, access is slower, not wrong
  alive += static_cast<int64_t>(bytes);
  const auto give_back = [base, mapped, bytes](void*) {
    munmap(base, mapped);
    alive -= static_cast<int64_t>(bytes);
  };
  return at::from_blob(static_cast<char*>(base) + shift, {numel}, give_back, options);
}

int64_t flat_bytes_alive() { return alive; }

}  // namespace gannet
