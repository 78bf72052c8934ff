#include "launch/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "launch/lines.h"

namespace {

using namespace gannet::launch;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

TEST(LinePrefixer, PrefixesWholeLinesAndKeepsAPartialOne) {
  LastLines last;
  LinePrefixer lines("[1] ", last);
  EXPECT_EQ(lines.add("a\nb"), "[1] a\n");
  EXPECT_EQ(lines.add("c\n\nd"), "[1] bc\n[1] \n");
  EXPECT_EQ(lines.finish(), "[1] d\n");
  EXPECT_EQ(lines.finish(), "");
  EXPECT_THAT(last.lines(), ElementsAre("a", "bc", "d"));
}

TEST(LinePrefixer, ACarriageReturnEndsALineSoThatProgressShows) {
  LastLines last;
  LinePrefixer lines("> ", last);
  EXPECT_EQ(lines.add("10%\r20%\r"), "> 10%\n> 20%\n");
  EXPECT_EQ(lines.add("\n"), "");  // of a "\r\n" that came in two pieces
  EXPECT_EQ(lines.add("x\r\ny\n"), "> x\n> y\n");
}

TEST(LinePrefixer, CutsALineThatNeverEnds) {
  LastLines last;
  LinePrefixer lines("> ", last);
  EXPECT_EQ(lines.add(std::string(70'000, 'x')).size(), 65'536u + 3);
}

TEST(CoreSlice, GivesEqualSlicesAndLeavesTheRest) {
  EXPECT_THAT(core_slice({0, 1, 2, 4, 6}, 2, 0), ElementsAre(0, 1));
  EXPECT_THAT(core_slice({0, 1, 2, 4, 6}, 2, 1), ElementsAre(2, 4));
  EXPECT_THROW(core_slice({0, 1}, 3, 0), gannet::Error);
}

TEST(RankEnvironment, SetsTheRanksVariablesOverTheInheritedOnes) {
  LaunchOptions options;
  options.procs = 2;
  const auto entries = rank_environment({"HOME=/h", "RANK=9", "TORCHELASTIC_USE_AGENT_STORE=True"}, options, 1,
                                        {.port = 1234, .cores = 8, .restart = 2, .mark = "abc"});
  for (const char* entry :
       {"HOME=/h", "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
        "MASTER_PORT=1234", "OMP_NUM_THREADS=4", "GANNET_RESTART=2", "GANNET_RUN_ID=abc"})
    EXPECT_THAT(entries, Contains(entry));
  EXPECT_THAT(entries, Not(Contains("RANK=9")));
  EXPECT_THAT(entries, Not(Contains("TORCHELASTIC_USE_AGENT_STORE=True")));
}

TEST(RankEnvironment, KeepsAThreadCountThatTheUserChose) {
  LaunchOptions options;
  options.procs = 4;
  const StartValues eight{1, 8, 0, ""}, two{1, 2, 0, ""};
  EXPECT_THAT(rank_environment({"OMP_NUM_THREADS=3"}, options, 0, eight), Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(rank_environment({}, options, 0, two), Contains("OMP_NUM_THREADS=1"));
  options.bind_cores_to_rank = true;  // more threads than bound cores would only fight
  EXPECT_THAT(rank_environment({"OMP_NUM_THREADS=3"}, options, 0, eight), Contains("OMP_NUM_THREADS=2"));
}

TEST(RankEnvironment, ALauncherInsideALauncherKeepsTheOuterMark) {
  EXPECT_THAT(rank_environment({"GANNET_RUN_ID=outer"}, {}, 0, {.mark = "inner"}), Contains("GANNET_RUN_ID=outer/inner"));
}

TEST(LastLines, AreTwentyOfBothStreamsAndNoEmptyOnes) {
  LastLines last;
  LinePrefixer out("", last), error("", last);
  for (int i = 0; i < 15; ++i) {
    out.add("out " + std::to_string(i) + "\n\n");
    error.add("error " + std::to_string(i) + "\n");
  }
  EXPECT_EQ(last.lines().size(), 20u);
  EXPECT_EQ(last.lines().front(), "out 5");
  EXPECT_EQ(last.lines().back(), "error 14");
  out.add(std::string(5000, 'x') + "\n");
  EXPECT_LT(last.lines().back().size(), 2100u);
}

TEST(FindProgram, SearchesThePathAsAShellDoes) {
  EXPECT_EQ(find_program("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", ""), "/bin/sh");
  const auto code = [](const std::string& program) {
    try {
      find_program(program, "/bin");
    } catch (const StartError& error) {
      return error.shell_code();
    }
    return 0;
  };
  EXPECT_EQ(code("no-such-program-here"), 127);
  EXPECT_EQ(code("/no/such/file"), 127);
  EXPECT_EQ(code("/bin/"), 126);
  EXPECT_EQ(code("/etc/passwd"), 126);
}

TEST(FreePort, IsAboveTheReservedOnes) { EXPECT_GE(free_port(), 1024); }

}  // namespace
