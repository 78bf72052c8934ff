// gannet report, as a user runs it.
#include <gmock/gmock.h>

#include <cstdio>
#include <sstream>

#include "observe/metrics.h"

namespace gannet {
namespace {

using test::kRun;
using test::step_line;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class ReportCommand : public test::MetricsFolder {
 protected:
  struct Outcome {
    int exit_code = -1;
    std::string text;  // stdout and stderr
  };

  Outcome run(const std::string& arguments) const {
    Outcome outcome;
    FILE* pipe = popen(("cd '" + folder_.string() + "' && '" GANNET_PROGRAM "' report " + arguments + " 2>&1").c_str(), "r");
    for (int letter; (letter = fgetc(pipe)) != EOF;) outcome.text += static_cast<char>(letter);
    outcome.exit_code = WEXITSTATUS(pclose(pipe));
    return outcome;
  }
  std::string content(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }
};

TEST_F(ReportCommand, WritesThePageAndPrintsItsPathAndThreeLines) {
  file("m.jsonl", kRun + step_line(1, "5") + step_line(2, "4"));
  const Outcome outcome = run("m.jsonl -o page.html");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.text,
            "page.html\n"
            "  124 M parameters, 2 ranks, ZeRO stage 2, fp16\n"
            "  step 2 after 2 s, 200 tokens/s\n"
            "  last loss 4 (smallest 4 at step 2), no step skipped\n");
  EXPECT_THAT(content("page.html"), StartsWith("<!DOCTYPE html>"));
}

TEST_F(ReportCommand, SaysOnStderrWhatItCouldNotUse) {
  file("m.jsonl", kRun + step_line(1, "5") + "{\"kind\": \"st");
  const Outcome outcome = run(".");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("m.jsonl: the last line was cut short"), HasSubstr("\nreport.html\n")));
  EXPECT_THAT(content("report.html"), HasSubstr("<li>the last line was cut short"));
}

TEST_F(ReportCommand, PrintsASummaryInsteadWhenAsked) {
  file("m.jsonl", kRun + step_line(1, "5") + step_line(2, "4"));
  const Outcome outcome = run("m.jsonl --text");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("loss  █▁\n"));
  EXPECT_FALSE(std::filesystem::exists(path("report.html")));
}

TEST_F(ReportCommand, ComparesSeveralRunsInAPageOrSideBySide) {
  file("slow.jsonl", kRun + step_line(1, "5") + step_line(2, "4"));
  file("fast.jsonl", kRun + step_line(1, "5") + step_line(2, "3"));
  const Outcome outcome = run("slow.jsonl fast.jsonl -o page.html");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.text,
            "page.html\n"
            "  slow: step 2, last loss 4 (smallest 4 at step 2)\n"
            "  fast: step 2, last loss 3 (smallest 3 at step 2)\n");
  EXPECT_THAT(content("page.html"), HasSubstr("<title>slow · fast</title>"));
  EXPECT_THAT(run("slow.jsonl fast.jsonl --text").text, HasSubstr("loss  fast  █▁\n"));
  EXPECT_EQ(run("slow.jsonl slow.jsonl").exit_code, 2);
  EXPECT_EQ(run("slow.jsonl absent.jsonl").exit_code, 2);
  EXPECT_EQ(run("slow.jsonl fast.jsonl -o fast.jsonl").exit_code, 2);
}

TEST_F(ReportCommand, FailsWithASentenceWhereItCannotWriteOrWouldWriteOverTheMetrics) {
  const std::string lines = kRun + step_line(1, "5");
  file("m.jsonl", lines);
  const Outcome no_folder = run("m.jsonl -o absent/page.html");
  EXPECT_EQ(no_folder.exit_code, 3);
  EXPECT_THAT(no_folder.text, HasSubstr("cannot write the report to absent/page.html: No such file or directory"));
  EXPECT_THAT(run("m.jsonl -o .").text, HasSubstr("it is a folder"));
  EXPECT_THAT(run("m.jsonl -o /dev/full").text, HasSubstr("cannot write the report to /dev/full: No space left on device"));
  EXPECT_EQ(run("m.jsonl -o m.jsonl").exit_code, 2);
  EXPECT_EQ(content("m.jsonl"), lines);
  EXPECT_EQ(run("absent.jsonl").exit_code, 2);
}

}  // namespace
}  // namespace gannet
