// Work in flight: waiting, freeing, and ranks that never come.
#include <gmock/gmock.h>

#include "comm/raw_group.h"
#include "plugin/support.h"

namespace gannet {
namespace {

using test::CapturedLog;
using test::error_of;
using testing::AllOf;
using testing::HasSubstr;

// A comm of one rank whose plugin writes what it saw to the log when it is destroyed.
template <class Body>
std::string with_fate(const char* fate, Body&& body) {
  plugin::Registry registry({.explicit_paths = {PROBE_PLUGIN}});
  const auto& probe = registry.require(GANNET_KIND_COMM, "probe");
  const Host host;
  gannet_rendezvous rendezvous{};
  rendezvous.struct_size = sizeof(rendezvous);
  rendezvous.world_size = 1;
  rendezvous.timeout_ms = 10;
  const CapturedLog log;
  {
    Comm comm(probe, plugin::parse_params(probe, {{"fate", fate}}, {}), host, rendezvous);
    CommGroup group(comm, {0}, "world");
    body(test::RawGroup{group});
  }
  return log.text();
}

TEST(WorkView, WaitingFreesTheWorkOnce) {
  const auto log = with_fate("done", [](test::RawGroup group) {
    float value = 1;
    Work work = group.all_reduce(&value, 1, GANNET_FLOAT32);
    EXPECT_TRUE(work.pending());
    work.wait();
    EXPECT_FALSE(work.pending());
    work.wait();
    group.barrier();
    EXPECT_EQ(group.group.comm().counters().calls, 2u);
  });
  EXPECT_EQ(log, "probe comm: started 2, waits 2, aborts 0, freed 2\n");
}

TEST(WorkView, AWorkThatIsGivenUpIsWaitedFor) {
  const auto log = with_fate("done", [](test::RawGroup group) {
    Work kept = group.broadcast(nullptr, 0, GANNET_FLOAT32);
    kept = group.broadcast(nullptr, 0, GANNET_FLOAT32);
    Work moved = std::move(kept);
  });
  EXPECT_EQ(log, "probe comm: started 2, waits 2, aborts 0, freed 2\n");
}

TEST(WorkView, ALostPeerIsAnErrorAndTheWorkIsFreed) {
  const auto log = with_fate("lost", [](test::RawGroup group) {
    const auto error = error_of([&] { group.barrier(); });
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_EQ(error.message(), "comm plugin probe 0.3 (" PROBE_PLUGIN "), in work_wait: rank 1 closed its connection");
  });
  EXPECT_EQ(log, "probe comm: started 1, waits 1, aborts 0, freed 1\n");
}

TEST(WorkView, AFailureThatNobodyWaitedForIsWarnedOf) {
  const auto log = with_fate("lost", [](test::RawGroup group) { group.all_reduce(nullptr, 0, GANNET_FLOAT32); });
  EXPECT_THAT(log, AllOf(HasSubstr("a collective that was never waited for failed: comm plugin probe"),
                         HasSubstr("waits 1, aborts 0, freed 1\n")));
}

TEST(WorkView, AfterATimeOutTheCallerMayWaitAgainAndGivingUpAborts) {
  const auto log = with_fate("late", [](test::RawGroup group) {
    Work work = group.all_reduce(nullptr, 0, GANNET_FLOAT32);
    EXPECT_EQ(error_of([&] { work.wait(); }).code(), ErrorCode::kTimeout);
    EXPECT_TRUE(work.pending());
    EXPECT_EQ(error_of([&] { work.wait(); }).code(), ErrorCode::kTimeout);
  });
  EXPECT_EQ(log, "probe comm: started 1, waits 2, aborts 1, freed 1\n");
}

TEST(WorkView, ACollectiveThatDoesNotStartThrowsAtOnce) {
  with_fate("done", [](test::RawGroup group) {
    const auto error = error_of([&] { group.all_to_all(nullptr, nullptr, 0, GANNET_FLOAT32); });
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.message(), HasSubstr("it has no all_to_all"));
    EXPECT_EQ(error_of([&] { CommGroup(group.group.comm(), {1, 2}, "others"); }).code(), ErrorCode::kArgument);
  });
}

}  // namespace
}  // namespace gannet
