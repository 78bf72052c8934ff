// Where time goes: phases that are added up, and the trace that shows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "observe/timers.h"

namespace {
std::atomic<int64_t> allocations{0};
}

void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace gannet {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::milliseconds;

std::map<std::string, double> by_name(const std::vector<std::pair<std::string, double>>& phases) {
  return {phases.begin(), phases.end()};
}

TEST(Timers, APhaseHasNoPartOfThePhasesWithinIt) {
  Timers timers;
  const auto began = Timers::Clock::now();
  {
    Timers::Scope step(timers, TimedPhase::kStep);
    {
      Timers::Scope update(timers, TimedPhase::kUpdate);
      std::this_thread::sleep_for(milliseconds(20));
      Timers::Wait page(timers, TimedPhase::kOffload);
      std::this_thread::sleep_for(milliseconds(30));
    }
    std::thread([&] {
      Timers::Wait gather(timers, TimedPhase::kGather);
      std::this_thread::sleep_for(milliseconds(10));
    }).join();
  }
  const double seconds = std::chrono::duration<double>(Timers::Clock::now() - began).count();
  const Timers::Times times = timers.now();
  EXPECT_GE(times.own(TimedPhase::kUpdate), 0.020);
  EXPECT_GE(times.own(TimedPhase::kOffload), 0.030);
  EXPECT_DOUBLE_EQ(times.whole(TimedPhase::kUpdate), times.own(TimedPhase::kUpdate) + times.own(TimedPhase::kOffload));
  EXPECT_DOUBLE_EQ(times.within(TimedPhase::kStep, TimedPhase::kGather), times.own(TimedPhase::kGather))
      << "a wait on another thread is within the engine's phase";
  EXPECT_NEAR(times.own(TimedPhase::kStep),
              times.whole(TimedPhase::kStep) - times.whole(TimedPhase::kUpdate) - times.own(TimedPhase::kGather), 1e-9);
  double sum = 0;
  for (const auto& [name, one] : times.phases()) sum += one;
  EXPECT_LE(sum, seconds);
  EXPECT_THAT(by_name(times.phases()),
              testing::UnorderedElementsAre(testing::Key("update"), testing::Key("offload"), testing::Key("gather")));
}

TEST(Timers, AWaitInItsOwnPhaseCountsOnce) {
  Timers timers;
  {
    Timers::Scope reduce(timers, TimedPhase::kReduce);
    Timers::Wait wait(timers, TimedPhase::kReduce);
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_DOUBLE_EQ(timers.now().own(TimedPhase::kReduce), timers.now().within(TimedPhase::kNone, TimedPhase::kReduce));
}

TEST(Timers, TheBreakdownReadsAsDeepSpeedsLine) {
  Timers::Times times;
  const auto put = [&](TimedPhase around, TimedPhase phase, int64_t ms) {
    times.ns[static_cast<size_t>(around)][static_cast<size_t>(phase)] = ms * 1'000'000;
  };
  put(TimedPhase::kNone, TimedPhase::kForward, 10);
  put(TimedPhase::kNone, TimedPhase::kBackward, 20);
  put(TimedPhase::kBackward, TimedPhase::kReduce, 3);
  put(TimedPhase::kNone, TimedPhase::kStep, 9);
  put(TimedPhase::kStep, TimedPhase::kReduce, 4);
  put(TimedPhase::kStep, TimedPhase::kUpdate, 5);
  EXPECT_EQ(Breakdown(times).to_string(""),
            "time (ms) | fwd: 10.00 | bwd: 24.00 | bwd_inner: 17.00 | bwd_allreduce: 7.00 | step: 5.00");
  EXPECT_EQ(Breakdown(times).to_string("_microstep"),
            "time (ms) | fwd_microstep: 10.00 | bwd_microstep: 24.00 | bwd_inner_microstep: 17.00 | bwd_allreduce_microstep: "
            "7.00 | step_microstep: 5.00");
}

TEST(Timers, TimingAllocatesNothing) {
  Timers timers;
  const int64_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    Timers::Scope scope(timers, TimedPhase::kUpdate);
    Timers::Wait wait(timers, TimedPhase::kOffload);
  }
  EXPECT_EQ(allocations, before);
  ::operator delete(::operator new(8));
  EXPECT_GT(allocations, before) << "the count counts";
}

class Traces : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  fs::path folder_ = "monitor_traces_" + std::to_string(::getpid());
};

TEST_F(Traces, OnlyItsStepsAreInTheFileAndItIsWholeOnceTheyAreOver) {
  observe::Trace trace({.path = (folder_ / "trace.json").string(), .first_step = 2, .last_step = 3, .rank = 1});
  Timers timers;
  timers.trace = &trace;
  for (int64_t step = 1; step <= 4; ++step) {
    trace.at(step, 0);
    EXPECT_EQ(timers.is_traced(), step == 2 || step == 3);
    const auto began = Timers::Clock::now();
    Timers::Scope scope(timers, TimedPhase::kUpdate);
    if (timers.is_traced()) trace.flight("gather", "h.0.\"weight\"", began, Timers::Clock::now(), 4096);
  }
  const Json events = Json::parse(read("trace.rank1.json"));  // while the run goes on
  ASSERT_THAT(events, testing::SizeIs(2 + 2 * 3));
  const Json& flight = events[2];
  EXPECT_EQ(flight["name"], "h.0.\"weight\"");
  EXPECT_EQ(flight["cat"], "gather");
  EXPECT_EQ(flight["ph"], "b");
  EXPECT_EQ(flight["args"]["bytes"], 4096);
  EXPECT_EQ(events[3]["ph"], "e");
  EXPECT_EQ(events[3]["id"], flight["id"]);
  const Json& span = events[4];
  EXPECT_EQ(span["name"], "update");
  EXPECT_EQ(span["ph"], "X");
  EXPECT_EQ(span["pid"], 1);
  EXPECT_EQ(span["args"], Json::parse(R"({"step": 2, "micro_batch": 0})"));
  EXPECT_GE(span["dur"].get<double>(), 0);
}

TEST_F(Traces, WhatARunThatDiedLeftIsAnArrayWithoutItsEnd) {
  auto* trace = new observe::Trace({.path = (folder_ / "{rank}.json").string(), .first_step = 1, .last_step = 9, .rank = 3});
  trace->at(1, 0);
  const auto now = Timers::Clock::now();
  trace->span("forward", now, now);
  trace->at(2, 0);
  EXPECT_THAT(Json::parse(read("3.json") + "]"), testing::SizeIs(3)) << "as Perfetto reads it";
  delete trace;
  EXPECT_THAT(Json::parse(read("3.json")), testing::SizeIs(3));
}

TEST(TracePath, HasTheRankWhereItIsAskedForAndBesideItElse) {
  EXPECT_EQ(observe::trace_path("a.b/t", 0), "a.b/t");
  EXPECT_EQ(observe::trace_path("a.b/t", 2), "a.b/t.rank2");
  EXPECT_EQ(observe::trace_path("a/trace.json", 2), "a/trace.rank2.json");
  EXPECT_EQ(observe::trace_path("{rank}/trace.json", 0), "0/trace.json");
}

}  // namespace
}  // namespace gannet
