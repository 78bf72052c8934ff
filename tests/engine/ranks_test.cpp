// The engine on several processes of this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

struct Outcome {
  int exit_code;
  std::string output;
  std::vector<double> parameters;
};

Outcome run(int ranks, int accumulation, int steps, const std::string& mode = "plain") {
  const std::string out = "engine_ranks_" + std::to_string(getpid()) + ".bin";
  std::remove(out.c_str());
  const std::string command = std::string(GANNET_BINARY_DIR "/bin/gannet run --num_procs ") + std::to_string(ranks) +
                              " " GANNET_BINARY_DIR "/tests/engine_ranks " + out + " " + std::to_string(accumulation) + " " +
                              std::to_string(steps) + " " + mode + " 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.output.append(buffer, got);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream file(out, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const auto* first = reinterpret_cast<const double*>(bytes.data());
  outcome.parameters.assign(first, first + bytes.size() / sizeof(double));
  std::remove(out.c_str());
  return outcome;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double apart = 0, whole = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    whole += b[i] * b[i];
  }
  return std::sqrt(apart / whole);
}

TEST(Ranks, TheSameTotalBatchGivesTheSameParametersOnOneTwoAndFourRanks) {
  const Outcome one = run(1, 4, 20), two = run(2, 2, 20), four = run(4, 1, 20);
  ASSERT_EQ(one.exit_code, 0) << one.output;
  ASSERT_EQ(two.exit_code, 0) << two.output;
  ASSERT_EQ(four.exit_code, 0) << four.output;
  EXPECT_LT(distance(two.parameters, one.parameters), 1e-6);
  EXPECT_LT(distance(four.parameters, one.parameters), 1e-6);
}

TEST(Ranks, ARunRepeatsBitwise) { EXPECT_EQ(run(2, 2, 6).parameters, run(2, 2, 6).parameters); }

TEST(Ranks, BucketsScalingAndTheWayOfDrivingDoNotChangeTheResult) {
  const Outcome plain = run(2, 2, 8);
  ASSERT_EQ(plain.exit_code, 0) << plain.output;
  for (const char* mode : {"small_buckets", "prescale", "predivide", "two_backwards", "no_sync"}) {
    const Outcome other = run(2, 2, 8, mode);
    ASSERT_EQ(other.exit_code, 0) << mode << other.output;
    EXPECT_LT(distance(other.parameters, plain.parameters), 1e-6) << mode;
  }
  const Outcome rounded = run(2, 2, 8, "comm_fp16");
  EXPECT_GT(distance(rounded.parameters, plain.parameters), 1e-9) << "gradients travelled in fp16";
  EXPECT_LT(distance(rounded.parameters, plain.parameters), 1e-2);
}

TEST(Ranks, AStepWithoutAveragingIsAnError) {
  const Outcome outcome = run(2, 1, 1, "forgotten_sync");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, testing::AnyOf(testing::HasSubstr("inside no_sync"), testing::HasSubstr("not averaged")));
}

TEST(Ranks, DifferentModelsAreToldBeforeTheFirstStep) {
  const Outcome outcome = run(2, 1, 1, "other_model");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, testing::HasSubstr("the model's parameters or the batch sizes"));
}

// One, two and four ranks resume a checkpoint of two: the same samples, and on two ranks the same
// bits.
TEST(Ranks, ACheckpointOfTwoRanksIsResumedByOneTwoAndFour) {
  const std::string folder = "engine_ranks_checkpoint_" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  const Outcome whole = run(2, 2, 20), saved = run(2, 2, 10, "save " + folder);
  ASSERT_EQ(saved.exit_code, 0) << saved.output;
  const Outcome two = run(2, 2, 20, "resume " + folder), one = run(1, 4, 20, "resume " + folder),
                four = run(4, 1, 20, "resume " + folder);
  EXPECT_EQ(two.parameters, whole.parameters) << two.output;
  EXPECT_LT(distance(one.parameters, whole.parameters), 1e-6) << one.output;
  EXPECT_LT(distance(four.parameters, whole.parameters), 1e-6) << four.output;
  EXPECT_THAT(one.output, testing::HasSubstr("saved by 2 ranks"));
  const Outcome other_tags = run(2, 2, 1, "save_other_tags " + folder);
  EXPECT_NE(other_tags.exit_code, 0);
  EXPECT_THAT(other_tags.output, testing::HasSubstr("different tags: 'tag0' on rank 0, 'tag1' on rank 1"));
  std::filesystem::remove_all(folder);
}

}  // namespace
