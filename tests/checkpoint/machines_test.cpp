// Each machine has a file system of its own (checkpoint.use_node_local_storage): two machines of two ranks, whose folders are
// two folders here.
#include <gmock/gmock.h>

#include "checkpoint/support.h"

namespace gannet::checkpoint {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class MachinesTest : public CheckpointTest {
 protected:
  std::string on(uint32_t machine) const { return (root_ / ("machine" + std::to_string(machine)) / "run").string(); }

  // Ranks 0 and 1 on machine 0, 2 and 3 on machine 1, unless `machines` gives another order.
  std::vector<std::string> save(const std::string& tag, const std::vector<uint32_t>& machines = {0, 0, 1, 1}) {
    return ThreadRanks(4).run([&](const Ranks& ranks) {
      Ranks mine = ranks;
      mine.machine = "m" + std::to_string(machines[mine.rank]);
      Saver saver(on(machines[mine.rank]), mine);
      const Neighbours& near = saver.neighbours();
      Content content;
      content.tag = tag;
      content.slices = {whole("own/" + std::to_string(mine.rank), at::full({6}, mine.rank, at::kFloat))};
      const int64_t part = 8 / near.count, begin = part * near.place;
      Slice half{"all", {8}, begin, at::arange(begin, begin + part, at::kFloat)};
      half.is_for_neighbours = true;
      content.slices.push_back(half);
      content.document = {{"global_steps", int64_t{7}}};
      content.rank_document = {{"rank", static_cast<int64_t>(mine.rank)}};
      saver.save(content, {});
    });
  }
};

TEST_F(MachinesTest, each_keeps_its_ranks_files_and_all_that_every_rank_has) {
  EXPECT_THAT(save("t"), Each(""));
  for (const uint32_t machine : {0, 1}) {
    SCOPED_TRACE(machine);
    const Opened opened = open(on(machine), {});
    EXPECT_EQ(opened.tag(), "t");
    EXPECT_EQ(opened.world_size(), 4u);
    for (const int64_t rank : {0, 1, 2, 3})
      EXPECT_EQ(opened.rank_document(static_cast<uint32_t>(rank)).find("rank")->as_int(), rank);
    EXPECT_TRUE(at::equal(read_whole(opened, "all"), at::arange(8, at::kFloat)));
    const uint32_t first = 2 * machine, other = 2 - first;
    for (const uint32_t rank : {first, first + 1})
      EXPECT_TRUE(at::equal(read_whole(opened, "own/" + std::to_string(rank)), at::full({6}, rank, at::kFloat)));
    const std::string file = "rank-0000" + std::to_string(other) + ".safetensors";
    EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { read_whole(opened, "own/" + std::to_string(other)); }),
                AllOf(HasSubstr(file), HasSubstr("use_node_local_storage"), HasSubstr("copy the machines' folders t into one")));
    EXPECT_THAT(opened.elsewhere(), ElementsAre(file, "rank-0000" + std::to_string(other + 1) + ".safetensors"));
    EXPECT_THAT(opened.verify(), IsEmpty());
  }
}

TEST_F(MachinesTest, folders_copied_into_one_are_a_whole_checkpoint_under_either_manifest) {
  save("t");
  for (const uint32_t into : {0, 1}) {
    const fs::path together = root_ / ("together" + std::to_string(into));
    fs::copy(on(into), together, fs::copy_options::recursive);
    fs::copy(fs::path(on(1 - into)) / "t", together / "t", fs::copy_options::recursive | fs::copy_options::skip_existing);
    const Opened opened = open(together, {});
    EXPECT_THAT(opened.elsewhere(), IsEmpty());
    EXPECT_THAT(opened.verify(), IsEmpty());
    for (const int rank : {0, 1, 2, 3})
      EXPECT_TRUE(at::equal(read_whole(opened, "own/" + std::to_string(rank)), at::full({6}, rank, at::kFloat)));
    EXPECT_TRUE(at::equal(read_whole(opened, "all"), at::arange(8, at::kFloat)));
  }
}

TEST_F(MachinesTest, placement_need_not_be_by_the_order_of_ranks) {
  EXPECT_THAT(save("t", {1, 0, 1, 0}), Each(""));
  EXPECT_THAT(open(on(1), {}).elsewhere(), ElementsAre("rank-00001.safetensors", "rank-00003.safetensors"));
  EXPECT_TRUE(at::equal(read_whole(open(on(0), {}), "all"), at::arange(8, at::kFloat)));
}

TEST_F(MachinesTest, ranks_of_one_folder_share_it) {
  EXPECT_THAT(save("t", {0, 0, 0, 0}), Each(""));
  const Opened opened = open(on(0), {});
  EXPECT_THAT(opened.elsewhere(), IsEmpty());
  EXPECT_TRUE(at::equal(read_whole(opened, "all"), at::arange(8, at::kFloat)));
}

TEST_F(MachinesTest, a_file_that_is_missing_on_its_own_machine_is_missing) {
  save("t");
  fs::remove(fs::path(on(1)) / "t" / "rank-00003.safetensors");
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { open(on(1), {}); }), HasSubstr("rank-00003.safetensors is missing"));
  open(on(0), {});
}

// The second machine's disk does not take it: neither machine's `latest` moves, and what was there stays.
TEST_F(MachinesTest, where_one_machine_fails_none_calls_it_the_latest) {
  save("before");
  fs::create_directories(fs::path(on(1)) / "after" / "someone's");
  EXPECT_THAT(save("after"), Each(HasSubstr("rank 2: ")));
  for (const uint32_t machine : {0, 1}) {
    EXPECT_EQ(open(on(machine), {}).tag(), "before");
    for (const auto& entry : fs::directory_iterator(on(machine)))
      EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

TEST_F(MachinesTest, saves_have_one_order_on_all_machines) {
  save("first");
  fs::remove_all(fs::path(on(1)));  // a machine that is new
  save("second");
  fs::remove(fs::path(on(0)) / "latest");
  fs::remove(fs::path(on(1)) / "latest");
  EXPECT_EQ(open(on(0), {}).tag(), "second");
  EXPECT_EQ(open(on(1), {}).tag(), "second");
}

}  // namespace
}  // namespace gannet::checkpoint
