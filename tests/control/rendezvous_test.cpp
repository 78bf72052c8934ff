// How ranks meet, agree and part: real processes, real ports.
#include "control/rendezvous.h"

#include <gannet/distributed.h>
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <set>
#include <thread>

#include "comm/ranks.h"
#include "comm/raw_group.h"
#include "control/network.h"
#include "control/world.h"

namespace {

using gannet::control::disagreement;
using gannet::control::name_ranks;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;
using testing::HasSubstr;
using testing::Not;

TEST(NameRanks, WritesRunsAsRanges) {
  EXPECT_EQ(name_ranks({1}), "rank 1");
  EXPECT_EQ(name_ranks({1, 3}), "ranks 1, 3");
  EXPECT_EQ(name_ranks({0, 1, 3, 4, 5, 9}), "ranks 0, 1, 3-5, 9");
}

TEST(Disagreement, NamesWhoDiffersAndTheFirstLineThatDoes) {
  EXPECT_EQ(disagreement("the plugins", {"a\nb", "a\nb", "a\nb"}), "");
  EXPECT_EQ(disagreement("the plugins", {"a\nb", "a\nc", "a\nb", "a\nc"}),
            "the ranks differ in the plugins: ranks 1, 3 have 'c' where rank 0 has 'b'");
  EXPECT_EQ(disagreement("the config", {"a\nb", "a"}), "the ranks differ in the config: rank 1 has nothing where rank 0 has 'b'");
  EXPECT_THAT(disagreement("it", {"0", "1", "2", "3", "4", "5"}), HasSubstr("rank 3 has '3' where rank 0 has '0'; and 2 more"));
}

gannet::DistributedOptions three_seconds() {
  gannet::DistributedOptions options;
  options.timeout_seconds = 3;
  return options;
}

RANK_BODY(who_am_i) {
  auto world = gannet::init_distributed();
  expect(gannet::is_distributed_initialized(), "initialized");
  same(gannet::init_distributed(), world, "a later call returns the same world");
  same(std::to_string(world->rank()), std::string(std::getenv("RANK")), "rank");
  same(world->size(), 3u, "size");
  same(world->local_rank(), world->rank(), "local rank");
  world->world()->agree("nothing of note", "the same");
  gannet::destroy_distributed();
  expect(!gannet::is_distributed_initialized(), "destroyed");
}
TEST(World, RanksMeetAgreeAndPart) { expect_all_succeed(run_ranks("who_am_i", 3)); }
TEST(World, LocalRanksAreCountedWhereTheyAreNotGiven) {
  expect_all_succeed(run_ranks("who_am_i", 3, {.environment = {{"LOCAL_RANK", ""}}}));
}

RANK_BODY(again_and_again) {
  for (int round = 0; round < 3; ++round) {
    auto world = gannet::init_distributed();
    int32_t sum = 1;
    gannet::test::RawGroup{world->links().device()}.all_reduce(&sum, 1, GANNET_INT32).wait();
    same(sum, 2, "sum of round " + std::to_string(round));
    world.reset();
    gannet::destroy_distributed();
  }
}
TEST(World, CanBeMadeAgainAfterItWasDestroyed) { expect_all_succeed(run_ranks("again_and_again", 2)); }

RANK_BODY(ends_without_goodbye) { gannet::init_distributed()->barrier(); }
TEST(World, AProgramMayEndWithoutDestroyingIt) {
  for (int round = 0; round < 3; ++round) expect_all_succeed(run_ranks("ends_without_goodbye", 3));
}

RANK_BODY(signals_stay_with_the_program) {
  auto world = gannet::init_distributed();
  static std::atomic<pthread_t> handled_on;
  handled_on = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { handled_on = pthread_self(); };
  sigaction(SIGUSR1, &action, nullptr);
  for (int i = 0; i < 50; ++i) {
    handled_on = 0;
    kill(getpid(), SIGUSR1);
    while (handled_on == 0) std::this_thread::yield();
    expect(handled_on == pthread_self(), "a signal of the process is handled on the program's own thread");
  }
  // With the program's only thread blocking the signal, no thread takes it.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  handled_on = 0;
  kill(getpid(), SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  expect(handled_on == 0, "no service thread takes a signal that the program blocks");
  world->barrier();
}
TEST(World, ServiceThreadsTakeNoSignals) { expect_all_succeed(run_ranks("signals_stay_with_the_program", 2)); }

RANK_BODY(three_seconds_only) { gannet::init_distributed(three_seconds()); }
TEST(Rendezvous, ARankThatNeverArrivesIsNamedAtTheTimeOut) {
  const auto outcomes = run_ranks("three_seconds_only", 4, {.absent = {1, 3}});
  ASSERT_EQ(outcomes.size(), 2u);
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.status, 3);
    EXPECT_THAT(outcome.output, HasSubstr("Error(time-out): ranks 1, 3 of 4 did not arrive at the rendezvous at 127.0.0.1:"));
    EXPECT_THAT(outcome.output, HasSubstr("within 3 s"));
    EXPECT_THAT(outcome.output, Not(HasSubstr("c10d")));  // its own warnings would bury the sentence
  }
}
TEST(Rendezvous, WithoutRankZeroTheOthersSayWhereTheyLookedForIt) {
  const auto outcomes = run_ranks("three_seconds_only", 2, {.absent = {0}});
  EXPECT_EQ(outcomes[0].status, 3);
  EXPECT_THAT(outcomes[0].output, HasSubstr("rank 1 of 2 could not reach rank 0 at 127.0.0.1:"));
  EXPECT_THAT(outcomes[0].output, HasSubstr("Connection refused"));
}

