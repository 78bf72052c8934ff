#include "tensor/boxes.h"

#include <algorithm>
#include <set>

#include "base/format.h"
#include "base/text.h"

namespace gannet {
namespace {

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// A box of a split, with its position in the local tensor along the split's dimension. A tensor
// that is not split is one box.
struct PlacedBox {
  Box box;
  int64_t at = 0;
};

std::vector<PlacedBox> placed_boxes(const Shape& shape, const Split& split) {
  if (split.is_whole()) return {{{Shape(shape.size(), 0), shape}, 0}};
  std::vector<PlacedBox> all;
  int64_t at = 0;
  for (const Box& box : split.boxes) {
    all.push_back({box, at});
    if (!shape.empty()) at += box.sizes[split.dim];
  }
  return all;
}

// Computes the intersection of two boxes; false if it is empty.
bool intersect(const Box& a, const Box& b, Box& common) {
  common = a;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    const int64_t first = std::max(a.offsets[d], b.offsets[d]);
    const int64_t last = std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
    if (first >= last) return false;
    common.offsets[d] = first;
    common.sizes[d] = last - first;
  }
  return true;
}

// The location, in the flattened local tensor, of a box that is inside a placed box.
struct LocalBox {
  Shape shape, strides;  // the local tensor's shape and strides
  int64_t start = 0;     // the position of the box's first element
  LocalBox(const Shape& whole, const Split& split, const PlacedBox& in, const Box& box)
      : shape(local_shape(whole, split)), strides(strides_of(shape)) {
    for (size_t d = 0; d < shape.size(); ++d)
      start += (box.offsets[d] - in.box.offsets[d] + (static_cast<int64_t>(d) == split.dim ? in.at : 0)) * strides[d];
  }
};

// Visits the rows of a box that two local tensors share. In each local tensor, a row begins at
// element start + a sum over the outer dimensions.
bool each_row(const Box& common, const LocalBox& a, const LocalRegion& of_a, const LocalBox& b, const LocalRegion& of_b,
              const std::function<bool(int64_t, int64_t, int64_t)>& copy) {
  // The inner dimensions that both local tensors hold completely form one contiguous run.
  size_t outer = common.sizes.size();
  int64_t length = 1, rows = 1;
  while (outer > 0) {
    --outer;
    length *= common.sizes[outer];
    if (common.sizes[outer] != a.shape[outer] || common.sizes[outer] != b.shape[outer]) break;
  }
  for (size_t d = 0; d < outer; ++d) rows *= common.sizes[d];
  const auto place = [&](int64_t row, const LocalBox& local) {
    int64_t at = local.start;
    for (size_t d = outer; d-- > 0; row /= common.sizes[d]) at += row % common.sizes[d] * local.strides[d];
    return at;
  };
  // Positions increase with the row, so a binary search can skip the rows that end before either
  // region begins.
  const int64_t end_a = of_a.begin + of_a.numel, end_b = of_b.begin + of_b.numel;
  int64_t first = 0, last = rows;
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    if (place(middle, a) + length <= of_a.begin || place(middle, b) + length <= of_b.begin)
      first = middle + 1;
    else
      last = middle;
  }
  for (int64_t row = first; row < rows; ++row) {
    const int64_t at_a = place(row, a), at_b = place(row, b);
    if (at_a >= end_a || at_b >= end_b) break;
    const int64_t from = std::max({int64_t{0}, of_a.begin - at_a, of_b.begin - at_b});
    const int64_t to = std::min({length, end_a - at_a, end_b - at_b});
    if (from < to && !copy(at_a + from - of_a.begin, at_b + from - of_b.begin, to - from)) return false;
  }
  return true;
}

// Cuts the elements [begin, end) of the dimensions from `dim` inwards into boxes. `box` has the
// coordinates in the outer dimensions.
void cut(const Shape& shape, const Shape& strides, size_t dim, int64_t begin, int64_t end, Box& box, std::vector<Box>& all) {
  if (begin >= end) return;
  const auto emit = [&](int64_t first, int64_t last) {  // adds a box of complete rows
    Box rows = box;
    for (size_t d = dim; d < shape.size(); ++d) rows.offsets[d] = 0, rows.sizes[d] = shape[d];
    if (dim < shape.size()) rows.offsets[dim] = first, rows.sizes[dim] = last - first;
    all.push_back(std::move(rows));
  };
  if (dim == shape.size()) return emit(0, 1);
  const int64_t stride = strides[dim];
  const auto inside = [&](int64_t row, int64_t from, int64_t to) {
    box.offsets[dim] = row, box.sizes[dim] = 1;
    cut(shape, strides, dim + 1, from, to, box, all);
  };
  int64_t first = begin / stride, last = end / stride;  // the complete rows
  if (begin % stride != 0) {
    inside(first, begin % stride, std::min(stride, end - first * stride));
    ++first;
  }
  if (first < last) emit(first, last);
  if (end % stride != 0 && first <= last) inside(last, 0, end % stride);
}

