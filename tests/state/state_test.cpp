// Which rank gives what of a tensor, under which name, and whether a checkpoint fits an engine of several axes.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <set>

#include "checkpoint/support.h"
#include "state/comparison.h"

namespace gannet {
namespace {

using checkpoint::Content;
using checkpoint::Opened;
using checkpoint::Ranks;
using checkpoint::Saver;
using checkpoint::ThreadRanks;
using checkpoint::whole;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = StateEntry::Kind;

const MeshShape kOne({{"data", 4}}), kGrid({{"pipe", 2}, {"data", 2}, {"tensor", 2}});

StateEntry entry_of(Kind kind, const std::string& name, const at::Tensor& tensor) {
  return {kind, name, tensor.sizes().vec(), tensor.scalar_type(), tensor, {}};
}

TEST(StateEntry, a_rank_is_named_by_its_coordinates_and_on_one_axis_by_its_number) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(rank_name(kOne, rank), std::to_string(rank));
    EXPECT_EQ(rank_name(MeshShape({{"pipe", 1}, {"data", 4}, {"tensor", 1}}), rank), std::to_string(rank));
  }
  EXPECT_EQ(rank_name(kGrid, 5), "0.pipe1.tensor1");
  EXPECT_EQ(rank_name(MeshShape({{"tensor", 2}}), 1), "0.tensor1");
  std::set<std::string> names;
  for (uint32_t rank = 0; rank < 8; ++rank) names.insert(rank_name(kGrid, rank));
  EXPECT_EQ(names.size(), 8u);
  EXPECT_EQ(stored_name(entry_of(Kind::kBuffer, "mean", at::zeros({2})), "1.tensor0"), "buffer/1.tensor0/mean");
  EXPECT_EQ(stored_name(entry_of(Kind::kState, "exp_avg/w", at::zeros({2})), "1"), "state/exp_avg/w");
  EXPECT_EQ(stored_name(entry_of(Kind::kFrozen, "w", at::zeros({2})), "1"), "parameter/w");
}