// The wait's own rhythm is 10 s; here it is 1 s, so that the test need not wait.
RANK_BODY(impatient) {
  const auto environment = gannet::control::discover(gannet::control::variables_of_this_process(), {});
  gannet::control::meet(environment, 0,
                        gannet::control::Patience(std::chrono::milliseconds(2'500), std::chrono::milliseconds(1'000)));
}
TEST(Rendezvous, SaysWhoItWaitsForWhileItWaits) {
  const auto outcomes = run_ranks("impatient", 4, {.absent = {1, 3}});
  EXPECT_THAT(outcomes[0].output, HasSubstr("[gannet 0] waiting for ranks 1, 3 of 4 at the rendezvous at 127.0.0.1:"));
  EXPECT_THAT(outcomes[0].output, HasSubstr("(1 s of 2.5 s)"));
  EXPECT_THAT(outcomes[0].output, HasSubstr("(2 s of 2.5 s)"));
}

// As where --node_rank 0 is given to another machine than the one that --master_addr names.
TEST(Rendezvous, AnAddressOfAnotherMachineIsSaidWhileRankZeroWaits) {
  const auto outcome = ranks::run_one("impatient", {{"RANK", "0"},
                                                    {"WORLD_SIZE", "2"},
                                                    {"LOCAL_RANK", "0"},
                                                    {"MASTER_ADDR", "192.0.2.1"},  // of documentation: RFC 5737
                                                    {"MASTER_PORT", std::to_string(ranks::free_port())}});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.output, HasSubstr("waiting for rank 1 of 2 at the rendezvous at 192.0.2.1:"));
  EXPECT_THAT(outcome.output, HasSubstr(", which is not an address of rank 0's machine,"));
}

TEST(Rendezvous, APortInUseIsNamedWithWhatToDo) {
  const int port = ranks::free_port();
  const auto taken = gannet::control::listen_on(static_cast<uint16_t>(port));
  const auto outcome = ranks::run_one("three_seconds_only", {{"RANK", "0"},
                                                             {"WORLD_SIZE", "2"},
                                                             {"LOCAL_RANK", "0"},
                                                             {"MASTER_ADDR", "127.0.0.1"},
                                                             {"MASTER_PORT", std::to_string(port)}});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.output,
              HasSubstr("Error(unavailable): port " + std::to_string(port) + " (MASTER_PORT) is in use by another program"));
  EXPECT_THAT(outcome.output, HasSubstr("choose another port"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("EADDRINUSE")));
}

TEST(Rendezvous, TwoProcessesOfTheSameRankAreTold) {
  // Both say that they are rank 1 (the second by its body's own setting), rank 0 waits for rank 2.
  const auto outcomes = run_ranks("rank_one_twice", 3);
  const auto told = [](const ranks::Outcome& outcome) {
    return outcome.output.find("another process has already announced itself as rank 1") != std::string::npos;
  };
  EXPECT_EQ(told(outcomes[1]) + told(outcomes[2]), 1) << outcomes[1].output << outcomes[2].output;
}
RANK_BODY(rank_one_twice) {
  if (std::string(std::getenv("RANK")) == "2") setenv("RANK", "1", 1), setenv("LOCAL_RANK", "1", 1);
  gannet::init_distributed(three_seconds());
}

RANK_BODY(worlds_differ) {
  auto options = three_seconds();
  if (std::string(std::getenv("RANK")) == "1") options.rank = 1, options.world_size = 2;
  gannet::init_distributed(options);
}
TEST(Rendezvous, DifferentWorldSizesAreAMismatch) {
  // Rank 2 would be waited for until the time-out; both learn before that it cannot come.
  const auto outcomes = run_ranks("worlds_differ", 3, {.absent = {2}});
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.output,
                testing::ContainsRegex("rank ([01]) was told WORLD_SIZE=[23], and (this )?rank [01] WORLD_SIZE=[23]"));
    EXPECT_THAT(outcome.output, HasSubstr("the same --num_procs and --num_nodes on every machine"));
  }
}

