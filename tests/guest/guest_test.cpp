// The table of habits: each row equals plain LibTorch, or ends in an error that names what was done. A third outcome fails.
//
// The rows of one number of ranks run in one set of processes. ROWS, STAGES and DTYPES in the environment choose among them.
// GANNET_TEST_ACCELERATOR: where both sides train (guest::device). With TELL_ROWS each row is announced before it runs, and its
// processes end at the first third outcome: mutations.py breaks the engine on purpose and reads which rows see it. What it saw is
// in seen_red.txt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <map>

#include "comm/ranks.h"
#include "guest/trainer.h"
#include "zero/support.h"

namespace {

using guest::Setting;

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

Setting setting_of(const std::string& stage, const std::string& dtype) {
  Setting setting;
  setting.stage = stage[0] - '0';
  setting.is_sharded = stage.find('s') != std::string::npos;
  setting.is_offloaded = stage.find('o') != std::string::npos;
  setting.dtype = dtype;
  return setting;
}

// Every row at the stages and in the dtypes of the environment.
RANK_BODY(rows) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  const auto chosen = words(gannet::test::variable("ROWS"));
  const auto stages = words(gannet::test::variable("STAGES")), dtypes = words(gannet::test::variable("DTYPES"));
  const bool tells_rows = !gannet::test::variable("TELL_ROWS").empty();
  int64_t combinations = 0, third = 0;
  for (const auto& row : guest::rows()) {
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), row.name) == chosen.end()) continue;
    if (tells_rows) std::cout << "ROW " << row.name << std::endl;
    for (const auto& stage : stages)
      for (const auto& dtype : dtypes) {
        Setting setting = setting_of(stage, dtype);
        setting.rank = world->rank();
        setting.world = world->size();
        if (row.applies && !row.applies(setting)) continue;
        const guest::Outcome outcome = guest::run(row, setting);
        ++combinations;
        if (outcome.kind != guest::Outcome::kThird) continue;
        ++third;
        std::cout << "THIRD " << row.name << " at " << setting.text() << ": " << outcome.text << std::endl;
        if (tells_rows) _exit(1);  // the other ranks may wait for this one for ever
      }
  }
  std::cout << "combinations: " << combinations << std::endl;
  ranks::same(third, int64_t{0}, "third outcomes");
}

// `accelerator`: "" for the one of the environment.
void expect_no_third(int count, const std::string& stages, const std::string& dtypes, const std::string& accelerator = "") {
  const auto outcomes =
      ranks::run_ranks("rows", count,
                       {.environment = {{"STAGES", stages},
                                        {"DTYPES", dtypes},
                                        {"ROWS", gannet::test::variable("ROWS")},
                                        {"GANNET_TEST_ACCELERATOR",
                                         accelerator.empty() ? gannet::test::variable("GANNET_TEST_ACCELERATOR") : accelerator}},
                        .limit = std::chrono::seconds(1500)});
  ranks::expect_all_succeed(outcomes);
  std::cout << outcomes[0].output.substr(outcomes[0].output.rfind("combinations"));
}

TEST(Guest, HasAtLeastSixtyHabits) { EXPECT_GE(guest::rows().size(), 60u); }

// The output of mutations.py: a line for each row, `row: mutation, mutation` or `row: never (why)`.
std::map<std::string, std::string> seen_red() {
  std::ifstream in(GANNET_SOURCE_DIR "/tests/guest/seen_red.txt");
  std::map<std::string, std::string> seen;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    EXPECT_NE(colon, std::string::npos) << line;
    if (colon == std::string::npos) continue;
    EXPECT_TRUE(seen.emplace(line.substr(0, colon), line.substr(colon + 2)).second) << "twice: " << line;
  }
  return seen;
}

TEST(Guest, EveryHabitWasSeenRedOrIsMarkedAsNever) {
  auto seen = seen_red();
  std::ifstream in(GANNET_SOURCE_DIR "/tests/guest/mutations.py");
  const std::string table((std::istreambuf_iterator<char>(in)), {});
  for (const auto& row : guest::rows()) {
    const auto found = seen.find(row.name);
    if (found == seen.end()) {
      ADD_FAILURE() << "no line for " << row.name << " in seen_red.txt: run tests/guest/mutations.py --rows " << row.name;
      continue;
    }
    if (!found->second.starts_with("never")) {
      std::istringstream names(found->second);
      for (std::string name; std::getline(names >> std::ws, name, ',');)
        EXPECT_NE(table.find("\"" + name + "\""), std::string::npos) << row.name << ": no mutation is called " << name;
    }
    seen.erase(found);
  }
  for (const auto& [name, mutations] : seen) ADD_FAILURE() << "seen_red.txt has a line for " << name << ", which is no row";
}

TEST(Guest, EveryHabitOnTwoRanksAtStages0And3) { expect_no_third(2, "0 3 3s", "fp32"); }

TEST(Guest, EveryHabitOnOneRank) {
  expect_no_third(1, ranks::is_full() ? "0 1 2 3 0o 2o 3o" : "0", ranks::is_full() ? "fp32 fp64 bf16 fp16" : "fp64 bf16 fp16");
}

// Parameters and backward as on a GPU: other memory, another thread; uses that nothing orders are errors.
TEST(Guest, EveryHabitOnTheCheckedDevice) {
  expect_no_third(1, ranks::is_full() ? "0 1 2 3 0o 2o 3o" : "0 2o", ranks::is_full() ? "fp32 fp64 bf16 fp16" : "fp32 bf16",
                  "checked");
}

TEST(Guest, EveryHabitOnTwoRanksOnTheCheckedDevice) {
  expect_no_third(2, ranks::is_full() ? "0 2 3 3s 3o" : "3s", "fp32", "checked");
}

TEST(Guest, EveryHabitOnTwoRanksIn16Bits) {
  if (ranks::is_full()) GTEST_SKIP() << "among those below";
  expect_no_third(2, "2o 3s", "bf16");
}

TEST(Guest, EveryHabitOnTwoRanksEverywhere) {
  if (!ranks::is_full()) GTEST_SKIP() << "scripts/test.sh full";
  expect_no_third(2, "0 1 2 3 3s 1o 2o 3o", "fp32 fp64 bf16 fp16");
}

TEST(Guest, EveryHabitOnThreeRanksEverywhere) {
  if (!ranks::is_full()) GTEST_SKIP() << "scripts/test.sh full";
  expect_no_third(3, "0 1 2 3 3s", "fp32 bf16");
}

}  // namespace