// Reports the shared elements of two boxes that overlap; "" if none do. Visits the boxes in the
// order of their offsets in the dimension that has the most distinct offsets.
std::string overlap_fault(const Shape& shape, std::vector<Box>& boxes) {
  size_t dim = 0, most = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    std::set<int64_t> offsets;
    for (const Box& box : boxes) offsets.insert(box.offsets[d]);
    if (offsets.size() > most) dim = d, most = offsets.size();
  }
  if (!shape.empty())
    std::sort(boxes.begin(), boxes.end(), [&](const Box& a, const Box& b) { return a.offsets[dim] < b.offsets[dim]; });
  std::vector<const Box*> open;  // earlier boxes that extend to the current one along `dim`
  Box common;
  for (const Box& box : boxes) {
    if (!shape.empty())
      std::erase_if(open, [&](const Box* before) { return before->offsets[dim] + before->sizes[dim] <= box.offsets[dim]; });
    for (const Box* before : open)
      if (intersect(*before, box, common)) return formatted("has elements {} twice", box_text(common));
    open.push_back(&box);
  }
  return "";
}

// Finds the first box, in the dimensions from `dim` inwards, that `boxes` leave uncovered. The
// boxes must not overlap, and must not fill the tensor.
void find_gap(const Shape& shape, size_t dim, std::vector<const Box*> boxes, Box& gap) {
  if (dim == shape.size()) return;
  int64_t inner = 1;  // number of elements in a row
  for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const auto elements = [&](const Box* box) {
    int64_t product = 1;
    for (size_t d = dim + 1; d < shape.size(); ++d) product *= box->sizes[d];
    return product;
  };
  // Between two neighboring positions where boxes begin or end, the same boxes cover every row.
  std::vector<std::pair<int64_t, int64_t>> changes;  // a position, and by how much the covered elements per row change there
  for (const Box* box : boxes) {
    changes.emplace_back(box->offsets[dim], elements(box));
    changes.emplace_back(box->offsets[dim] + box->sizes[dim], -elements(box));
  }
  changes.emplace_back(shape[dim], 0);
  std::sort(changes.begin(), changes.end());
  int64_t covered = 0, at = 0;
  for (const auto& [place, change] : changes) {
    if (place > at && covered < inner) {
      gap.offsets[dim] = at, gap.sizes[dim] = place - at;
      std::erase_if(boxes, [&](const Box* box) { return box->offsets[dim] > at || box->offsets[dim] + box->sizes[dim] <= at; });
      return find_gap(shape, dim + 1, std::move(boxes), gap);
    }
    at = place;
    covered += change;
  }
}

}  // namespace

int64_t numel_of(const Shape& shape) {
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  return numel;
}

std::string split_fault(const Shape& shape, const Split& split) {
  const size_t dims = shape.size();
  int64_t left = numel_of(shape);
  if (split.boxes.size() > 1 && (split.dim < 0 || split.dim >= static_cast<int64_t>(dims)))
    return formatted("has boxes side by side along dimension {} of {}", split.dim, dims);
  for (const Box& box : split.boxes) {
    if (box.offsets.size() != dims || box.sizes.size() != dims)
      return formatted("has a box of {} offsets and {} sizes, the tensor has {} dimensions", box.offsets.size(), box.sizes.size(),
                       dims);
    int64_t numel = 1;
    for (size_t d = 0; d < dims; ++d) {
      if (box.offsets[d] < 0 || box.sizes[d] < 1 || box.offsets[d] > shape[d] || box.sizes[d] > shape[d] - box.offsets[d])
        return formatted("has a box from {} over {} in dimension {}, which has {} elements", box.offsets[d], box.sizes[d], d,
                         shape[d]);
      numel *= box.sizes[d];
      if (static_cast<int64_t>(d) != split.dim && box.sizes[d] != split.boxes[0].sizes[d])
        return formatted("has boxes of {} and {} elements in dimension {}, side by side along dimension {}",
                         split.boxes[0].sizes[d], box.sizes[d], d, split.dim);
    }
    if (numel > left) return "has boxes with more elements than the tensor";
    left -= numel;
  }
  return "";
}

