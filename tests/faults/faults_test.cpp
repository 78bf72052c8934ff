// Behaviour of the other ranks when one is killed, stopped, returns early, or calls something else:
// real processes, real faults.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <thread>

#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "comm/ranks.h"
#include "comm/raw_group.h"
#include "control/world.h"
#include "engine/models.h"
#include "faults/trains.h"

namespace {

using namespace std::chrono_literals;
using ranks::Outcome;
using ranks::run_ranks;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;
using gannet::test::fault;

#ifdef __SANITIZE_THREAD__
constexpr std::chrono::seconds kLimit = 240s;  // to load LibTorch a few dozen times at once, instrumented, takes half a minute
#else
constexpr std::chrono::seconds kLimit = 30s;
#endif

struct Scenario {
  std::string fault, where;
  int ranks = 2;
  int victim = 1;
  std::string expected;
  std::string stage = "", tier = "";  // of ZeRO
};

struct Played {
  Scenario scenario;
  std::vector<Outcome> outcomes;
  double seconds = 0;
  std::string checkpoints;  // the folder's newest complete one, "" for none, and other entries in it
};

Played play(const Scenario& scenario) {
  static std::atomic<int> number{0};
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("gannet-faults-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  // On the build's own disk: the folder of temporary files may be one in memory, which takes no direct I/O.
  const std::filesystem::path drive = std::filesystem::current_path() / (folder.filename().string() + "-drive");
  std::filesystem::create_directories(drive);
  ranks::Options options{.environment = {{"FAULT", scenario.fault},
                                         {"WHERE", scenario.where},
                                         {"VICTIM", std::to_string(scenario.victim)},
                                         {"FOLDER", folder},
                                         {"STAGE", scenario.stage},
                                         {"TIER", scenario.tier},
                                         {"DRIVE", drive}},
                         .limit = kLimit};
  if (scenario.fault == "stop") options.stuck = {static_cast<uint32_t>(scenario.victim)};
  const auto start = Clock::now();
  auto outcomes = run_ranks("trains", scenario.ranks, options);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::filesystem::remove_all(drive);  // with what a killed rank left there
  std::string checkpoints;
  if (std::filesystem::exists(folder)) {
    checkpoints = gannet::checkpoint::open(folder, {}).tag();
    // The next save clears the leftovers of the broken one.
    gannet::checkpoint::Content content;
    content.tag = "next";
    gannet::checkpoint::Saver(folder, {}).save(content, {});
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename().string().find(".tmp-") != std::string::npos)
        checkpoints += ", left " + entry.path().filename().string();
    std::filesystem::remove_all(folder);
  }
  return {scenario, outcomes, seconds, checkpoints};
}

// All at once: a fault is mostly waiting.
std::vector<Played> play_all(const std::vector<Scenario>& scenarios) {
  std::vector<std::future<Played>> futures;
  for (const auto& scenario : scenarios) futures.push_back(std::async(std::launch::async, play, scenario));
  std::vector<Played> played;
  for (auto& future : futures) played.push_back(future.get());
  return played;
}

void expect_told(const Played& played) {
  const Scenario& scenario = played.scenario;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    if (rank == scenario.victim) continue;
    const Outcome& outcome = played.outcomes[rank];
    SCOPED_TRACE(scenario.fault + " in " + scenario.where +
                 (scenario.stage.empty() ? "" : ", ZeRO stage " + scenario.stage + " " + scenario.tier) + ", " +
                 std::to_string(scenario.ranks) + " ranks, rank " + std::to_string(rank) + " said:\n" + outcome.output);
    EXPECT_EQ(outcome.status, 3);
    EXPECT_THAT(outcome.output, HasSubstr(scenario.expected));
    EXPECT_LT(gannet::test::seconds_to_the_error(outcome.output), 10);
    if (scenario.where == "save") EXPECT_EQ(played.checkpoints, "global_step2") << "the one before stays the newest";
    if (scenario.where == "load") EXPECT_EQ(played.checkpoints, "global_step3");
    if (scenario.fault != "stop") continue;
    EXPECT_THAT(outcome.output, HasSubstr("[gannet " + std::to_string(rank) + "] waiting in "));
    EXPECT_THAT(outcome.output, HasSubstr("of 3 s) for rank " + std::to_string(scenario.victim) + ": "));
    EXPECT_THAT(outcome.output, HasSubstr("Error(time-out): rank " + std::to_string(scenario.victim) + " is late: "));
  }
}

