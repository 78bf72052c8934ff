// Boxes of tensors against a reference that lists every element.
#include "tensor/boxes.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

namespace gannet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int64_t from(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }

  Shape shape() {
    Shape shape(from(0, 4));
    for (int64_t& size : shape) size = from(1, 5);
    return shape;
  }
  // Boxes of equal sizes in all dimensions except one, anywhere, possibly overlapping.
  Split split(const Shape& shape) {
    Split split;
    if (shape.empty() || from(0, 4) == 0) return split;
    split.dim = from(0, static_cast<int64_t>(shape.size()) - 1);
    Shape sizes(shape.size());
    for (size_t d = 0; d < shape.size(); ++d) sizes[d] = from(1, shape[d]);
    for (int64_t i = 0, count = from(1, 3); i < count; ++i) {
      sizes[split.dim] = from(1, shape[split.dim]);
      Box box{Shape(shape.size()), sizes};
      for (size_t d = 0; d < shape.size(); ++d) box.offsets[d] = from(0, shape[d] - sizes[d]);
      split.boxes.push_back(box);
      if (!split_fault(shape, split).empty()) split.boxes.pop_back();  // more elements than the tensor
    }
    return split;
  }
  std::mt19937& random() { return random_; }

 private:
  std::mt19937 random_;
};

