// ProcessTopology's answers are DeepSpeed's; an mpu's groups make a mesh where they tile the world.
#include <gannet/mpu.h>
#include <gannet/topology.h>
#include <gmock/gmock.h>

#include "base/support.h"

namespace gannet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// DeepSpeed's own unit tests of its topology (tests/unit/runtime/pipe/test_topology.py), and what its code says beyond them.
TEST(ProcessTopology, answers_as_deepspeeds) {
  const ProcessTopology two({"row", "col"}, {2, 2});
  EXPECT_EQ(two.world_size(), 4u);
  EXPECT_EQ(two.get_rank({{"row", 0}, {"col", 1}}), 1u);
  EXPECT_EQ(two.get_rank({{"col", 0}, {"row", 1}}), 2u);
  EXPECT_THAT(two.get_axis_list("row", 0), ElementsAre(0, 1));
  EXPECT_THAT(two.get_axis_list("row", 1), ElementsAre(2, 3));
  EXPECT_THAT(two.get_axis_list("col", 0), ElementsAre(0, 2));
  EXPECT_THAT(two.get_axis_list("col", 2), IsEmpty());

  const ProcessTopology three({"a", "b", "c"}, {2, 3, 4});
  EXPECT_THAT(std::vector({three.get_dim("a"), three.get_dim("b"), three.get_dim("c"), three.get_dim("d")}),
              ElementsAre(2, 3, 4, 0));
  EXPECT_THAT(three.get_axis_names(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(three.get_coord(23), ElementsAre(Pair("a", 1), Pair("b", 2), Pair("c", 3)));

  const ProcessTopology match({"pipe", "data", "model"}, {2, 2, 2});
  EXPECT_THAT(match.filter_match({{"pipe", 0}, {"data", 1}}), ElementsAre(2, 3));
  EXPECT_THAT(match.filter_match({{"pipe", 2}}), IsEmpty());
  EXPECT_THAT(match.filter_match({}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));

  const PipeModelDataParallelTopology grid(2, 2, 2);
  EXPECT_THAT(grid.get_axis_comm_lists("pipe"),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_THAT(grid.get_axis_comm_lists("data"),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  EXPECT_THAT(grid.get_axis_comm_lists("model"),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5), ElementsAre(6, 7)));
  EXPECT_THAT(grid.get_axis_comm_lists("jeff"), IsEmpty());

  EXPECT_EQ(grid.get_rank_repr(5), "model_01");
  EXPECT_EQ(grid.get_rank_repr(5, {"pipe"}), "data_00-model_01");
  EXPECT_EQ(grid.get_rank_repr(5, {}, "=", " "), "pipe=01 data=00 model=01");
  EXPECT_EQ(PipeDataParallelTopology(2, 2).get_rank_repr(3), "");
  EXPECT_EQ(ProcessTopology({"pipe", "model"}, {1, 120}).get_rank_repr(110), "model_110");
}

TEST(ProcessTopology, is_a_mesh_under_gannets_names) {
  EXPECT_EQ(PipeModelDataParallelTopology(2, 4, 3).mesh(), MeshShape({{"pipe", 2}, {"data", 3}, {"tensor", 4}}));
  EXPECT_EQ(PipeDataParallelTopology(2, 3).mesh().text(), "pipe 2 x data 3");
  EXPECT_THAT(error_of(ErrorCode::kArgument, [] { ProcessTopology({"pipe", "dta"}, {2, 2}).mesh(); }),
              AllOf(HasSubstr("the axis 'dta' of the topology pipe 2 x dta 2"), HasSubstr("did you mean 'data'?")));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [] { ProcessTopology({"model", "tensor"}, {2, 2}).mesh(); }),
              HasSubstr("names the axis 'tensor' twice"));
}

TEST(ProcessTopology, what_deepspeed_raises_is_an_error_with_a_sentence) {
  const ProcessTopology topology({"pipe", "data"}, {2, 2});
  const auto refused = [](auto&& body) { return error_of(ErrorCode::kArgument, body); };
  EXPECT_THAT(
      refused([&] { topology.get_rank({{"pipe", 0}}); }),
      AllOf(HasSubstr("get_rank was given 1 coordinates, the topology pipe 2 x data 2 has 2 axes"), HasSubstr("filter_match")));
  EXPECT_THAT(refused([&] { topology.get_rank({{"pipe", 0}, {"pipe", 1}}); }), HasSubstr("the axis 'pipe' twice"));
  EXPECT_THAT(refused([&] { topology.get_rank({{"pipe", 0}, {"dat", 1}}); }), HasSubstr("did you mean 'data'?"));
  EXPECT_THAT(refused([&] { topology.get_rank({{"pipe", 0}, {"data", 2}}); }), HasSubstr("no coordinate 2"));
  EXPECT_THAT(refused([&] { topology.get_coord(4); }), HasSubstr("rank 4 is not in a mesh"));
  EXPECT_THAT(refused([&] { topology.filter_match({{"model", 0}}); }), HasSubstr("has no axis 'model'"));
  EXPECT_THAT(refused([&] { topology.get_axis_list("model", 0); }), HasSubstr("has no axis 'model'"));
  EXPECT_THAT(refused([] { ProcessTopology({"pipe"}, {2, 2}); }), HasSubstr("given 1 axes and 2 dims"));
}