TEST(Faults, AKilledRankIsNamedWithItsPlaceOnAllOthers) {
  for (const auto& played : play_all({
           {"kill", "forward", 2, 1, "Error(peer lost): rank 1 has died after step() of step 2; rank 0 is in "},
           {"kill", "backward", 2, 1, "Error(peer lost): rank 1 has died in backward() of step 3; rank 0 is in "},
           {"kill", "step", 4, 1, "Error(peer lost): rank 1 has died in step() of step 3; "},
           {"kill", "barrier", 2, 1, "Error(peer lost): rank 1 has died in barrier()"},
           {"kill", "backward", 2, 0, "Error(peer lost): rank 0 has died; it was last seen "},
           {"kill", "save", 2, 1, "Error(peer lost): rank 1 has died in save_checkpoint() of step 3"},
           {"kill", "save", 4, 2, "Error(peer lost): rank 2 has died in save_checkpoint() of step 3"},
           {"kill", "load", 2, 1, "Error(peer lost): rank 1 has died in load_checkpoint()"},
           {"kill", "load", 4, 0, "Error(peer lost): rank 0 has died; it was last seen "},
       }))
    expect_told(played);
}

TEST(Faults, ARankKilledWhileItsShardsAreNeededIsNamed) {
  std::vector<Scenario> scenarios;
  for (const auto& [where, place] : {std::pair{"forward", "after step() of step 2"},
                                     {"backward", "in backward() of step 3"},
                                     {"reduce", "in backward() of step 3"},
                                     {"step", "in step() of step 3"},
                                     {"save", "in save_checkpoint() of step 3"},
                                     {"load", "in load_checkpoint()"}})
    for (const auto& [stage, tier] : {std::pair{"2", ""}, {"3", ""}, {"3", "nvme"}})
      scenarios.push_back({"kill", where, 2, 1, std::string("Error(peer lost): rank 1 has died ") + place, stage, tier});
  scenarios.push_back({"kill", "forward", 4, 0, "Error(peer lost): rank 0 has died; it was last seen ", "3", ""});
  scenarios.push_back({"stop", "forward", 2, 1, "Error(time-out): rank 1 is late: ", "3", ""});
  scenarios.push_back({"stop", "reduce", 2, 1, "Error(time-out): rank 1 is late: ", "3", "nvme"});
  for (size_t first = 0; first < scenarios.size(); first += 7)  // so many processes at a time
    for (const auto& played : play_all({scenarios.begin() + first, scenarios.begin() + std::min(first + 7, scenarios.size())}))
      expect_told(played);
}

TEST(Faults, ARankThatEndsEarlyIsNamedWithItsPlaceOnAllOthers) {
  for (const auto& played : play_all({
           {"return", "forward", 2, 1, "Error(peer lost): rank 1 has ended after step() of step 2; rank 0 is in "},
           {"return", "backward", 4, 1,
            "Error(peer lost): rank 1 has ended after an error in backward() of step 3; ranks 0, 2, 3 are in "},
           {"return", "step", 2, 1, "Error(peer lost): rank 1 has ended after an error in step() of step 3; rank 0 is in "},
           {"return", "barrier", 2, 1, "Error(peer lost): rank 1 has ended after step() of step 3; rank 0 is in barrier()"},
           {"return", "forward", 2, 0, "Error(peer lost): rank 0 has ended after step() of step 2; rank 1 is "},
           {"return", "save", 4, 3, "Error(peer lost): rank 3 has ended after an error in save_checkpoint() of step 3"},
           {"return", "load", 2, 1, "Error(peer lost): rank 1 has ended after an error in load_checkpoint()"},
       }))
    expect_told(played);
}

