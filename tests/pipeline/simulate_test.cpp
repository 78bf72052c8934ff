// The times of schedules. The expected lengths and peaks of 4 ranks and 8 micro-batches are also
// what the papers' formulas give: bubbles of (p-1)(F+B) for 1f1b, a chunk's share of it for
// interleaved, (p-1)(F+I-W) for zb-h1.
#include "pipeline/simulate.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/built_in.h"
#include "pipeline/draw.h"

namespace gannet::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

SimulatedStep simulated(const char* name, const ScheduleSize& size, const PassTimes& times = {}, double link = 0) {
  const Schedule schedule = built_in(name, size);
  return simulate(schedule, even_times(schedule, times, link));
}

TEST(Simulate, LengthsAndPeaksOfTheBuiltInSchedules) {
  struct Expected {
    const char* name;
    double total;
    std::vector<double> peaks;
  };
  const Expected all[] = {{"gpipe", 33, {8, 8, 8, 8}},
                          {"1f1b", 33, {4, 3, 2, 1}},
                          {"interleaved", 28.5, {5.5, 4.5, 3.5, 2.5}},
                          {"zb-h1", 27, {4, 4, 4, 4}},
                          {"interleaved-zb", 25.5, {4, 4, 4, 4}},
                          {"zb-v", 25.5, {4, 4, 4, 4}},
                          {"dualpipe-v", 25.5, {4.5, 4.5, 4.5, 4.5}},
                          {"inference", 11, {0, 0, 0, 0}}};
  for (const Expected& expected : all) {
    const SimulatedStep step = simulated(expected.name, {4, 8, {}});
    EXPECT_EQ(step.total, expected.total) << expected.name;
    EXPECT_EQ(step.peaks, expected.peaks) << expected.name;
    const double work = expected.name == std::string("inference") ? 8 : 24;
    for (const double share : step.idle_shares) EXPECT_NEAR(share, 1 - work / expected.total, 1e-12) << expected.name;
    EXPECT_NEAR(step.idle_share, 1 - work / expected.total, 1e-12) << expected.name;
  }
}

TEST(Simulate, BubblesAreThoseOfTheFormulas) {
  const PassTimes times{1, 1.25, 0.5};  // exact in binary
  for (const uint32_t p : {1u, 2u, 3u, 4u, 6u, 8u})
    for (const int64_t rounds : {2, 3, 5}) {
      const int64_t m = p * rounds;
      const double work = static_cast<double>(m) * 2.75, gaps = p - 1;
      EXPECT_DOUBLE_EQ(simulated("gpipe", {p, m, {}}, times).total, work + gaps * 2.75);
      EXPECT_DOUBLE_EQ(simulated("1f1b", {p, m, {}}, times).total, work + gaps * 2.75);
      EXPECT_DOUBLE_EQ(simulated("interleaved", {p, m, 2}, times).total, work + gaps * 2.75 / 2);
      EXPECT_DOUBLE_EQ(simulated("interleaved", {p, m, 4}, times).total, work + gaps * 2.75 / 4);
      EXPECT_DOUBLE_EQ(simulated("zb-h1", {p, m, {}}, times).total, work + gaps * (1 + 1.25 - 0.5));
    }
}

TEST(Simulate, EachActionStartsWhenItsRankAndItsInputsAreReady) {
  const Schedule schedule = from_csv("0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1B1\n", "x");
  const SimulatedStep step = simulate(schedule, {{{1, 2, 3}, {4, 5, 6}}, 0.5});
  const auto starts = [&](size_t rank) {
    std::vector<double> all;
    for (const auto& span : step.spans[rank]) all.push_back(span.start);
    return all;
  };
  // Rank 1: F0 at 1 + 0.5 until 5.5, I0 until 10.5, W0 until 16.5, F1 until 20.5, B1 until 31.5.
  EXPECT_THAT(starts(1), ElementsAre(1.5, 5.5, 10.5, 16.5, 20.5));
  // Rank 0: the gradient of I0 arrives at 11, W0 does not hold it up; that of B1 at 32.
  EXPECT_THAT(starts(0), ElementsAre(0, 1, 11, 32));
  EXPECT_EQ(step.total, 37);
  EXPECT_DOUBLE_EQ(step.idle_shares[0], 1 - 12.0 / 37);
  EXPECT_THAT(step.peaks, ElementsAre(2, 1));
}

