// A drive that fails or is full in the middle of a step or of a save, on one of several ranks: each rank gets its error, nothing
// hangs, and training goes on from the newest checkpoint as if nothing had happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "checkpoint/checkpoint.h"
#include "comm/ranks.h"
#include "faults/trains.h"

namespace {

using testing::AnyOf;
using testing::HasSubstr;

struct DriveScenario {
  std::string call, code;  // which of faulty_io.cpp, on rank 1 from here on
  std::string where;
  std::string stage, tier;
  std::string others;  // messages on rank 0
  bool asynchronous = false;
};

struct PlayedOnDrive {
  std::vector<ranks::Outcome> broken, resumed, straight;
  std::string newest, left;
};

std::string line_with(const std::string& text, const std::string& output) {
  const size_t at = output.find(text);
  return at == std::string::npos ? "" : output.substr(at, output.find('\n', at) - at);
}

class Drive : public testing::Test {
 protected:
  // On the build's own disk: the folder of temporary files may be one in memory, which takes no direct I/O.
  Drive() : root_(std::filesystem::current_path() / ("drive-faults-" + std::to_string(::getpid()))) {}
  ~Drive() override { std::filesystem::remove_all(root_); }

  PlayedOnDrive play(const DriveScenario& scenario, size_t number) const {
    const std::filesystem::path folder = root_ / std::to_string(number), drive = folder / "drive";
    std::filesystem::create_directories(drive);
    const auto run = [&](const std::string& name, std::map<std::string, std::string> variables) {
      variables.insert({{"FOLDER", folder / name},
                        {"DRIVE", drive},
                        {"SAVES", "1"},
                        {"STAGE", scenario.stage},
                        {"TIER", scenario.tier},
                        {"WIDTH", "3000"},
                        {"DEADLINE", "30"}});
      if (scenario.asynchronous) variables["ASYNC"] = "1";
      return ranks::run_ranks("trains", 2, {.environment = variables});
    };
    PlayedOnDrive played;
    const bool is_of_drive = scenario.call.starts_with("aio");
    played.broken = run("run", {{"FAULT", "io"},
                                {"WHERE", scenario.where},
                                {"VICTIM", "1"},
                                {"LD_PRELOAD", GANNET_FAULTY_IO},
                                {"GANNET_FAULT_LATER", "1"},
                                {"GANNET_FAULT_RANK", "1"},
                                {"GANNET_FAULT", scenario.call + " " + scenario.code + " 1"},
                                {"GANNET_FAULT_PATH", is_of_drive ? drive : folder / "run"}});
    for (const auto& entry : std::filesystem::directory_iterator(drive)) played.left += entry.path().filename().string() + " ";
    played.newest = gannet::checkpoint::open(folder / "run", {}).tag();
    played.resumed = run("run", {{"RESUME", "1"}});
    played.straight = run("straight", {});
    return played;
  }
  void expect_survives(const std::vector<DriveScenario>& scenarios);

  std::filesystem::path root_;
};

void Drive::expect_survives(const std::vector<DriveScenario>& scenarios) {
  std::vector<std::future<PlayedOnDrive>> futures;
  for (size_t i = 0; i < scenarios.size(); ++i)
    futures.push_back(std::async(std::launch::async, [&, i] { return play(scenarios[i], i); }));
  for (size_t i = 0; i < scenarios.size(); ++i) {
    const DriveScenario& scenario = scenarios[i];
    const PlayedOnDrive played = futures[i].get();
    const std::string &rank0 = played.broken[0].output, &rank1 = played.broken[1].output;
    SCOPED_TRACE(scenario.call + " " + scenario.code + " in " + scenario.where + " at stage " + scenario.stage + " " +
                 scenario.tier + "\nrank 0: " + rank0 + "\nrank 1: " + rank1);
    EXPECT_THAT(rank1, HasSubstr("Error(input/output): "));
    EXPECT_THAT(rank1, HasSubstr(scenario.code == "EIO" ? "Input/output error" : "No space left on device"));
    EXPECT_THAT(rank0, HasSubstr(scenario.others));
    for (const auto& outcome : played.broken) {
      EXPECT_EQ(outcome.status, 3);
      EXPECT_LT(gannet::test::seconds_to_the_error(outcome.output), 10);
    }
    EXPECT_EQ(played.newest, "global_step2");
    EXPECT_EQ(played.left, "") << "on the drive";
    ranks::expect_all_succeed(played.resumed);
    ranks::expect_all_succeed(played.straight);
    const std::string parameters = line_with("parameters ", played.resumed[0].output);
    EXPECT_NE(parameters, "");
    EXPECT_EQ(parameters, line_with("parameters ", played.straight[0].output)) << "bitwise";
  }
}

TEST_F(Drive, AFaultInAStepIsToldOnEveryRankAndTrainingGoesOnFromTheCheckpoint) {
  expect_survives({
      {"aio_read", "EIO", "forward", "3", "nvme", "Error(peer lost): rank 1 has ended after an error in forward() of step 3"},
      {"aio_read", "EIO", "update", "2", "nvme", "Error(peer lost): rank 1 has ended after an error in step() of step 3"},
      {"aio_write", "ENOSPC", "update", "3", "nvme", "Error(peer lost): rank 1 has ended after an error in step() of step 3"},
  });
}

TEST_F(Drive, AFaultInASaveIsEveryRanksErrorAndTrainingGoesOnFromTheCheckpointBefore) {
  expect_survives({
      {"pwrite", "ENOSPC", "save", "3", "nvme", "Error(input/output): rank 1: "},
      {"fsync", "EIO", "save", "2", "", "Error(input/output): rank 1: "},
      {"pwrite", "ENOSPC", "save", "2", "", "Error(input/output): rank 1: ", true},
      {"aio_read", "EIO", "save", "3", "nvme", "Error(input/output): rank 1: "},
  });
}

}  // namespace
