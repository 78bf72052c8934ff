// checkpoint.use_node_local_storage in whole runs: four ranks, of which two and two keep their checkpoints in folders of one name
// that are different folders, as on two machines.
#include <gannet/gannet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;
namespace fs = std::filesystem;

// The path "run" is another folder on each machine.
std::string go_to_my_machine(const std::string& folder) {
  const std::string machine = folder + "/machine" + std::to_string(world()->rank() / 2);
  fs::create_directories(machine);
  if (::chdir(machine.c_str()) != 0) throw std::runtime_error("cannot go to " + machine);
  return machine;
}

auto engine_of_machines() {
  Dict config = stage3(std::atoi(variable("STAGE").c_str()), {{"stage3_param_persistence_threshold", 100}});
  config["checkpoint"] = Dict{{"use_node_local_storage", true}};
  return gannet::initialize(make_net(1, 1001), {.config = config}).engine;
}

template <class Engine>
void go_on(Engine& engine, int64_t steps) {
  for (const int64_t last = engine.global_steps() + steps; engine.global_steps() < last;) {
    auto [x, y] = make_batch(engine.global_steps() * engine.world_size() + engine.rank(), 4);
    engine.backward(engine.forward(x, y));
    engine.step();
  }
}

RANK_BODY(machines) {
  const std::string machine = go_to_my_machine(variable("FOLDER"));
  auto engine = engine_of_machines();
  go_on(*engine, 2);
  engine->save_checkpoint("run", {.tag = "two"});
  go_on(*engine, 1);
  engine->save_checkpoint("run", {.tag = "three"});
  go_on(*engine, 2);
  const at::Tensor straight = parameters_of(*engine);
  engine.reset();
  for (const uint32_t rank : {0, 1, 2, 3})
    expect(
        fs::exists(machine + "/run/two/rank-0000" + std::to_string(rank) + ".safetensors") == (rank / 2 == world()->rank() / 2),
        "a machine has its ranks' files");

  engine = engine_of_machines();
  engine->load_checkpoint("run", {});
  ranks::same(engine->global_steps(), int64_t{3}, "the newest");
  go_on(*engine, 2);
  expect(torch::equal(parameters_of(*engine), straight), "goes on bit for bit");
  engine.reset();

  world()->barrier();
  if (world()->rank() == 2) fs::remove_all("run/three");  // a save that the second machine did not get
  world()->barrier();
  engine = engine_of_machines();
  const auto receipt = engine->load_checkpoint("run", {});
  ranks::same(engine->global_steps(), int64_t{2}, "the newest that both machines have");
  expect(receipt.to_string().find("passed over three: rank 2") != std::string::npos, receipt.to_string());
  go_on(*engine, 3);
  expect(torch::equal(parameters_of(*engine), straight), "goes on bit for bit from there, too");
  engine.reset();

  world()->barrier();
  if (world()->rank() == 0) fs::remove_all("run");  // a machine that is new
  world()->barrier();
  engine = engine_of_machines();
  contains(message_of([&] { engine->load_checkpoint("run", {.if_present = true}); }),
           "rank 0's machine has no checkpoint in run, rank 2's has 'two'");
}

TEST(Machines, EachKeepsItsOwnFilesAndAllGoOnFromWhatAllHave) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(stage);
    const fs::path folder = fs::current_path() / ("machines-" + std::to_string(::getpid()));
    ranks::expect_all_succeed(run_ranks("machines", 4, {.environment = {{"STAGE", stage}, {"FOLDER", folder}}}));
    fs::remove_all(folder);
  }
}

// Elsewhere than it was: told which file, and what to do; copied together it is a checkpoint like others.
RANK_BODY(elsewhere) {
  const std::string folder = variable("FOLDER");
  go_to_my_machine(folder);
  {
    auto engine = engine_of_machines();
    go_on(*engine, 2);
    engine->save_checkpoint("run", {.tag = "two"});
    go_on(*engine, 1);
    const at::Tensor straight = parameters_of(*engine);
    world()->barrier();
    if (world()->rank() == 0) {
      fs::create_directories(folder + "/together");
      fs::copy(folder + "/machine1/run", folder + "/together", fs::copy_options::recursive);
      fs::copy(folder + "/machine0/run/two", folder + "/together/two",
               fs::copy_options::recursive | fs::copy_options::skip_existing);
    }
    world()->barrier();
    auto again = engine_of_machines();
    again->load_checkpoint(folder + "/together", {.lock_folder = false});  // the lock of a living job was copied too
    go_on(*again, 1);
    expect(torch::equal(parameters_of(*again), straight), "goes on from the folders copied into one");
  }
  const std::string other = folder + "/machine" + std::to_string(1 - world()->rank() / 2);
  if (::chdir(other.c_str()) != 0) throw std::runtime_error("cannot go to " + other);
  auto engine = engine_of_machines();
  try {
    engine->load_checkpoint("run", {});
    expect(false, "the machines were exchanged, and nobody noticed");
  } catch (const gannet::Error& error) {
    const std::string text = error.what();
    expect(text.find("which another machine has") != std::string::npos && text.find("into one") != std::string::npos, text);
  }
}

TEST(Machines, ElsewhereIsAnErrorAndCopiedTogetherIsACheckpoint) {
  const fs::path folder = fs::current_path() / ("machines-" + std::to_string(::getpid()));
  ranks::expect_all_succeed(run_ranks("elsewhere", 4, {.environment = {{"STAGE", "2"}, {"FOLDER", folder}}}));
  fs::remove_all(folder);
}

}  // namespace
