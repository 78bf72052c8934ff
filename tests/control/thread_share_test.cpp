// How the ranks of a machine divide its cores.
#include "control/thread_share.h"

#include <ATen/Parallel.h>
#include <gannet/distributed.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"

namespace {

using gannet::control::own_cores;
using gannet::control::share_of_threads;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

TEST(ThreadShare, DividesEachCoreAmongTheRanksThatMayRunThere) {
  EXPECT_EQ(share_of_threads(4, "1111", {"1111", "1111"}), 2);
  EXPECT_EQ(share_of_threads(2, "11", {"11", "11", "11", "11"}), 1);
  EXPECT_EQ(share_of_threads(3, "111", {"111", "111", "111"}), 1);
  EXPECT_EQ(share_of_threads(2, "11", {"11", "0011"}), 2) << "a launcher has bound each rank to cores of its own";
  EXPECT_EQ(share_of_threads(4, "1111", {"1111", "11"}), 3);
  EXPECT_EQ(share_of_threads(4, "11111111", {"11111111", "11111111"}), 2) << "LibTorch takes physical cores";
  EXPECT_EQ(share_of_threads(5, "", {"", ""}), 5) << "unknown";
}

const ranks::Options kNothingChosen{.environment = {{"OMP_NUM_THREADS", ""}}};

RANK_BODY(takes_its_share) {
  const auto alone = static_cast<uint32_t>(at::get_num_threads());
  const auto share = static_cast<int>(share_of_threads(alone, own_cores(), {own_cores(), own_cores()}));
  const auto world = gannet::init_distributed();
  same(at::get_num_threads(), share, "threads");
}
TEST(ThreadShare, IsTakenWhereNobodyHasChosen) { expect_all_succeed(run_ranks("takes_its_share", 2, kNothingChosen)); }

RANK_BODY(keeps_its_choice) {
  at::set_num_threads(7);
  const auto world = gannet::init_distributed();
  same(at::get_num_threads(), 7, "threads");
}
TEST(ThreadShare, LeavesAChoiceOfTheProgramAlone) { expect_all_succeed(run_ranks("keeps_its_choice", 2, kNothingChosen)); }

RANK_BODY(keeps_the_choice_of_its_environment) {
  const auto world = gannet::init_distributed();
  same(at::get_num_threads(), 2, "threads");
}
TEST(ThreadShare, LeavesOmpNumThreadsAlone) {
  expect_all_succeed(run_ranks("keeps_the_choice_of_its_environment", 2, {.environment = {{"OMP_NUM_THREADS", "2"}}}));
}

}  // namespace