TEST(StateEntry, of_ranks_that_have_the_same_part_one_gives_it) {
  StateEntry entry = entry_of(Kind::kTrained, "w", at::zeros({2}));
  const auto givers = [&](const MeshShape& mesh) {
    std::vector<uint32_t> all;
    for (uint32_t rank = 0; rank < mesh.world_size(); ++rank)
      if (gives_part(entry, mesh, rank)) all.push_back(rank);
    return all;
  };
  EXPECT_THAT(givers(kOne), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(givers(kGrid), ElementsAre(0, 2)) << "the data axis alone has other elements";
  EXPECT_THAT(holders_of(entry, kGrid, 5), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  entry.differs_along = {"pipe"};  // a layer of a stage
  EXPECT_THAT(givers(kGrid), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(holders_of(entry, kGrid, 5), ElementsAre(4, 5, 6, 7));
  entry.differs_along = {"pipe", "tensor"};  // and split in it
  EXPECT_THAT(givers(kGrid), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(holders_of(entry, kGrid, 5), ElementsAre(5, 7));
  entry.is_given_here = false;
  EXPECT_THAT(givers(kGrid), IsEmpty());
  const MeshShape experts({{"expert_data", 2}, {"expert", 2}, {"tensor", 2}});
  entry.is_given_here = true;
  entry.differs_along = {"expert"};
  EXPECT_THAT(givers(experts), ElementsAre(0, 2, 4, 6)) << "of replicas along tensor one";
  EXPECT_THAT(holders_of(entry, experts, 5), ElementsAre(0, 1, 4, 5));
  entry.differs_along = {};
  EXPECT_THAT(givers(experts), ElementsAre(0, 2, 4, 6)) << "the others' elements are along both";
}

TEST(StateEntry, a_rank_takes_up_the_state_of_its_coordinates_and_along_an_axis_of_another_size_the_first) {
  for (uint32_t rank = 0; rank < 8; ++rank) EXPECT_EQ(source_rank(kGrid, kGrid, rank), rank);
  EXPECT_EQ(source_rank(kOne, MeshShape({{"data", 2}}), 1), 0u);
  EXPECT_EQ(source_rank(kOne, MeshShape({{"pipe", 1}, {"data", 4}}), 3), 3u);
  const MeshShape wide({{"pipe", 2}, {"data", 4}, {"tensor", 2}});
  EXPECT_EQ(source_rank(kGrid, wide, wide.rank({1, 3, 1})), kGrid.rank({1, 0, 1}));
  EXPECT_EQ(source_rank(MeshShape({{"tensor", 2}, {"data", 2}}), MeshShape({{"data", 2}, {"tensor", 2}}), 1), 2u);
  EXPECT_TRUE(same_coordinates(kOne, MeshShape({{"pipe", 1}, {"data", 4}, {"tensor", 1}})));
  EXPECT_FALSE(same_coordinates(kOne, MeshShape({{"data", 2}, {"tensor", 2}})));
  EXPECT_FALSE(same_coordinates(MeshShape({{"tensor", 2}, {"data", 2}}), MeshShape({{"data", 2}, {"tensor", 2}})));
  EXPECT_FALSE(same_coordinates(kOne, kGrid));
}

// A pipeline of two stages, each with a layer and a buffer; the shared layer is on both.
struct Stage : torch::nn::Module {
  explicit Stage(int stage) {
    const std::string name = "layer" + std::to_string(stage);
    register_parameter(name, torch::full({2, 3}, stage, torch::kFloat));
    register_parameter("shared", torch::ones({4}));
    register_buffer(name + "_mean", torch::full({2}, stage, torch::kFloat));
  }
  std::vector<StateEntry> entries() const {
    std::vector<StateEntry> all;
    for (const auto& parameter : named_parameters()) {
      all.push_back(entry_of(Kind::kTrained, parameter.key(), parameter.value().detach()));
      all.push_back(entry_of(Kind::kState, "exp_avg/" + parameter.key(), parameter.value().detach()));
      if (parameter.key() != "shared") all[all.size() - 1].differs_along = all[all.size() - 2].differs_along = {"pipe"};
    }
    for (const auto& buffer : named_buffers()) all.push_back(entry_of(Kind::kBuffer, buffer.key(), buffer.value()));
    return all;
  }
};

class PipelineCheckpoint : public checkpoint::CheckpointTest {
 protected:
  const MeshShape mesh_{{{"pipe", 2}, {"data", 2}}};

  void save(bool with_extra = false) {
    const auto errors = ThreadRanks(4).run([&](Ranks ranks) {
      ranks.mesh = mesh_;
      Content content{.tag = "t"};
      content.document = {{"frozen_excluded", false}};
      for (const StateEntry& entry : Stage(static_cast<int>(mesh_.coordinate(ranks.rank, "pipe"))).entries())
        if (entry.kind == Kind::kBuffer || holders_of(entry, mesh_, ranks.rank)[0] == ranks.rank)
          content.slices.push_back(whole(stored_name(entry, rank_name(mesh_, ranks.rank)), entry.whole));
      if (with_extra && ranks.rank == 3) content.slices.push_back(whole("parameter/extra", at::zeros({2})));
      Saver(folder(), ranks).save(content, {});
    });
    ASSERT_THAT(errors, Each(""));
  }

  struct Loaded {
    std::vector<std::string> errors, notes;  // by rank; all ranks' notes
    int64_t parameters = 0, buffers = 0, states = 0;
    std::vector<std::string> buffers_of_rank;
  };
  // Every rank of `mesh` compares its stage's entries, or all stages' where it has one stage.
  Loaded load(const MeshShape& mesh, const LoadOptions& options = {}) {
    const Opened opened = checkpoint::open(folder(), {});
    Loaded loaded;
    std::vector<std::vector<StateEntry>> entries(mesh.world_size());
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    std::vector<std::unique_ptr<SavedNames>> names;
    std::vector<std::unique_ptr<Comparison>> comparisons;
    std::set<std::string> expected;
    for (uint32_t rank = 0; rank < mesh.world_size(); ++rank) {
      for (int stage = 0; stage < 2; ++stage) {
        if (mesh.size("pipe") == 2 && static_cast<int>(mesh.coordinate(rank, "pipe")) != stage) continue;
        modules.push_back(std::make_shared<Stage>(stage));
        for (const StateEntry& entry : std::static_pointer_cast<Stage>(modules.back())->entries()) entries[rank].push_back(entry);
      }
      names.push_back(std::make_unique<SavedNames>(*modules.back(), opened, mesh, rank));
      comparisons.push_back(std::make_unique<Comparison>(opened, *names.back(), Comparison::Rules{options, true, false, mesh}));
      for (const StateEntry& entry : entries[rank]) comparisons.back()->add(entry);
      expected.insert(comparisons.back()->expected().begin(), comparisons.back()->expected().end());
    }
    for (const auto& comparison : comparisons) {
      std::string error;
      try {
        comparison->finish(expected);
      } catch (const Error& thrown) {
        error = thrown.what();
      }
      loaded.errors.push_back(error);
      for (const std::string& note : comparison->notes()) loaded.notes.push_back(note);
      loaded.parameters = comparison->parameters, loaded.buffers = comparison->buffers, loaded.states = comparison->states;
      std::string buffers;
      for (const auto& [entry, saved] : comparison->wanted())
        if (entry.kind == Kind::kBuffer) buffers += saved->name + " ";
      loaded.buffers_of_rank.push_back(buffers);
    }
    return loaded;
  }
};

TEST_F(PipelineCheckpoint, what_another_stage_holds_is_not_unexpected) {
  save();
  const Loaded loaded = load(mesh_);
  EXPECT_THAT(loaded.errors, ElementsAre("", "", "", ""));
  EXPECT_THAT(loaded.notes, IsEmpty());
  EXPECT_EQ(loaded.parameters, 3) << "on all ranks together, the shared one once";
  EXPECT_EQ(loaded.states, 3);
  EXPECT_EQ(loaded.buffers, 2);
  EXPECT_THAT(loaded.buffers_of_rank, ElementsAre("buffer/0.pipe0/layer0_mean ", "buffer/1.pipe0/layer0_mean ",
                                                  "buffer/0.pipe1/layer1_mean ", "buffer/1.pipe1/layer1_mean "));
}

TEST_F(PipelineCheckpoint, what_no_rank_holds_is_unexpected_on_every_rank) {
  save(/*with_extra=*/true);
  EXPECT_THAT(load(mesh_).errors, Each(HasSubstr("unexpected in the checkpoint: parameter/extra")));
  const Loaded lenient = load(mesh_, {.load_module_strict = false});
  EXPECT_THAT(lenient.errors, Each(""));
  EXPECT_THAT(lenient.notes, Each("unexpected in the checkpoint, not used: parameter/extra"));
}

TEST_F(PipelineCheckpoint, loads_at_another_number_of_stages_with_the_buffers_of_the_stage_that_had_them) {
  save();
  for (const MeshShape& mesh : {MeshShape(), MeshShape({{"data", 2}})}) {
    const Loaded loaded = load(mesh);
    EXPECT_THAT(loaded.errors, Each(""));
    EXPECT_THAT(loaded.buffers_of_rank[0], AllOf(HasSubstr("0.pipe0/layer0_mean"), HasSubstr("0.pipe1/layer1_mean")));
  }
}

TEST_F(PipelineCheckpoint, a_tensor_that_no_rank_saved_is_missing) {
  save();
  const Opened opened = checkpoint::open(folder(), {});
  const auto stage = std::make_shared<Stage>(7);
  const LoadOptions options;
  const SavedNames names(*stage, opened, mesh_, 0);
  Comparison comparison(opened, names, {options, true, false, mesh_});
  for (const StateEntry& entry : stage->entries()) comparison.add(entry);
  std::set<std::string> all = comparison.expected();
  for (const auto& tensor : opened.tensors()) all.insert(tensor.name);
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { comparison.finish(all); }),
              AllOf(HasSubstr("missing in the checkpoint: parameter/layer7"), HasSubstr("buffer/0.pipe0/layer7_mean"),
                    Not(HasSubstr("unexpected"))));
}

}  // namespace
}  // namespace gannet
