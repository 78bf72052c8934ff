// MeshShape against a reference that counts coordinates like an odometer.
#include <gannet/mesh.h>
#include <gmock/gmock.h>

#include <numeric>
#include <random>
#include <set>

#include "base/support.h"

namespace gannet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Coordinates = std::vector<uint32_t>;

// The coordinates of every place, the last axis fastest.
std::vector<Coordinates> count_up(const std::vector<MeshAxis>& axes) {
  std::vector<Coordinates> all = {{}};
  for (const MeshAxis& axis : axes) {
    std::vector<Coordinates> longer;
    for (const Coordinates& before : all)
      for (uint32_t i = 0; i < axis.size; ++i) {
        longer.push_back(before);
        longer.back().push_back(i);
      }
    all = std::move(longer);
  }
  return all;
}

// Every mesh of up to four axes of sizes 1 to 3, in the order of places and shuffled.
void each_mesh(const std::function<void(const MeshShape&, const std::vector<Coordinates>& of_rank)>& body) {
  std::mt19937 random(1);
  for (size_t dims = 0; dims <= 4; ++dims)
    for (uint32_t code = 0, codes = static_cast<uint32_t>(std::pow(3, dims)); code < codes; ++code) {
      std::vector<MeshAxis> axes;
      for (uint32_t rest = code; axes.size() < dims; rest /= 3)
        axes.push_back({std::string(1, "abcd"[axes.size()]), rest % 3 + 1});
      const std::vector<Coordinates> places = count_up(axes);
      std::vector<uint32_t> ranks(places.size());
      std::iota(ranks.begin(), ranks.end(), 0);
      SCOPED_TRACE(MeshShape(axes).text());
      body(MeshShape(axes), places);
      std::shuffle(ranks.begin(), ranks.end(), random);
      std::vector<Coordinates> of_rank(places.size());
      for (size_t place = 0; place < places.size(); ++place) of_rank[ranks[place]] = places[place];
      body(MeshShape(axes, ranks), of_rank);
    }
}

TEST(MeshShape, coordinates_and_ranks_are_those_of_counting) {
  each_mesh([](const MeshShape& mesh, const std::vector<Coordinates>& of_rank) {
    ASSERT_EQ(mesh.world_size(), of_rank.size());
    for (uint32_t rank = 0; rank < of_rank.size(); ++rank) {
      ASSERT_EQ(mesh.coordinates(rank), of_rank[rank]);
      ASSERT_EQ(mesh.rank(of_rank[rank]), rank);
      for (size_t i = 0; i < mesh.axes().size(); ++i) ASSERT_EQ(mesh.coordinate(rank, mesh.axes()[i].name), of_rank[rank][i]);
    }
  });
}

TEST(MeshShape, a_group_has_the_ranks_that_differ_in_one_coordinate_and_all_groups_tile_the_world) {
  each_mesh([](const MeshShape& mesh, const std::vector<Coordinates>& of_rank) {
    for (size_t i = 0; i < mesh.axes().size(); ++i) {
      const MeshAxis& axis = mesh.axes()[i];
      std::set<uint32_t> seen;
      for (const auto& group : mesh.groups(axis.name)) {
        ASSERT_EQ(group.size(), axis.size);
        for (uint32_t n = 0; n < group.size(); ++n) {
          ASSERT_TRUE(seen.insert(group[n]).second);
          ASSERT_EQ(mesh.group(axis.name, group[n]), group);
          Coordinates expected = of_rank[group[0]];
          expected[i] = n;
          ASSERT_EQ(of_rank[group[n]], expected);
        }
      }
      ASSERT_EQ(seen.size(), of_rank.size());
    }
    ASSERT_EQ(mesh.groups("none").size(), of_rank.size());
    ASSERT_THAT(mesh.group("none", 0), ElementsAre(0));
  });
}

TEST(MeshShape, any_axes_combine_in_any_order_and_refine_back) {
  each_mesh([](const MeshShape& mesh, const std::vector<Coordinates>& of_rank) {
    const size_t dims = mesh.axes().size();
    for (uint32_t chosen = 1; chosen < 1u << dims; ++chosen) {
      std::vector<size_t> which;
      for (size_t i = 0; i < dims; ++i)
        if (chosen >> i & 1) which.push_back(i);
      do {
        std::vector<std::string> names;
        std::vector<MeshAxis> parts;
        for (size_t i : which) names.push_back(mesh.axes()[i].name), parts.push_back(mesh.axes()[i]);
        const MeshShape combined = mesh.combine(names, "all");
        for (uint32_t rank = 0; rank < of_rank.size(); ++rank) {
          uint32_t expected = 0;
          for (size_t i : which) expected = expected * mesh.axes()[i].size + of_rank[rank][i];
          ASSERT_EQ(combined.coordinate(rank, "all"), expected);
          for (size_t i = 0; i < dims; ++i)
            if (!(chosen >> i & 1)) ASSERT_EQ(combined.coordinate(rank, mesh.axes()[i].name), of_rank[rank][i]);
          const MeshShape again = combined.refine("all", parts);
          for (size_t i = 0; i < dims; ++i) ASSERT_EQ(again.coordinate(rank, mesh.axes()[i].name), of_rank[rank][i]);
        }
      } while (std::next_permutation(which.begin(), which.end()));
    }
  });
}

