// gannet plugins list | info, as a user runs them.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "launched.h"
#include "support.h"

namespace gannet {
namespace {

using test::Environment;
using test::TemporaryFolder;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

launched::Outcome run(const std::string& arguments, const std::string& folder = ".") {
  return launched::shell("cd '" + folder + "' && '" GANNET_PROGRAM "' plugins " + arguments);
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
  EXPECT_THAT(outcome.output, AllOf(ContainsRegex("optimizer +probe +cpu +stable +[^ ]+/a.so\n"),
                                    ContainsRegex("scheduler +halving +any +stable"),
                                    ContainsRegex("/b.so  \\(not used: a file above provides the same\\)"),
                                    ContainsRegex("accelerator +cpu"), HasSubstr("1 file(s) rejected")));
}

TEST_F(PluginsCommand, ListsVerboselyWithVersionsHashesPlacesAndReasons) {
  const auto outcome = run("list -v");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(ContainsRegex("optimizer +Probe +cpu +1.2.3 +stable +[0-9a-f]{16} +[^ ]+/a.so\n"),
                                    HasSubstr("fingerprint"), HasSubstr(folder_.string() + " (GANNET_PLUGIN_PATH)"),
                                    HasSubstr("text.so\n    is not a shared object (no ELF header)")));
}

TEST_F(PluginsCommand, InfoShowsTheParameters) {
  const auto outcome = run("info PROBE");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("optimizer Probe 1.2.3: an optimizer to try things on"), HasSubstr("capabilities elementwise"),
                    ContainsRegex(
                        "betas +a list of 2 numbers +>= 0 and < 1 +\\[0.9, 0.999\\] +two moments \\[may change between steps\\]"),
                    ContainsRegex("dampening +a number +not set +optional \\[null: not set\\]"), HasSubstr("comm probe 0.3")));
  EXPECT_THAT(run("info optimizer/probe").output, Not(HasSubstr("comm probe")));
  EXPECT_THAT(run("info " PROBE_PLUGIN).output,
              AllOf(HasSubstr("Sums 0.1"), ContainsRegex("every +an integer +required"), HasSubstr("needs sums")));
}

// An opened plugin runs code: it may end the process, crash or never return, and its row reports
// that.
TEST_F(PluginsCommand, AFileThatEndsTheProcessIsARowAndTheOthersAreListed) {
  for (const char* name : {"exits.so", "crashes.so", "hangs.so"})
    std::filesystem::copy_file(BAD_FOLDER "/" + std::string(name), folder_ / name);
  const auto outcome = run("list -v --timeout 2");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              AllOf(ContainsRegex("/exits.so\n    was opened: it ended the process with exit code 0\n"),
                    ContainsRegex("/crashes.so\n    was opened: it ended the process with signal 11 \\(Segmentation fault\\)\n"),
                    ContainsRegex("/hangs.so\n    was opened: it did not return within 2 s\n"),
                    ContainsRegex("optimizer +Probe +cpu +1.2.3"), ContainsRegex("accelerator +cpu +any")));
  const auto info = run("info exits");
  EXPECT_EQ(info.exit_code, 71) << "not 0, as the plugin would have it";
  EXPECT_THAT(info.output, HasSubstr("gannet: opening the plugin 'exits': it ended the process with exit code 0"));
}

TEST_F(PluginsCommand, ABareNameIsNeverAPath) {
  const TemporaryFolder here;
  for (const char* name : {"sgd", "exits.so"}) std::filesystem::copy_file(BAD_FOLDER "/exits.so", here / name);
  std::filesystem::create_directory(here / "adam");
  std::filesystem::create_directory(here / "optimizer");
  std::filesystem::copy_file(BAD_FOLDER "/exits.so", here / "optimizer/sgd");
  for (const char* name : {"sgd", "SGD", "optimizer/sgd", "adam"}) {
    const auto outcome = run(std::string("info ") + name, here.string());
    EXPECT_EQ(outcome.exit_code, 0) << name << ": " << outcome.output;
    EXPECT_THAT(outcome.output, ContainsRegex("file +[^ ]*/lib/gannet/gannet_optimizer_")) << name;
  }
  const auto bare = run("info exits.so", here.string());
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_THAT(bare.output,
              AllOf(HasSubstr("there is no plugin 'exits.so'"), HasSubstr("a file is named with a slash: ./exits.so")));
  EXPECT_EQ(run("info ./exits.so", here.string()).exit_code, 71) << "it was meant";
}

TEST_F(PluginsCommand, WhatShadowsOneOfGannetsOwnIsNamedWithBothFiles) {
  std::filesystem::copy_file(BAD_FOLDER "/shadows.so", folder_ / "c.so");
  for (const char* arguments : {"list", "list -v"})
    EXPECT_THAT(
        run(arguments).output,
        AllOf(ContainsRegex(
                  "note: optimizer/sgd@cpu of [^ ]+/c.so takes precedence over Gannet's own, [^ ]+/gannet_optimizer_sgd.so\n"),
              Not(HasSubstr("a.so takes precedence"))));
}

TEST_F(PluginsCommand, APluginsWordsDoNotReachTheTerminalAsTheyAre) {
  std::filesystem::copy_file(BAD_FOLDER "/shadows.so", folder_ / "c.so");
  std::filesystem::copy_file(PROBE_PLUGIN, folder_ / "\x1b[2J.so");
  std::filesystem::copy_file(BAD_FOLDER "/loud_note.so", folder_ / "loud.so");
  for (const char* arguments : {"list", "list -v", "info sgd", "info nothing"})
    EXPECT_THAT(run(arguments).output, Not(HasSubstr("\x1b"))) << arguments;
  EXPECT_THAT(run("info optimizer/sgd").output, HasSubstr("SGD 9.9: \\x1b[2Janother descent"));
  EXPECT_THAT(run("list").output, HasSubstr("/\\x1b[2J.so"));
}

TEST_F(PluginsCommand, AFifoAmongThePluginsStopsNothing) {
  ASSERT_EQ(mkfifo((folder_ / "fifo.so").c_str(), 0600), 0);
  for (const char* arguments : {"list", "list -v", "info probe"}) EXPECT_EQ(run(arguments).exit_code, 0) << arguments;
  EXPECT_THAT(run("list -v").output, HasSubstr("fifo.so\n    is not a regular file\n"));
}

TEST_F(PluginsCommand, WhatEveryUserMayWriteIsRejectedWithTheRemedy) {
  ASSERT_EQ(chmod((folder_ / "a.so").c_str(), 0666), 0);
  EXPECT_THAT(run("list -v").output,
              AllOf(ContainsRegex("/a.so\n    is not opened: the file [^ ]+/a.so may be written by every user "
                                  "\\(mode 0666\\); take the right away \\(`chmod o-w`\\), or trust it by name"),
                    ContainsRegex("optimizer +Probe +cpu +1.2.3 +stable +[0-9a-f]{16} +[^ ]+/b.so\n")));
}

TEST_F(PluginsCommand, InfoOfWhatIsNotThereFailsWithAdvice) {
  const auto outcome = run("info prode");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("there is no plugin 'prode'; did you mean 'probe'?"), HasSubstr("gannet plugins list -v")));
  EXPECT_EQ(run("info '" + (folder_ / "text.so").string() + "'").exit_code, 2);
}

}  // namespace
}  // namespace gannet