TEST(Simulate, ALinkTakesItsTimeOncePerHop) {
  EXPECT_EQ(simulated("1f1b", {4, 1, {}}, {}, 0.25).total, 12 + 6 * 0.25);
  // A V turns on the last rank, where nothing travels.
  EXPECT_EQ(simulated("zb-v", {4, 1, {}}, {2, 2, 2}, 0.25).total, simulated("zb-v", {4, 1, {}}, {2, 2, 2}).total + 12 * 0.25);
}

TEST(Simulate, NegativeAndInfiniteTimesAreRefused) {
  for (const double wrong : {-1.0, 1.0 / 0.0}) EXPECT_THROW(simulated("1f1b", {2, 2, {}}, {wrong, 1, 1}), Error);
  EXPECT_THROW(simulated("1f1b", {2, 2, {}}, {}, -1), Error);
  EXPECT_EQ(simulated("1f1b", {2, 2, {}}, {0, 0, 0}).total, 0);
  EXPECT_EQ(simulated("1f1b", {2, 2, {}}, {0, 0, 0}).idle_share, 0);
}

TEST(Draw, TextHasARowForEachRankAndACellForEachUnit) {
  const Schedule schedule = built_in("1f1b", {2, 2, {}});
  const SimulatedStep step = simulate(schedule, even_times(schedule, {}));
  EXPECT_EQ(draw_text(schedule, step),
            "rank 0  0F0 0F1         0B0----     0B1----\n"
            "rank 1      1F0 1B0---- 1F1 1B1----\n");
  EXPECT_EQ(summary_text(step),
            "total 9, idle share 33.3%\n\n"
            "rank   idle share   peak live activations\n"
            "   0        33.3%                       2\n"
            "   1        33.3%                       1\n");
}

TEST(Draw, TimesThatAreNoMultiplesOfACellDrawEveryAction) {
  const Schedule schedule = built_in("zb-h1", {3, 5, {}});
  for (const PassTimes& times : {PassTimes{1, 1.3, 0.7}, PassTimes{1e-9, 1, 1}, PassTimes{0, 0, 0}, PassTimes{1, 0, 1}}) {
    const SimulatedStep step = simulate(schedule, even_times(schedule, times, 0.1));
    const std::string text = draw_text(schedule, step), svg = draw_svg(schedule, step);
    for (const auto& row : schedule.actions)
      for (const Action& action : row) {
        EXPECT_THAT(text, HasSubstr(" " + to_text(action)));
        EXPECT_THAT(svg, HasSubstr("<title>" + to_text(action) + ": "));
      }
    EXPECT_LT(text.size(), 10000u);
  }
}

TEST(Draw, SvgIsAPageWithABarForEachAction) {
  const Schedule schedule = built_in("zb-v", {4, 8, {}});
  const std::string svg = draw_svg(schedule, simulate(schedule, even_times(schedule, {})));
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("total 25.5, idle share 5.9%"));
  EXPECT_THAT(svg, HasSubstr("backward of the weights"));
  EXPECT_THAT(svg, HasSubstr(">idle</text>"));
  const Schedule alone = built_in("1f1b", {1, 2, {}});
  EXPECT_THAT(draw_svg(alone, simulate(alone, even_times(alone, {}))), Not(HasSubstr("idle</text>")));
  size_t bars = 0;
  for (size_t at = 0; (at = svg.find("<title>", at)) != std::string::npos; ++at) ++bars;
  EXPECT_EQ(bars, 4 * 8 * 2 * 3u);
}

}  // namespace
}  // namespace gannet::pipeline
