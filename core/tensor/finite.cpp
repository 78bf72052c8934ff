#include "tensor/finite.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/sum.h>

namespace gannet {
namespace {

// A number is NaN or infinite if all bits of its exponent are set. The loop works on integers, so
// that the compiler vectorizes it.
template <class Word>
uint64_t count(const void* data, uint64_t bytes, Word exponent) {
  const auto* words = static_cast<const Word*>(data);
  constexpr uint64_t kBlock = 4096;  // small enough for a block's count to fit in a Word
  uint64_t found = 0;
  const uint64_t numel = bytes / sizeof(Word);
  for (uint64_t begin = 0; begin < numel; begin += kBlock) {
    const uint64_t end = begin + kBlock < numel ? begin + kBlock : numel;
    Word in_block = 0;
    for (uint64_t i = begin; i < end; ++i) in_block = static_cast<Word>(in_block + ((words[i] & exponent) == exponent ? 1 : 0));
    found += in_block;
  }
  return found;
}

}  // namespace

uint64_t count_not_finite(const void* data, uint64_t bytes, c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return count<uint32_t>(data, bytes, 0x7f800000u);
    case c10::ScalarType::Double:
      return count<uint64_t>(data, bytes, 0x7ff0000000000000u);
    case c10::ScalarType::Half:
      return count<uint16_t>(data, bytes, 0x7c00u);
    case c10::ScalarType::BFloat16:
      return count<uint16_t>(data, bytes, 0x7f80u);
    default:
      return 0;
  }
}

uint64_t count_not_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.is_meta()) return 0;
  if (tensor.is_cpu() && tensor.is_contiguous())
    return count_not_finite(tensor.const_data_ptr(), tensor.nbytes(), tensor.scalar_type());
  return static_cast<uint64_t>(tensor.numel() - at::isfinite(tensor).sum().item<int64_t>());
}

}  // namespace gannet
