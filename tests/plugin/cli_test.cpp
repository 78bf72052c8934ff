// gannet plugins list | info, as a user runs them.
#include <gmock/gmock.h>

#include <cstdio>

#include "support.h"

namespace gannet {
namespace {

using test::Environment;
using test::TemporaryFolder;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string text;  // stdout and stderr
};

Outcome run(const std::string& arguments) {
  Outcome outcome;
  FILE* pipe = popen((std::string("'" GANNET_PROGRAM "' plugins ") + arguments + " 2>&1").c_str(), "r");
  for (int letter; (letter = fgetc(pipe)) != EOF;) outcome.text += static_cast<char>(letter);
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

class PluginsCommand : public testing::Test {
 protected:
  PluginsCommand() : path_("GANNET_PLUGIN_PATH", folder_.string()) {
    std::filesystem::copy_file(PROBE_PLUGIN, folder_ / "a.so");
    std::filesystem::copy_file(PROBE_PLUGIN, folder_ / "b.so");
    test::write_file(folder_ / "text.so", "hello");
  }
  TemporaryFolder folder_;
  Environment path_;
};

TEST_F(PluginsCommand, ListsWithoutOpening) {
  const auto outcome = run("list");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, AllOf(ContainsRegex("optimizer +probe +cpu +stable +[^ ]+/a.so\n"),
                                  ContainsRegex("scheduler +halving +any +stable"),
                                  ContainsRegex("/b.so  \\(not used: one above provides the same\\)"),
                                  ContainsRegex("accelerator +cpu"), HasSubstr("1 file(s) rejected")));
}

TEST_F(PluginsCommand, ListsVerboselyWithVersionsHashesPlacesAndReasons) {
  const auto outcome = run("list -v");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, AllOf(ContainsRegex("optimizer +Probe +cpu +1.2.3 +stable +[0-9a-f]{16} +[^ ]+/a.so\n"),
                                  HasSubstr("fingerprint"), HasSubstr(folder_.string() + " (GANNET_PLUGIN_PATH)"),
                                  HasSubstr("text.so\n    is not a shared object (no ELF header)")));
}

TEST_F(PluginsCommand, InfoShowsTheParameters) {
  const auto outcome = run("info PROBE");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("optimizer Probe 1.2.3: an optimizer to try things on"), HasSubstr("capabilities elementwise"),
                    ContainsRegex(
                        "betas +a list of 2 numbers +>= 0 and < 1 +\\[0.9, 0.999\\] +two moments \\[may change between steps\\]"),
                    ContainsRegex("dampening +a number +not set +optional \\[null: not set\\]"), HasSubstr("comm probe 0.3")));
  EXPECT_THAT(run("info optimizer/probe").text, Not(HasSubstr("comm probe")));
  EXPECT_THAT(run("info " PROBE_PLUGIN).text,
              AllOf(HasSubstr("Sums 0.1"), ContainsRegex("every +an integer +required"), HasSubstr("needs tensor sums")));
}

TEST_F(PluginsCommand, InfoOfWhatIsNotThereFailsWithAdvice) {
  const auto outcome = run("info prode");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("there is no plugin 'prode'; did you mean 'probe'?"), HasSubstr("gannet plugins list -v")));
  EXPECT_EQ(run("info '" + (folder_ / "text.so").string() + "'").exit_code, 2);
}

}  // namespace
}  // namespace gannet
