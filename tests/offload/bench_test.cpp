// `gannet bench nvme`, as a user runs it.
#include <sys/wait.h>

#include <cstdio>

#include "offload/support.h"

namespace gannet {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

struct Outcome {
  int exit_code = -1;
  std::string text;
};

Outcome run(const std::string& arguments) {
  Outcome outcome;
  FILE* pipe = popen(("'" GANNET_PROGRAM "' " + arguments).c_str(), "r");
  for (int letter; (letter = fgetc(pipe)) != EOF;) outcome.text += static_cast<char>(letter);
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

TEST(BenchNvme, PrintsATableAndASectionThatTheConfigTakes) {
  test::TemporaryFolder folder;
  const Outcome outcome = run("bench nvme " + folder.string() + " --quick --size 16M 2>/dev/null");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, AllOf(ContainsRegex("block_size +queue_depth +parallelism +write GB/s +read GB/s"),
                                  ContainsRegex("\n1048576 +8 +1 +[0-9.]+"), ContainsRegex("\n8388608 +32 +1 +[0-9.]+"),
                                  HasSubstr("\"single_submit\": false"), ContainsRegex("\"intra_op_parallelism\": 1")));
  const std::string section = outcome.text.substr(outcome.text.find("\"aio\""));
  test::write_file(folder / "config.json", "{\"train_batch_size\": 1, " + section + "}");
  const Outcome check = run("config check " + (folder / "config.json").string() + " 2>&1");
  EXPECT_EQ(check.exit_code, 0) << check.text;
  std::filesystem::remove(folder / "config.json");
  EXPECT_THAT(test::job_folders(folder.string()), IsEmpty());
}

TEST(BenchNvme, PrintsALineOfJsonForEachPoint) {
  test::TemporaryFolder folder;
  const Outcome outcome =
      run("bench nvme " + folder.string() + " --size 8M --block_size 1M 2M --queue_depth 4 --json --no-checksum");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 2);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("{\"block_size\": 2097152, \"queue_depth\": 4, \"intra_op_parallelism\": 1"),
                                  HasSubstr("\"read_gb_s\": "), HasSubstr("\"write_cpu_ms_per_gib\": ")));
}

TEST(BenchNvme, TellsWhatIsWrong) {
  test::TemporaryFolder folder;
  const Outcome absent = run("bench nvme " + folder.string() + "/absent 2>&1");
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.text, HasSubstr("does not exist: create it"));
  const Outcome small = run("bench nvme " + folder.string() + " --size 1M 2>&1");
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_THAT(small.text, HasSubstr("--size 1048576 is less than one block"));
}

}  // namespace
}  // namespace gannet
