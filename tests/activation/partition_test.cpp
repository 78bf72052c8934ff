// partition_activations over the tensor axis, and the section of an engine's config.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include "activation/blocks.h"
#include "activation/input_store.h"
#include "control/world.h"
#include "engine/impl.h"
#include "plugin/support.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;
using ranks::same;

// Ranks of the tensor axis have the same model and the same data here: replicas.
struct Run {
  at::Tensor parameters;
  uint64_t sent = 0;
};
Run run_of(Recompute recompute, const Dict& section, int64_t length = 11) {
  Dict config = stage3(0);
  const int64_t ranks = gannet::init_distributed()->size();
  config["gannet"] = Dict{{"mesh", Dict{{"tensor", ranks}}}};
  config["activation_checkpointing"] = section;
  auto engine = gannet::initialize(make_transformer(recompute, 3, 12, 2, 0.1), {.config = config}).engine;
  auto& comm = engine->impl().mesh->world().links().device().comm();
  torch::manual_seed(10);
  Run run;
  for (int64_t step = 0; step < 3; ++step) {
    auto [ids, targets] = words_of(step, 1, length);
    const auto loss = engine->forward(ids, targets);
    const uint64_t before = comm.counters().bytes_sent;
    engine->backward(loss);
    run.sent += comm.counters().bytes_sent - before;
    engine->step();
  }
  run.parameters = parameters_of(*engine);
  return run;
}

RANK_BODY(partitioned) {
  world();
  const uint64_t ranks = gannet::init_distributed()->size();
  for (const int64_t length : {11, 7}) {
    const Run plain = run_of(Recompute::kNothing, Dict{}, length), whole = run_of(Recompute::kBlocks, Dict{}, length);
    same(whole.sent, plain.sent, "bytes sent without partition");
    for (const auto& [on_host, side_by_side] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
      if (side_by_side && length != 11) continue;
      Dict section{{"partition_activations", true}, {"cpu_checkpointing", on_host}};
      if (side_by_side) {
        section["contiguous_memory_optimization"] = true;
        section["number_checkpoints"] = 3;
      }
      const Run part = run_of(Recompute::kBlocks, section, length);
      expect(at::equal(part.parameters, plain.parameters), "bit-equal");
      const uint64_t slice = (length * 12 + ranks - 1) / ranks * sizeof(float);
      same(part.sent - plain.sent, 3 * 3 * (ranks - 1) * slice, "bytes sent: a slice to each other rank, by block and step");
    }
  }
}

// The slice of an input that a rank holds, with a padded remainder; the slices make up the whole.
RANK_BODY(slices) {
  auto group = world();
  const auto ranks = static_cast<int64_t>(group->size());
  gannet::checkpointing::configure({.partition_activations = true, .model_parallel_group = group});
  for (const int64_t numel : {ranks, 4 * ranks + 1, int64_t{1009}}) {
    torch::manual_seed(1);
    const at::Tensor x = torch::randn({numel}) * 1, few = torch::randn({ranks - 1}), index = torch::arange(numel);
    auto& store = *gannet::activation::in_force()->inputs;
    const auto kept = store.keep({x, few, index}, "x");
    expect(kept->is_moved(0) && !kept->is_moved(1) && !kept->is_moved(2), "floating inputs of a share for each rank");
    same(kept->bytes_here(), static_cast<uint64_t>((numel + ranks - 1) / ranks * 4), "bytes of a rank");
    expect(at::equal(kept->values(0), x), "whole again");
  }
  gannet::checkpointing::reset();
}

// The config section of an engine applies only within its own forwards.
RANK_BODY(section_of_an_engine) {
  world();
  struct Seen : NetImpl {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
      const auto here = gannet::activation::in_force();
      seen = here && here->settings.cpu_checkpointing;
      return NetImpl::forward(x, y);
    }
    bool seen = false;
  };
  Dict config = stage3(0);
  auto plain = std::make_shared<Seen>(), moving = std::make_shared<Seen>();
  auto without = gannet::initialize(plain, {.config = config}).engine;
  config["activation_checkpointing"] = Dict{{"cpu_checkpointing", true}};
  auto with = gannet::initialize(moving, {.config = config}).engine;
  auto [x, y] = make_batch(0, 4);
  with->forward(x, y);
  without->forward(x, y);
  expect(moving->seen, "in force in its forward");
  expect(!plain->seen && gannet::activation::in_force() == nullptr, "and nowhere else");
}

RANK_BODY(streams_in_checkpoints) {
  world();
  const std::string folder = variable("FOLDER");
  const auto draw = [] {
    const auto fork = gannet::checkpointing::rng_tracker().fork();
    return torch::randn({4});
  };
  auto engine = gannet::initialize(make_net(), {.config = stage3(0)}).engine;
  gannet::checkpointing::model_parallel_manual_seed(3, engine->rank());
  draw();
  engine->save_checkpoint(folder);
  const at::Tensor next = draw();
  gannet::checkpointing::model_parallel_manual_seed(8, engine->rank());
  engine->load_checkpoint(folder);
  expect(at::equal(draw(), next), "the stream resumes");
}

TEST(PartitionedInputs, AreBitEqualAndTheirBytesCounted) {
  for (const int count : {2, 4}) ranks::expect_all_succeed(run_ranks("partitioned", count));
}
TEST(PartitionedInputs, AreASliceOfEachRankWithARemainderPadded) {
  for (const int count : {2, 4}) ranks::expect_all_succeed(run_ranks("slices", count));
}
TEST(ActivationSection, IsInForceInTheForwardsOfItsEngine) { ranks::expect_all_succeed(run_ranks("section_of_an_engine", 1)); }
TEST(RandomStreams, TravelInCheckpoints) {
  gannet::test::TemporaryFolder folder;
  for (const int count : {1, 2})
    ranks::expect_all_succeed(
        run_ranks("streams_in_checkpoints", count, {.environment = {{"FOLDER", folder.string() + std::to_string(count)}}}));
}

}  // namespace