Split simplified(const Shape& shape, const Split& split) {
  Split simple{{}, split.dim};
  for (const Box& box : split.boxes) {
    if (!simple.boxes.empty()) {
      Box& last = simple.boxes.back();
      Shape next = last.offsets;
      next[split.dim] += last.sizes[split.dim];
      if (box.offsets == next) {
        last.sizes[split.dim] += box.sizes[split.dim];
        continue;
      }
    }
    simple.boxes.push_back(box);
  }
  if (simple.boxes.size() == 1) simple.dim = 0;  // the dimension has no meaning for one box
  return simple.boxes.size() == 1 && simple.boxes[0] == Box{Shape(shape.size(), 0), shape} ? Split() : simple;
}

Shape local_shape(const Shape& shape, const Split& split) {
  if (split.is_whole()) return shape;
  Shape local = split.boxes[0].sizes;
  for (size_t i = 1; i < split.boxes.size(); ++i) local[split.dim] += split.boxes[i].sizes[split.dim];
  return local;
}

bool each_overlap(const LocalRegion& a, const LocalRegion& b, const std::function<bool(int64_t, int64_t, int64_t)>& copy) {
  if (a.split == b.split) {  // the common case: whole tensors
    const int64_t from = std::max(a.begin, b.begin), to = std::min(a.begin + a.numel, b.begin + b.numel);
    return from >= to || copy(from - a.begin, from - b.begin, to - from);
  }
  Box common;
  for (const PlacedBox& in_a : placed_boxes(a.shape, a.split))
    for (const PlacedBox& in_b : placed_boxes(b.shape, b.split))
      if (intersect(in_a.box, in_b.box, common) &&
          !each_row(common, LocalBox(a.shape, a.split, in_a, common), a, LocalBox(b.shape, b.split, in_b, common), b, copy))
        return false;
  return true;
}

int64_t first_element(const Shape& shape, const Split& split, int64_t begin) {
  if (split.is_whole()) return begin;
  int64_t first = begin;
  each_overlap({shape, split, begin, 1}, {shape, Split(), 0, numel_of(shape)}, [&](int64_t, int64_t at, int64_t) {
    first = at;
    return false;
  });
  return first;
}

std::vector<Box> boxes_of(const LocalRegion& region) {
  const Shape local = local_shape(region.shape, region.split);
  std::vector<Box> runs, all;
  Box box{Shape(local.size(), 0), Shape(local.size(), 1)}, common;
  cut(local, strides_of(local), 0, region.begin, region.begin + region.numel, box, runs);
  for (const PlacedBox& placed : placed_boxes(region.shape, region.split)) {
    Box here{Shape(local.size(), 0), placed.box.sizes};  // the placed box in the local tensor
    if (!local.empty()) here.offsets[region.split.dim] = placed.at;
    for (const Box& run : runs)
      if (intersect(run, here, common)) {
        for (size_t d = 0; d < local.size(); ++d) common.offsets[d] += placed.box.offsets[d] - here.offsets[d];
        all.push_back(common);
      }
  }
  return all;
}

std::string cover_fault(const Shape& shape, std::vector<Box> boxes) {
  if (std::string fault = overlap_fault(shape, boxes); !fault.empty()) return fault;
  int64_t left = numel_of(shape);
  std::vector<const Box*> all;
  for (const Box& box : boxes) {
    left -= numel_of(box.sizes);
    all.push_back(&box);
  }
  if (left == 0) return "";
  Box gap{Shape(shape.size(), 0), shape};
  find_gap(shape, 0, std::move(all), gap);
  return formatted("misses elements {} of {}", box_text(gap), shape_text(shape));
}

std::string box_text(const Box& box) {
  std::vector<std::string> parts;
  for (size_t d = 0; d < box.sizes.size(); ++d)
    parts.push_back(formatted("{}:{}", box.offsets[d], box.offsets[d] + box.sizes[d]));
  return formatted("[{}]", join(parts, ", "));
}

}  // namespace gannet
