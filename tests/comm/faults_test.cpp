// Errors on a rank when another rank dies or does not join a collective.
#include <gannet/distributed.h>
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "comm/ranks.h"
#include "comm/raw_group.h"
#include "control/world.h"

namespace {

using gannet::test::RawGroup;
using ranks::run_ranks;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

RANK_BODY(dead_peer) {
  auto group = gannet::init_distributed();
  if (group->rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    raise(SIGKILL);
  }
  std::vector<float> buffer(100'000);
  const auto start = Clock::now();
  try {
    RawGroup{group->links().device()}.all_reduce(buffer.data(), buffer.size(), GANNET_FLOAT32).wait();
  } catch (const gannet::Error& error) {
    ranks::expect(seconds_since(start) < 10, "a lost peer is seen within 10 s");
    throw;
  }
}
TEST(Gloo, ADeadPeerInACollectiveIsAnErrorOnEveryOtherRank) {
  const auto outcomes = run_ranks("dead_peer", 3);
  EXPECT_EQ(outcomes[1].status, 128 + SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].status, 3) << outcomes[rank].output;
    EXPECT_THAT(outcomes[rank].output, HasSubstr("Error(peer lost)"));
    EXPECT_THAT(outcomes[rank].output, HasSubstr("all_reduce of 400000 bytes in group 'world'"));
    EXPECT_THAT(outcomes[rank].output, HasSubstr("Gloo says:"));
  }
}

std::set<int> connections_of_this_process() {
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    sockaddr_storage peer;
    socklen_t size = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.ss_family != AF_UNIX)
      found.insert(descriptor);
  }
  return found;
}

template <class Start>
void expect_peer_lost(const std::string& doing, Start&& start) {
  try {
    start().wait();
  } catch (const gannet::Error& error) {
    ranks::expect(error.code() == gannet::ErrorCode::kPeerLost, doing + ": " + error.what());
    return;
  }
  throw std::runtime_error(doing + " completed over a closed connection");
}

// Rank 0 writes to connections that are shut down, as after a reset by the peer. The peers are stopped meanwhile, so that Gloo's
// own threads do not see the end first.
RANK_BODY(shut_connections) {
  namespace collective = gannet::collective;
  signal(SIGPIPE, SIG_DFL);
  auto group = gannet::init_distributed();
  const auto before = connections_of_this_process();
  gannet::CommGroup made(group->world()->comm(), {0, 1, 2}, "shut");
  RawGroup all{made};
  const int32_t own = getpid();
  int32_t pids[3];
  all.all_gather(&own, pids, 1, GANNET_INT32).wait();
  std::vector<float> buffer(1000);
  const auto sent = [&](uint32_t to) { return all.start(collective::send(buffer.data(), buffer.size(), GANNET_FLOAT32, to)); };
  const auto received = [&](uint32_t from) {
    return all.start(collective::receive(buffer.data(), buffer.size(), GANNET_FLOAT32, from));
  };
  if (group->rank() == 0) {
    std::set<int> made_for_group = connections_of_this_process();
    for (const int old : before) made_for_group.erase(old);
    ranks::expect(made_for_group.size() >= 2, "a connection to each other rank");
    if (fork() == 0) {  // another process, so that the peers end if this one dies
      sleep(1);
      for (const int rank : {1, 2}) kill(pids[rank], SIGCONT);
      _exit(0);
    }
    for (const int rank : {1, 2}) kill(pids[rank], SIGSTOP);
    for (const int connection : made_for_group) shutdown(connection, SHUT_WR);
    expect_peer_lost("a send", [&] { return sent(1); });
    expect_peer_lost("a receive", [&] { return received(2); });
    sigset_t set;
    sigpending(&set);
    ranks::expect(!sigismember(&set, SIGPIPE), "no SIGPIPE is pending in the caller");
    pthread_sigmask(SIG_BLOCK, nullptr, &set);
    ranks::expect(!sigismember(&set, SIGPIPE), "the caller's signal mask is as before");
  } else if (group->rank() == 1) {
    expect_peer_lost("a receive", [&] { return received(0); });
  } else {
    expect_peer_lost("a send", [&] { return sent(0); });
  }
}
TEST(Gloo, AWriteToAShutConnectionIsAnErrorAndNoSignal) { ranks::expect_all_succeed(run_ranks("shut_connections", 3)); }

gannet::DistributedOptions three_seconds() {
  gannet::DistributedOptions options;
  options.timeout_seconds = 3;
  return options;
}

// Rank 1 is alive and does not come. Rank 0 gets a time-out, may wait again, and can still end its world.
RANK_BODY(late_peer) {
  auto group = gannet::init_distributed(three_seconds());
  RawGroup world{group->links().device()};
  if (group->rank() == 1) {
    while (!std::filesystem::exists(std::getenv("TIMED_OUT"))) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::vector<double> buffer(10, 2.0);
    world.all_reduce(buffer.data(), buffer.size(), GANNET_FLOAT64).wait();
    return;
  }
  std::vector<double> buffer(10, 1.0);
  auto work = world.all_reduce(buffer.data(), buffer.size(), GANNET_FLOAT64);
  const auto start = Clock::now();
  try {
    work.wait();
    throw std::runtime_error("the collective completed without rank 1");
  } catch (const gannet::Error& error) {
    ranks::expect(error.code() == gannet::ErrorCode::kTimeout, error.what());
    ranks::expect(seconds_since(start) > 2.9 && seconds_since(start) < 30, "the time-out comes after 3 s");
  }
  ranks::expect(work.pending(), "the work stays pending");
  std::ofstream(std::getenv("TIMED_OUT")) << "now the other rank may come";
  work.wait();
  ranks::same(buffer[9], 3.0, "the sum after the second wait");
}
TEST(Gloo, ALatePeerIsATimeOutAndTheWorkCanBeWaitedForAgain) {
  const std::string mark = (std::filesystem::temp_directory_path() / ("gannet_late_peer_" + std::to_string(getpid()))).string();
  ranks::expect_all_succeed(run_ranks("late_peer", 2, {.environment = {{"TIMED_OUT", mark}}}));
  std::filesystem::remove(mark);
}

RANK_BODY(aborts) {
  auto group = gannet::init_distributed(three_seconds());
  std::vector<float> buffer(1000);
  const auto start = Clock::now();
  if (group->rank() == 0) {
    auto work = RawGroup{group->links().device()}.all_reduce(buffer.data(), buffer.size(), GANNET_FLOAT32);
    std::thread aborter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      group->world()->comm().abort();
    });
    try {
      work.wait();
      aborter.join();
      throw std::runtime_error("an aborted collective completed");
    } catch (const gannet::Error& error) {
      aborter.join();
      ranks::expect(std::string(error.what()).find("aborted by this rank") != std::string::npos, error.what());
    }
    group.reset();
    gannet::destroy_distributed();
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    try {
      RawGroup{group->links().device()}.all_reduce(buffer.data(), buffer.size(), GANNET_FLOAT32).wait();
      throw std::runtime_error("a collective completed without rank 0");
    } catch (const gannet::Error& error) {
      ranks::expect(error.code() == gannet::ErrorCode::kPeerLost, error.what());
    }
    group.reset();
    gannet::destroy_distributed();
  }
  ranks::expect(seconds_since(start) < 9, "an aborted world ends without waiting for Gloo's own time-out");
}
TEST(Gloo, AbortEndsWhatIsInFlightHereAndIsSeenByThePeers) { ranks::expect_all_succeed(run_ranks("aborts", 2)); }

}  // namespace