// Each coordinate of a tensor, in order.
void each_coordinate(const Shape& shape, const std::function<void(const Shape&)>& body) {
  Shape at(shape.size(), 0);
  for (int64_t i = 0, n = numel_of(shape); i < n; ++i) {
    body(at);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

int64_t flat(const Shape& shape, const Shape& at) {
  int64_t index = 0;
  for (size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + at[d];
  return index;
}

// The place in the whole tensor of every element of the local one.
std::vector<int64_t> elements_of(const Shape& shape, const Split& split) {
  std::vector<int64_t> places;
  each_coordinate(local_shape(shape, split), [&](const Shape& local) {
    Shape at = local;
    if (!split.is_whole()) {
      size_t box = 0;
      while (at[split.dim] >= split.boxes[box].sizes[split.dim]) at[split.dim] -= split.boxes[box++].sizes[split.dim];
      for (size_t d = 0; d < at.size(); ++d) at[d] += split.boxes[box].offsets[d];
    }
    places.push_back(flat(shape, at));
  });
  return places;
}

TEST(Boxes, overlaps_of_two_regions_are_those_of_their_elements) {
  Draw draw(1);
  size_t stretches = 0;
  for (int round = 0; round < 20'000; ++round) {
    const Shape shape = draw.shape();
    const Split one = draw.split(shape), other = draw.split(shape);
    const auto a = elements_of(shape, one), b = elements_of(shape, other);
    const auto size_a = static_cast<int64_t>(a.size()), size_b = static_cast<int64_t>(b.size());
    LocalRegion of_a{shape, one, 0, size_a}, of_b{shape, other, 0, size_b};
    for (LocalRegion* region : {&of_a, &of_b}) {
      if (draw.from(0, 1) == 0) continue;  // all of it
      region->begin = draw.from(0, region->numel);
      region->numel = draw.from(0, region->numel - region->begin);
    }
    std::set<std::pair<int64_t, int64_t>> expected, found;
    for (int64_t i = 0; i < of_a.numel; ++i)
      for (int64_t j = 0; j < of_b.numel; ++j)
        if (a[of_a.begin + i] == b[of_b.begin + j]) expected.emplace(i, j);
    each_overlap(of_a, of_b, [&](int64_t at_a, int64_t at_b, int64_t count) {
      ++stretches;
      EXPECT_GT(count, 0);
      for (int64_t i = 0; i < count; ++i) found.emplace(at_a + i, at_b + i);
      return true;
    });
    // Boxes of one split may overlap here; equal splits then meet each in itself.
    if (!(one == other)) ASSERT_EQ(found, expected) << round;
    if (of_a.numel > 0) ASSERT_EQ(first_element(shape, one, of_a.begin), a[of_a.begin]);
  }
  EXPECT_GT(stretches, 10'000u);
}

TEST(Boxes, a_region_is_a_few_boxes_that_have_its_elements_once) {
  Draw draw(2);
  for (int round = 0; round < 20'000; ++round) {
    const Shape shape = draw.shape();
    const Split split = draw.split(shape);
    const auto places = elements_of(shape, split);
    const auto size = static_cast<int64_t>(places.size());
    LocalRegion region{shape, split, draw.from(0, size), 0};
    region.numel = draw.from(0, size - region.begin);
    std::vector<int64_t> expected(places.begin() + region.begin, places.begin() + region.begin + region.numel), found;
    const auto boxes = boxes_of(region);
    for (const Box& box : boxes)
      each_coordinate(box.sizes, [&](Shape at) {
        for (size_t d = 0; d < at.size(); ++d) at[d] += box.offsets[d];
        found.push_back(flat(shape, at));
      });
    std::sort(expected.begin(), expected.end());
    std::sort(found.begin(), found.end());
    ASSERT_EQ(found, expected);
    ASSERT_LE(boxes.size(), std::max<size_t>(1, 2 * shape.size() - 1) * std::max<size_t>(1, split.boxes.size()));
  }
}

TEST(Boxes, covers_gaps_and_overlaps_are_those_of_counting) {
  Draw draw(3);
  int whole = 0, gaps = 0, overlaps = 0;
  for (int round = 0; round < 20'000; ++round) {
    const Shape shape = draw.shape();
    std::vector<Box> boxes = {{Shape(shape.size(), 0), shape}};
    for (int64_t cuts = draw.from(0, 6); cuts > 0 && !shape.empty(); --cuts) {
      Box& box = boxes[draw.from(0, static_cast<int64_t>(boxes.size()) - 1)];
      const int64_t d = draw.from(0, static_cast<int64_t>(shape.size()) - 1);
      if (box.sizes[d] < 2) continue;
      Box rest = box;
      const int64_t kept = draw.from(1, box.sizes[d] - 1);
      box.sizes[d] = kept, rest.offsets[d] += kept, rest.sizes[d] -= kept;
      boxes.push_back(rest);
    }
    std::shuffle(boxes.begin(), boxes.end(), draw.random());
    if (draw.from(0, 2) == 0) boxes.pop_back();
    if (draw.from(0, 2) == 0 && !boxes.empty()) {  // grown over its neighbour, or given twice
      Box& box = boxes[0];
      if (!shape.empty() && box.sizes[0] + box.offsets[0] < shape[0])
        ++box.sizes[0];
      else
        boxes.push_back(Box(box));
    }
    std::vector<int> count(numel_of(shape), 0);
    for (const Box& box : boxes)
      each_coordinate(box.sizes, [&](Shape at) {
        for (size_t d = 0; d < at.size(); ++d) at[d] += box.offsets[d];
        ++count[flat(shape, at)];
      });
    const std::string fault = cover_fault(shape, boxes);
    // The elements that the sentence names have the count that it says.
    const auto named = [&](int least, int most) {
      Box box;
      std::stringstream text(fault.substr(fault.find('[') + 1));
      for (size_t d = 0; d < shape.size(); ++d) {
        int64_t from = 0, to = 0;
        char colon = 0, comma = 0;
        text >> from >> colon >> to >> comma;
        box.offsets.push_back(from), box.sizes.push_back(to - from);
      }
      each_coordinate(box.sizes, [&](Shape at) {
        for (size_t d = 0; d < at.size(); ++d) at[d] += box.offsets[d];
        ASSERT_GE(count[flat(shape, at)], least) << fault;
        ASSERT_LE(count[flat(shape, at)], most) << fault;
      });
    };
    if (std::any_of(count.begin(), count.end(), [](int n) { return n > 1; })) {
      ASSERT_THAT(fault, AllOf(HasSubstr("has elements ["), HasSubstr("] twice"))) << round;
      named(2, 99);
      ++overlaps;
    } else if (std::any_of(count.begin(), count.end(), [](int n) { return n == 0; })) {
      ASSERT_THAT(fault, HasSubstr("misses elements [")) << round;
      named(0, 0);
      ++gaps;
    } else {
      ASSERT_EQ(fault, "");
      ++whole;
    }
  }
  EXPECT_GT(whole, 1000);
  EXPECT_GT(gaps, 1000);
  EXPECT_GT(overlaps, 1000);
}

TEST(Boxes, gaps_and_overlaps_are_named_by_their_elements) {
  const Box left{{0, 0}, {2, 4}}, right{{0, 4}, {2, 4}}, corner{{1, 3}, {1, 2}};
  EXPECT_EQ(cover_fault({2, 8}, {left, right}), "");
  EXPECT_EQ(cover_fault({2, 8}, {left}), "misses elements [0:2, 4:8] of [2, 8]");
  EXPECT_EQ(cover_fault({2, 8}, {left, right, corner}), "has elements [1:2, 3:4] twice");
  EXPECT_EQ(cover_fault({2, 8}, {}), "misses elements [0:2, 0:8] of [2, 8]");
  EXPECT_EQ(cover_fault({0, 8}, {}), "");
  EXPECT_EQ(cover_fault({}, {}), "misses elements [] of []");
}

// A fused QKV weight of heads, on the second of two ranks: three boxes of rows; stored in columns: of columns.
TEST(Boxes, a_fused_weight_is_several_boxes_along_its_dimension) {
  const Split rows{{{{2, 0}, {2, 3}}, {{6, 0}, {2, 3}}, {{10, 0}, {2, 3}}}, 0};
  EXPECT_EQ(split_fault({12, 3}, rows), "");
  EXPECT_THAT(local_shape({12, 3}, rows), ElementsAre(6, 3));
  EXPECT_EQ(first_element({12, 3}, rows, 7), 19);  // [2, 1] of the local tensor: row 0 of the second box
  const Split columns{{{{0, 2}, {3, 2}}, {{0, 6}, {3, 2}}, {{0, 10}, {3, 2}}}, 1};
  EXPECT_THAT(local_shape({3, 12}, columns), ElementsAre(3, 6));
  EXPECT_EQ(first_element({3, 12}, columns, 7), 15);  // [1, 1]: row 1, column 3
  EXPECT_EQ(simplified({2, 3}, {{{{0, 0}, {2, 3}}}, 0}), Split());
  EXPECT_EQ(simplified({12, 3}, rows), rows);
  EXPECT_EQ(simplified({4, 6}, {{{{0, 0}, {4, 2}}, {{0, 2}, {4, 4}}}, 1}), Split()) << "two halves are the whole";
  EXPECT_EQ(simplified({4, 6}, {{{{0, 2}, {4, 4}}, {{0, 0}, {4, 2}}}, 1}).boxes.size(), 2u) << "in another order they are not";
  EXPECT_EQ(simplified({9, 2}, {{{{0, 0}, {2, 2}}, {{2, 0}, {1, 2}}, {{6, 0}, {3, 2}}}, 0}),
            (Split{{{{0, 0}, {3, 2}}, {{6, 0}, {3, 2}}}, 0}));
}

TEST(Boxes, a_large_matrix_cut_along_its_columns_is_one_box_and_one_stretch_a_row) {
  const Shape shape = {12'288, 12'288};
  const Split half{{{{0, 6'144}, {12'288, 6'144}}}, 1}, whole;
  EXPECT_EQ(boxes_of({shape, half, 0, 12'288 * 6'144}).size(), 1u);
  EXPECT_LE(boxes_of({shape, half, 1'000'001, 10'000'000}).size(), 3u);
  int64_t calls = 0;
  const auto count = [&](int64_t, int64_t, int64_t) { return ++calls, true; };
  each_overlap({shape, half, 0, 12'288 * 6'144}, {shape, whole, 0, 12'288 * 12'288}, count);
  EXPECT_EQ(calls, 12'288);
  calls = 0;  // a block of 4 MiB in its middle: the search for its first row skips the rows before it
  for (int64_t i = 0; i < 10'000; ++i) each_overlap({shape, half, 30'000'000, 1}, {shape, whole, 0, 12'288 * 12'288}, count);
  EXPECT_EQ(calls, 10'000);
}

TEST(Boxes, what_is_no_split_is_said_in_a_sentence) {
  EXPECT_EQ(split_fault({4, 4}, {{{{0}, {4}}}, 0}), "has a box of 1 offsets and 1 sizes, the tensor has 2 dimensions");
  EXPECT_EQ(split_fault({4, 4}, {{{{0, 2}, {4, 3}}}, 0}), "has a box from 2 over 3 in dimension 1, which has 4 elements");
  EXPECT_EQ(split_fault({4, 4}, {{{{0, -1}, {4, 3}}}, 0}), "has a box from -1 over 3 in dimension 1, which has 4 elements");
  EXPECT_EQ(split_fault({4, 4}, {{{{0, 0}, {4, 0}}}, 0}), "has a box from 0 over 0 in dimension 1, which has 4 elements");
  EXPECT_EQ(split_fault({4, 4}, {{{{0, 0}, {1, 4}}, {{1, 0}, {1, 2}}}, 0}),
            "has boxes of 4 and 2 elements in dimension 1, side by side along dimension 0");
  EXPECT_EQ(split_fault({4, 4}, {{{{0, 0}, {1, 4}}, {{1, 0}, {1, 4}}}, 2}), "has boxes side by side along dimension 2 of 2");
  EXPECT_EQ(split_fault({4, 4}, {{{{0, 0}, {4, 4}}, {{0, 0}, {1, 4}}}, 0}), "has boxes with more elements than the tensor");
  EXPECT_EQ(split_fault({}, {{{{}, {}}}, 0}), "");
}

}  // namespace
}  // namespace gannet