TEST(Faults, AStoppedRankIsNamedWhileTheOthersWaitAndIsAnErrorAtTheDeadline) {
  for (const auto& played : play_all({
           {"stop", "forward", 2, 1, "rank 1 is after step() of step 2"},
           {"stop", "backward", 4, 1, "rank 1 is in backward() of step 3"},
           {"stop", "step", 2, 1, "rank 1 is in step() of step 3"},
           {"stop", "barrier", 2, 1, "rank 1 is in barrier()"},
           {"stop", "backward", 2, 0, "rank 0, last seen "},
           {"stop", "save", 2, 1, "rank 1 is in save_checkpoint() of step 3"},
           {"stop", "load", 4, 2, "rank 2 is in load_checkpoint()"},
       }))
    expect_told(played);
}

RANK_BODY(calls_something_else) {
  using namespace gannet::test;
  auto world = gannet::init_distributed({.timeout_seconds = 30});
  auto engine = gannet::initialize(make_net(), {.config = config_with({})}).engine;
  for (int64_t step = 0; step < 6; ++step) {
    auto [x, y] = make_batch(step, 4);
    engine->backward(engine->forward(x, y));
    if (step == 2 && world->rank() == 0) world->barrier();
    engine->step();
  }
}
TEST(Faults, RanksThatCallDifferentThingsAreNamedWithWhatTheyCall) {
  const auto start = Clock::now();
  for (const auto& outcome : run_ranks("calls_something_else", 2)) {
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("Error(mismatch): the ranks make different calls: "));
    EXPECT_THAT(outcome.output, HasSubstr("barrier()"));
    EXPECT_THAT(outcome.output, HasSubstr("step() of step 3"));
  }
  EXPECT_LT(Clock::now() - start, 10s);
}

RANK_BODY(a_batch_short) {
  using namespace gannet::test;
  auto world = gannet::init_distributed({.timeout_seconds = 30});
  auto engine = gannet::initialize(make_net(), {.config = config_with({})}).engine;
  for (int64_t step = 0; step < (world->rank() == 1 ? 2 : 3); ++step) {
    auto [x, y] = make_batch(step, 4);
    engine->backward(engine->forward(x, y));
    engine->step();
  }
  engine->mean(1.0);
}
TEST(Faults, ARankWithABatchLessThanTheOthersIsNamed) {
  for (const auto& outcome : run_ranks("a_batch_short", 4)) {
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("mean() of step 2"));
    EXPECT_THAT(outcome.output, HasSubstr("backward() of step 3"));
  }
}

// A service thread that gathers is no part of the main thread's calls, and neither is a subset's engine of the others' calls.
RANK_BODY(beside_one_another) {
  auto world = gannet::init_distributed({.timeout_seconds = 30});
  auto lower = world->subset({0, 1}), upper = world->subset({2, 3});
  auto half = lower ? lower : upper;
  gannet::HostGroup service(world->world()->host_comm(), {0, 1, 2, 3}, "a service");  // each thread has a group of its own
  std::thread background([&] {
    for (int i = 0; i < 5; ++i) {
      if (world->rank() == 3) std::this_thread::sleep_for(30ms);
      const auto texts = service.gather_texts(std::to_string(world->rank()));
      ranks::same(texts.at(3), std::string("3"), "the last text");
    }
  });
  for (int i = 0; i < (world->rank() < 2 ? 20 : 5); ++i) half->barrier();
  background.join();
  world->barrier();
}
TEST(Faults, GroupsAndServiceThreadsAreNotComparedWithOneAnother) {
  ranks::expect_all_succeed(run_ranks("beside_one_another", 4));
}