// A store that already serves at MASTER_PORT, as torchrun's agent does: rank 0 is a client too.
TEST(Rendezvous, AnAgentsStoreServesAllRanks) {
  const int port = ranks::free_port();
  gannet::control::Store agent({.host = "127.0.0.1",
                                .port = static_cast<uint16_t>(port),
                                .listener = gannet::control::listen_on(static_cast<uint16_t>(port)).release()});
  const auto meet = [&](uint32_t ranks) {
    expect_all_succeed(
        run_ranks("ends_without_goodbye", ranks,
                  {.environment = {{"MASTER_PORT", std::to_string(port)}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}}));
  };
  meet(3);
  meet(3);
  meet(2);                          // a machine has left
  agent.add("gannet/0/starts", 1);  // a rank 0 that ended before the others came
  agent.set("gannet/0/start/4/1", "a rank that ended with it");
  meet(3);
}

RANK_BODY(disagree) {
  auto world = gannet::init_distributed();
  world->world()->agree("the config", "stage 0\nlr 0.1");
  world->world()->agree("the plugins", world->rank() == 2 ? "adam 1.0\nsgd 1.1" : "adam 1.0\nsgd 1.0");
}
TEST(Agree, ADifferenceIsTheSameErrorOnEveryRank) {
  for (const auto& outcome : run_ranks("disagree", 3)) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.output,
                HasSubstr("Error(mismatch): the ranks differ in the plugins: rank 2 has 'sgd 1.1' where rank 0 has 'sgd 1.0'"));
  }
}

RANK_BODY(one_does_not_agree) {
  gannet::DistributedOptions options;
  options.timeout_seconds = 8;  // of the rendezvous too, on a loaded machine
  auto world = gannet::init_distributed(options);
  if (world->rank() == 1)
    std::this_thread::sleep_for(std::chrono::seconds(11));
  else
    world->world()->agree("the plugins", "x");
}
TEST(Agree, ARankThatNeverAsksIsNamedAtTheTimeOut) {
  const auto outcomes = run_ranks("one_does_not_agree", 3);
  EXPECT_THAT(outcomes[0].output, HasSubstr("Error(time-out): rank 1 of 3 did not arrive to compare the plugins within 8 s"));
  EXPECT_THAT(outcomes[2].output, HasSubstr("rank 1 of 3 did not arrive to compare the plugins"));
}

RANK_BODY(another_comm) {
  auto world = gannet::init_distributed();
  gannet::DistributedOptions options;
  options.comm = "Local";
  gannet::init_distributed(options);  // what is open already, in another spelling
  options.comm = "gloo";
  gannet::init_distributed(options);
}
TEST(World, AskingLaterForAnotherCommIsAnError) {
  const auto outcome = ranks::run_one("another_comm", {{"RANK", ""}, {"WORLD_SIZE", ""}});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("comm 'gloo' is asked for, but the world was made with 'local'"));
}

RANK_BODY(other_comm_params) {
  const gannet::Dict loopback{{"interface", "lo"}};
  gannet::DistributedOptions options = three_seconds();
  options.comm = "gloo";
  options.comm_params = loopback;
  gannet::init_distributed(options);
  gannet::init_distributed(options);
  options.comm_params = {};
  gannet::init_distributed(options);  // asks for nothing
  options.comm_params = gannet::Dict{{"interface", "eth7"}};
  gannet::init_distributed(options);
}
TEST(World, AskingLaterForOtherParamsIsAnError) {
  for (const auto& outcome : run_ranks("other_comm_params", 2)) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.output, HasSubstr("comm plugin 'gloo' is asked for with the parameter 'interface' \"eth7\", but an "
                                          "earlier call opened it with \"lo\""));
  }
}

RANK_BODY(wrong_interface) {
  gannet::DistributedOptions options = three_seconds();
  options.comm_params = gannet::Dict{{"interface", "nosuch0"}};
  gannet::init_distributed(options);
}
TEST(World, AnInterfaceThatIsNotThereIsNamed) {
  for (const auto& outcome : run_ranks("wrong_interface", 2)) {
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.output, HasSubstr("nosuch0"));
  }
}

TEST(Network, ALoopbackLeadsToItself) {
  EXPECT_EQ(gannet::control::address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_TRUE(gannet::control::is_loopback("127.0.1.1"));
  EXPECT_FALSE(gannet::control::is_loopback("10.0.0.1"));
  EXPECT_EQ(gannet::control::address_towards("no-such-name.invalid"), "");
}

}  // namespace