// ---- mpu

// As Megatron's, over a grid [data][model] of ranks.
std::vector<MpuAnswers> answers(const std::vector<std::vector<uint32_t>>& grid) {
  std::vector<MpuAnswers> by_rank(grid.size() * grid[0].size());
  for (uint32_t d = 0; d < grid.size(); ++d)
    for (uint32_t m = 0; m < grid[0].size(); ++m) {
      MpuAnswers& mine = by_rank[grid[d][m]];
      mine = {m, static_cast<uint32_t>(grid[0].size()), grid[d], d, static_cast<uint32_t>(grid.size()), {}};
      for (const auto& row : grid) mine.data_group.push_back(row[m]);
    }
  return by_rank;
}

TEST(Mpu, groups_that_tile_the_world_are_a_mesh) {
  EXPECT_EQ(mesh_of(answers({{0, 1}, {2, 3}, {4, 5}})), MeshShape({{"data", 3}, {"tensor", 2}}));
  // Model groups across pipeline stages, as DeepSpeed's grid has them: no order of axes counts these ranks.
  const MeshShape mesh = mesh_of(answers({{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(mesh.text(), "data 2 x tensor 4");
  EXPECT_THAT(mesh.group("tensor", 4), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(mesh.group("data", 4), ElementsAre(4, 6));
  EXPECT_EQ(mesh.coordinate(4, "tensor"), 2u);
  EXPECT_EQ(mesh_of(answers({{0}})).world_size(), 1u);
}

TEST(Mpu, its_six_calls_are_its_answers) {
  struct MyMpu : Mpu {
    uint32_t get_model_parallel_rank() const override { return rank % 2; }
    uint32_t get_model_parallel_world_size() const override { return 2; }
    std::vector<uint32_t> get_model_parallel_group() const override { return {rank / 2 * 2, rank / 2 * 2 + 1}; }
    uint32_t get_data_parallel_rank() const override { return rank / 2; }
    uint32_t get_data_parallel_world_size() const override { return 2; }
    std::vector<uint32_t> get_data_parallel_group() const override { return {rank % 2, rank % 2 + 2}; }
    uint32_t rank = 0;
  };
  std::vector<MpuAnswers> by_rank;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    MyMpu mpu;
    mpu.rank = rank;
    by_rank.push_back(answers_of(mpu));
  }
  EXPECT_EQ(by_rank, answers({{0, 1}, {2, 3}}));
  EXPECT_EQ(mesh_of(by_rank).text(), "data 2 x tensor 2");
}

TEST(Mpu, groups_that_do_not_tile_the_world_are_refused_with_a_rank_and_what_it_says) {
  const auto refused = [](const std::function<void(std::vector<MpuAnswers>&)>& edit) {
    auto by_rank = answers({{0, 1}, {2, 3}});
    edit(by_rank);
    return error_of(ErrorCode::kArgument, [&] { mesh_of(by_rank); });
  };
  EXPECT_THAT(
      refused([](auto& by_rank) { by_rank[1].model_group = {0, 1, 2}; }),
      HasSubstr("do not tile the world: on rank 1 get_model_parallel_world_size is 2, and get_model_parallel_group has 3"));
  EXPECT_THAT(refused([](auto& by_rank) { by_rank[2].data_rank = 2; }),
              HasSubstr("on rank 2 get_data_parallel_rank is 2 in a group of 2"));
  EXPECT_THAT(
      refused([](auto& by_rank) { by_rank[3].data_rank = 0; }),
      HasSubstr("on rank 3 get_data_parallel_rank is 0, and that place of get_data_parallel_group [1, 3] has another rank"));
  EXPECT_THAT(refused([](auto& by_rank) { by_rank[3] = {0, 1, {3}, 0, 1, {3}}; }),
              HasSubstr("on rank 3 the groups are of 1 model x 1 data ranks, on rank 0 of 2 x 2"));
  EXPECT_THAT(refused([](auto& by_rank) { by_rank.pop_back(); }),
              HasSubstr("on rank 0 the groups are of 2 model x 2 data ranks, and the world has 3"));
  EXPECT_THAT(refused([](auto& by_rank) { by_rank[2] = {0, 2, {2, 3}, 0, 2, {2, 0}}; }),
              HasSubstr("on rank 2 the model rank is 0 and the data rank 0, as on rank 0"));
  EXPECT_THAT(refused([](auto& by_rank) { by_rank[1].model_group = {2, 1}; }),
              HasSubstr("on rank 1 get_model_parallel_group is [2, 1], but the ranks of its data rank 0 are [0, 1]"));
  EXPECT_THAT(refused([](auto& by_rank) { by_rank[0].data_group = {0, 3}; }),
              HasSubstr("on rank 0 get_data_parallel_group is [0, 3], but the ranks of its model rank 0 are [0, 2]"));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [] { mesh_of({}); }), HasSubstr("no rank's mpu"));
}

}  // namespace
}  // namespace gannet
