// Uneven data on real ranks against one process that sees the same samples with the same weights.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

std::vector<double> train(int ranks, int accumulation, const std::string& mode = "") {
  const std::string out = "join_ranks_" + std::to_string(getpid()) + ".bin";
  std::remove(out.c_str());
  const std::string command = std::string(GANNET_BINARY_DIR "/bin/gannet run --num_procs ") + std::to_string(ranks) +
                              " " GANNET_BINARY_DIR "/tests/join_ranks " + out + " " + std::to_string(accumulation) + " " + mode +
                              " 2>&1";
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, got);
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output;
  std::ifstream file(out, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const auto* first = reinterpret_cast<const double*>(bytes.data());
  std::remove(out.c_str());
  return {first, first + bytes.size() / sizeof(double)};
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

TEST(JoinOnRanks, WithUnevenQueuesEqualsOneProcessThatSeesTheSameSamples) {
  for (const int accumulation : {1, 2, 4})
    EXPECT_LT(distance(train(2, accumulation), train(1, accumulation)), 1e-6) << "accumulation " << accumulation;
}

TEST(JoinOnRanks, GoesOnBitwiseFromACursorSavedWhileOneRankIsOut) { EXPECT_EQ(train(2, 1, "resume"), train(2, 1)); }

}  // namespace
