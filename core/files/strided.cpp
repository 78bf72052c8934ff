#include "files/strided.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <vector>

namespace gannet::files {
namespace {

constexpr int64_t kBufferBytes = 64 << 20;

// Elements are moved but never interpreted, so any type of the same size that can be copied with
// strides will do.
c10::ScalarType carrier(size_t bytes) {
  switch (bytes) {
    case 1:
      return c10::ScalarType::Byte;
    case 2:
      return c10::ScalarType::Short;
    case 4:
      return c10::ScalarType::Int;
    case 8:
      return c10::ScalarType::Long;
    default:
      return c10::ScalarType::ComplexDouble;
  }
}

// A rectangular part of the tensor: a size and a stride per dimension.
struct StridedBox {
  int64_t offset;  // in elements
  std::vector<int64_t> sizes, strides;
};

class StridedReader {
 public:
  StridedReader(c10::ScalarType dtype, const ReadStorage& read)
      : element_(c10::elementSize(dtype)), type_(carrier(element_)), read_(read) {}

  void all(const StoredTensor& tensor, int64_t begin, int64_t end, char* to) {
    if (is_packed(tensor.sizes, tensor.strides))
      return read_(to, (end - begin) * element_, (tensor.storage_offset + begin) * element_);
    range(tensor, 0, tensor.storage_offset, begin, end, to);
  }

 private:
  // Copies elements [begin, end) of the dimensions from `dimension` inwards, whose element 0 is at
  // `offset`, to `to`: part of the first row, whole rows, and part of the last row.
  void range(const StoredTensor& tensor, size_t dimension, int64_t offset, int64_t begin, int64_t end, char* to) {
    if (begin == end) return;
    if (dimension == tensor.sizes.size()) return read_(to, element_, offset * element_);
    int64_t row = 1;
    for (size_t i = dimension + 1; i < tensor.sizes.size(); ++i) row *= tensor.sizes[i];
    const int64_t stride = tensor.strides[dimension];
    int64_t first = begin / row;
    const int64_t last = end / row;
    if (first == last) return range(tensor, dimension + 1, offset + first * stride, begin % row, end % row, to);
    if (begin % row != 0) {
      range(tensor, dimension + 1, offset + first * stride, begin % row, row, to);
      to += (row - begin % row) * element_;
      ++first;
    }
    if (first < last) {
      StridedBox box{offset + first * stride,
                     {tensor.sizes.begin() + dimension, tensor.sizes.end()},
                     {tensor.strides.begin() + dimension, tensor.strides.end()}};
      box.sizes[0] = last - first;
      whole(std::move(box), to);
      to += (last - first) * row * element_;
    }
    range(tensor, dimension + 1, offset + last * stride, 0, end % row, to);
  }

  static bool is_packed(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    int64_t expected = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      if (sizes[i] != 1 && strides[i] != expected) return false;
      expected *= sizes[i];
    }
    return true;
  }

  void whole(StridedBox box, char* to) {
    int64_t numel = 1;
    for (const int64_t size : box.sizes) numel *= size;
    if (is_packed(box.sizes, box.strides)) return read_(to, numel * element_, box.offset * element_);
    const at::Tensor into = at::from_blob(to, box.sizes, at::TensorOptions().dtype(type_));
    scatter(std::move(box), into);
  }

  // Reads the span of the storage that the box covers if it fits the buffer; otherwise halves the
  // box along its widest stride.
  void scatter(StridedBox box, at::Tensor into) {
    // The number of elements from the first to the last that the box touches. Strides are never
    // negative, because the unpickler refuses those.
    int64_t span = 1;
    size_t widest = 0;
    for (size_t i = 0; i < box.sizes.size(); ++i) {
      const int64_t reach = (box.sizes[i] - 1) * box.strides[i];
      span += reach;
      if (box.sizes[i] > 1 && (box.sizes[widest] == 1 || box.strides[i] > box.strides[widest])) widest = i;
    }
    if (span * element_ <= kBufferBytes) {
      const at::Tensor buffer = at::empty({span}, type_);
      read_(static_cast<char*>(buffer.mutable_data_ptr()), span * element_, box.offset * element_);
      into.copy_(buffer.as_strided(box.sizes, box.strides));
      return;
    }
    const int64_t half = box.sizes[widest] / 2, rest = box.sizes[widest] - half;
    StridedBox first = box;
    first.sizes[widest] = half;
    scatter(std::move(first), into.narrow(widest, 0, half));
    box.offset += half * box.strides[widest];
    box.sizes[widest] = rest;
    scatter(std::move(box), into.narrow(widest, half, rest));
  }

  // Bytes per element, and the type that carries elements of that size.
  int64_t element_;
  c10::ScalarType type_;
  const ReadStorage& read_;
};

}  // namespace

void read_elements(const StoredTensor& tensor, int64_t begin, const at::Tensor& into, const ReadStorage& read) {
  StridedReader(tensor.dtype, read).all(tensor, begin, begin + into.numel(), static_cast<char*>(into.mutable_data_ptr()));
}

}  // namespace gannet::files