TEST(MeshShape, the_examples_of_its_header_hold) {
  const MeshShape mesh({{"pipe", 2}, {"data", 2}, {"tensor", 1}});
  EXPECT_EQ(mesh.text(), "pipe 2 x data 2 x tensor 1");
  EXPECT_EQ(mesh.coordinate(3, "pipe"), 1u);
  EXPECT_THAT(mesh.group("pipe", 3), ElementsAre(1, 3));
  EXPECT_THAT(mesh.groups("data"), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(mesh.refine("data", {{"replicate", 2}, {"shard", 1}}).group("replicate", 0), ElementsAre(0, 1));
  EXPECT_EQ(mesh.combine({"data", "tensor"}, "batch").size("batch"), 2u);
  EXPECT_EQ(mesh.coordinates_text(2), "pipe 1, data 0, tensor 0");
  EXPECT_EQ(mesh.size("sequence"), 1u);
  EXPECT_FALSE(mesh.has("sequence"));
}

TEST(MeshShape, expert_groups_lie_across_data_and_sequence) {
  // 2 data x 2 sequence, whose 4 ranks hold 2 experts twice.
  const MeshShape mesh = MeshShape({{"data", 2}, {"sequence", 2}}).combine({"data", "sequence"}, "batch");
  const MeshShape experts = mesh.refine("batch", {{"expert_data", 2}, {"expert", 2}});
  EXPECT_THAT(experts.groups("expert"), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(experts.groups("expert_data"), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(MeshShape, no_axes_are_one_rank_and_equal_meshes_compare_equal) {
  EXPECT_EQ(MeshShape().world_size(), 1u);
  EXPECT_EQ(MeshShape().text(), "1 rank");
  EXPECT_EQ(MeshShape().coordinates_text(0), "rank 0");
  EXPECT_THAT(MeshShape().groups("data"), ElementsAre(ElementsAre(0)));
  EXPECT_EQ(MeshShape({{"data", 2}}), MeshShape({{"data", 2}}, {0, 1}));
  EXPECT_FALSE(MeshShape({{"data", 2}}) == MeshShape({{"data", 2}}, {1, 0}));
  EXPECT_FALSE(MeshShape({{"data", 2}}) == MeshShape({{"tensor", 2}}));
}

TEST(MeshShape, what_is_no_mesh_is_refused_in_a_sentence) {
  const auto refused = [](auto&& body) { return error_of(ErrorCode::kArgument, body); };
  using Axes = std::vector<MeshAxis>;
  EXPECT_THAT(refused([] { MeshShape(Axes{{"data", 2}, {"pipe", 2}, {"data", 2}}); }), HasSubstr("names the axis 'data' twice"));
  EXPECT_THAT(refused([] { MeshShape(Axes{{"data", 0}}); }), HasSubstr("axis 'data' of a mesh has size 0"));
  EXPECT_THAT(refused([] { MeshShape(Axes{{"data", 2}, {"", 1}}); }), HasSubstr("axis 1 of a mesh has no name"));
  EXPECT_THAT(refused([] { MeshShape(Axes{{"data", 65536}, {"pipe", 65536}, {"tensor", 4294967295}}); }),
              HasSubstr("more than 2147483647 ranks"));
  EXPECT_THAT(refused([] { MeshShape({{"data", 2}}, {0}); }), HasSubstr("was given 1 ranks, not 2"));
  EXPECT_THAT(refused([] { MeshShape({{"data", 2}}, {0, 2}); }), HasSubstr("given rank 2, which is not below 2"));
  EXPECT_THAT(refused([] { MeshShape({{"data", 2}}, {1, 1}); }), HasSubstr("given rank 1, which is given twice"));
  const MeshShape mesh({{"pipe", 2}, {"data", 3}});
  EXPECT_THAT(refused([&] { mesh.coordinates(6); }), HasSubstr("rank 6 is not in a mesh of pipe 2 x data 3, which has 6 ranks"));
  EXPECT_THAT(refused([&] { mesh.group("data", 6); }), HasSubstr("rank 6 is not in a mesh"));
  EXPECT_THAT(refused([&] { mesh.rank({1, 3}); }),
              HasSubstr("axis 'data' of a mesh of pipe 2 x data 3 has no coordinate 3: they are below 3"));
  EXPECT_THAT(refused([&] { mesh.rank({1}); }), HasSubstr("1 coordinates were given in a mesh of pipe 2 x data 3, not 2"));
  EXPECT_THAT(refused([&] { mesh.combine({"data", "pip"}, "x"); }),
              AllOf(HasSubstr("no axis 'pip' in a mesh of pipe 2 x data 3 to combine"), HasSubstr("did you mean 'pipe'?")));
  EXPECT_THAT(refused([&] { mesh.combine({"data", "data"}, "x"); }), HasSubstr("'data' was given twice to combine"));
  EXPECT_THAT(refused([&] { mesh.combine({}, "x"); }), HasSubstr("no axis was given to combine"));
  EXPECT_THAT(refused([&] { mesh.combine({"data"}, "pipe"); }), HasSubstr("names the axis 'pipe' twice"));
  EXPECT_THAT(refused([&] { mesh.refine("data", {{"a", 2}, {"b", 2}}); }),
              HasSubstr("'data' of size 3 cannot be refined to a 2 x b 2, which multiply to 4"));
  EXPECT_THAT(refused([&] { mesh.refine("dat", {{"a", 3}}); }), HasSubstr("did you mean 'data'?"));
  EXPECT_THAT(refused([&] { mesh.refine("data", {{"pipe", 3}}); }), HasSubstr("names the axis 'pipe' twice"));
}

}  // namespace
}  // namespace gannet