RANK_BODY(dies_while_others_agree) {
  auto world = gannet::init_distributed({.timeout_seconds = 30});
  if (world->rank() == 1) {
    std::this_thread::sleep_for(200ms);
    fault();
  }
  auto call = world->world()->enter("save_checkpoint", 7, "best");
  world->world()->watch()->set_report_every(1s);
  world->world()->watch()->set_deadline(3s);
  world->world()->agree("the manifest", "x");
}
TEST(Faults, ADeadRankEndsAWaitThatGoesByTheStore) {
  const auto outcomes = run_ranks("dies_while_others_agree", 3, {.environment = {{"FAULT", "kill"}}});
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].status, 3);
    EXPECT_THAT(outcomes[rank].output, HasSubstr("Error(peer lost): rank 1 has died before its first call; ranks 0, 2 are in "
                                                 "save_checkpoint() of step 7 with tag 'best'"));
  }
}
TEST(Faults, AStoppedRankZeroEndsAWaitThatGoesByItsStore) {
  const auto outcomes = run_ranks("stopped_store", 2, {.environment = {{"FAULT", "stop"}}, .stuck = {0}, .limit = kLimit});
  EXPECT_EQ(outcomes[1].status, 3);
  EXPECT_THAT(outcomes[1].output, HasSubstr("Error(time-out): rank 0 is late: rank 1 has waited in save_checkpoint() for "));
}
RANK_BODY(stopped_store) {
  auto world = gannet::init_distributed({.timeout_seconds = 30});
  world->world()->watch()->set_deadline(3s);
  auto call = world->world()->enter("save_checkpoint");
  if (world->rank() == 0) {
    std::this_thread::sleep_for(300ms);
    fault();
  }
  world->world()->agree("the manifest", "x");
}

// One that has nothing more to do may end: the others only mind when they need it.
RANK_BODY(ends_when_it_is_not_needed) {
  auto world = gannet::init_distributed({.timeout_seconds = 30});
  auto pair = world->subset({0, 2});
  world->barrier();
  if (!pair) return;
  for (int i = 0; i < 25; ++i) {
    std::this_thread::sleep_for(100ms);
    pair->barrier();
  }
}
// Rank 0, which serves the ranks' store, is the first out of a call, and ends; the others look there how the call ended.
RANK_BODY(rank_zero_ends_first) {
  auto world = gannet::init_distributed({.timeout_seconds = 30});
  auto call = world->world()->enter(world->world()->links().host, "save_checkpoint");
  int32_t pid = world->rank() == 0 ? getpid() : 0;
  gannet::test::RawGroup{world->links().device()}.all_reduce(&pid, 1, GANNET_INT32).wait();
  if (world->rank() == 0) return;
  std::this_thread::sleep_for(1s);
  std::string word, state;  // "1234 (name) S ..."
  std::ifstream(gannet::formatted("/proc/{}/stat", pid)) >> word >> word >> state;
  ranks::expect(!state.empty() && state != "Z", "rank 0 is still there: '" + state + "'");
}
TEST(Faults, RankZeroIsThereUntilTheOthersHaveEndedItsLastCall) {
  ranks::expect_all_succeed(run_ranks("rank_zero_ends_first", 3));
}

TEST(Faults, ARankThatIsNotNeededMayEnd) { ranks::expect_all_succeed(run_ranks("ends_when_it_is_not_needed", 3)); }

RANK_BODY(calls_again_after_the_verdict) {
  auto world = gannet::init_distributed({.timeout_seconds = 30});
  if (world->rank() == 1) raise(SIGKILL);
  std::string first;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    try {
      world->barrier();
      throw std::runtime_error("a barrier without rank 1");
    } catch (const gannet::Error& error) {
      ranks::expect(error.code() == gannet::ErrorCode::kPeerLost, error.what());
      if (i > 0) ranks::expect(Clock::now() - start < 100ms, "later calls throw at once");
    }
  }
  const auto start = Clock::now();
  world.reset();
  gannet::destroy_distributed();
  ranks::expect(Clock::now() - start < 3s, "a broken world ends soon");
}
TEST(Faults, AfterTheVerdictEveryCallThrowsAtOnce) {
  const auto outcomes = run_ranks("calls_again_after_the_verdict", 3);
  for (const int rank : {0, 2}) EXPECT_EQ(outcomes[rank].status, 0) << outcomes[rank].output;
}

}  // namespace
