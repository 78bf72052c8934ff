// Several runs on one page, and side by side in a terminal.
#include "report/compare.h"

#include <gannet/error.h>
#include <gmock/gmock.h>

#include "observe/metrics.h"
#include "report/data.h"
#include "report/names.h"
#include "report/page_reader.h"

namespace gannet::report {
namespace {

using test::count;
using test::data_of;
using test::kRun;
using test::step_line;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string run_with_clipping(const std::string& value) {
  std::string run = kRun;
  return run.replace(run.find("\"value\": 1.0"), 12, "\"value\": " + value);
}

std::string with_value(std::string line, const std::string& value) {
  return line.replace(line.find("\"accuracy\": 0.75"), 16, value);
}

class RunsCompared : public test::MetricsFolder {
 protected:
  // A run in a folder of its own: PATH/NAME/metrics.jsonl.
  std::string run(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(folder_ / name);
    return file(name + "/metrics.jsonl", content);
  }
  static Error error(const std::vector<std::string>& paths) {
    try {
      const Comparison comparison(paths);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return Error(ErrorCode::kInternal, "");
  }
};

TEST_F(RunsCompared, HaveALineEachOverTheStepsOfBoth) {
  const Comparison two({run("a", kRun + step_line(1, "5") + step_line(2, "4") + step_line(4, "3")),
                        run("b", kRun + step_line(2, "8") + step_line(3, "7", R"("applied": false, "reason": "an inf")"))});
  const std::string page = two.html();
  const auto data = data_of(page);
  EXPECT_EQ(data["begin"].dump(), "[1,1,1,1]");
  EXPECT_FALSE(data.contains("time"));
  const auto loss = data["charts"]["loss"];
  ASSERT_EQ(loss["lines"].size(), 2u);
  EXPECT_EQ(loss["lines"][0]["name"], "a");
  EXPECT_EQ(loss["lines"][0]["mean"].dump(), "[5.0,4.0,null,3.0]");
  EXPECT_EQ(loss["lines"][1]["name"], "b");
  EXPECT_EQ(loss["lines"][1]["mean"].dump(), "[null,8.0,7.0,null]");
  EXPECT_EQ(data["skipped"].dump(), "[[2,1,0]]");
  EXPECT_EQ(data["reasons"].dump(), "[\"b: an inf\"]");
  for (const char* id : {"lr", "grad-norm", "loss-scale", "step-time", "rate-0", "memory", "value-0"}) {
    ASSERT_TRUE(data["charts"].contains(id)) << id;
    EXPECT_EQ(data["charts"][id]["lines"].size(), 2u) << id;
    EXPECT_EQ(data["charts"][id]["lines"][1]["colour"], loss["lines"][1]["colour"]) << id;  // a run has one colour
  }
  EXPECT_THAT(page,
              AllOf(HasSubstr("<title>a · b</title>"), HasSubstr("Loss, a"), HasSubstr("Loss, b"), HasSubstr("mean of a step")));
}

TEST_F(RunsCompared, DrawWhatTheyShareAndSayWhatOneAloneHas) {
  const std::string page = Comparison({run("a", kRun + with_value(step_line(1, "5"), R"("bleu": 1, "accuracy": 0.5)")),
                                       run("b", kRun + step_line(1, "5"))})
                               .html();
  EXPECT_EQ(count(page, "<h3>bleu"), 0u);
  EXPECT_THAT(page, AllOf(HasSubstr("<h3>accuracy</h3>"), HasSubstr("not drawn, since only one run has it: bleu (a)")));
}

TEST_F(RunsCompared, HaveAChartOfTheirValidationLossesUnderWhateverName) {
  const Comparison two({run("a", kRun + with_value(step_line(1, "5"), "\"eval/loss\": 4") + step_line(2, "4")),
                        run("b", kRun + step_line(1, "5") + with_value(step_line(2, "4"), "\"val_loss\": 3"))});
  const auto chart = data_of(two.html())["charts"]["validation"];
  ASSERT_EQ(chart["lines"].size(), 2u);
  EXPECT_EQ(chart["lines"][0]["best"].dump(), "[0,4.0]");
  EXPECT_EQ(chart["lines"][1]["best"].dump(), "[1,3.0]");
  EXPECT_THAT(two.html(), AllOf(HasSubstr("<th scope=\"col\">best validation loss</th>"), Not(HasSubstr("<h3>eval/loss"))));
}

TEST_F(RunsCompared, SmoothEachRunOverItsOwnSteps) {
  std::string even = kRun, odd = kRun;
  for (int step = 1; step <= 60; ++step) (step % 2 ? odd : even) += step_line(step, step % 2 ? "2" : "4");
  const auto lines = data_of(Comparison({run("even", even), run("odd", odd)}).html())["charts"]["loss"]["lines"];
  EXPECT_TRUE(lines[0]["smooth"][0].is_null());
  EXPECT_EQ(lines[0]["smooth"][1], 4.0);
  EXPECT_EQ(lines[1]["smooth"][0], 2.0);
  EXPECT_TRUE(lines[1]["smooth"][1].is_null());
}

TEST_F(RunsCompared, ListTheConfigKeysThatDiffer) {
  const std::string page =
      Comparison({run("a", kRun + step_line(1, "5")), run("b", run_with_clipping("0.5") + step_line(1, "5"))}).html();
  EXPECT_THAT(page, HasSubstr("<tr><td>gradient_clipping</td><td>1.0</td><td>0.5</td></tr>"));
  EXPECT_THAT(page, Not(HasSubstr("<td>fp16.enabled</td>")));
  const std::string equal = Comparison({run("a", kRun + step_line(1, "5")), run("b", kRun + step_line(1, "5"))}).html();
  EXPECT_THAT(equal, HasSubstr("The runs' configs are equal"));
}

TEST_F(RunsCompared, AreSideBySideInATerminal) {
  const Comparison two({run("a", kRun + step_line(1, "5") + step_line(2, "4")), run("b\x1b[31m", kRun + step_line(1, "8"))});
  const std::string text = two.text();
  EXPECT_THAT(text, AllOf(HasSubstr("loss  a       █▁\n"), HasSubstr("Step time, ms"), HasSubstr("500, 500")));
  EXPECT_THAT(text, testing::ContainsRegex("last loss +4 \\(smallest 4 at step 2\\) +8 \\(smallest 8 at step 1\\)"));
  EXPECT_THAT(text, testing::ContainsRegex("Loss +4, 4.5 +8, 8\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("b?[31m"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(two.summary()[0], "a: step 2, last loss 4 (smallest 4 at step 2)");

  const Comparison three({path("a/metrics.jsonl"), run("c", kRun + with_value(step_line(1, "5"), "\"val_loss\": 3")),
                          path("b\x1b[31m/metrics.jsonl")});
  EXPECT_THAT(three.text(), testing::ContainsRegex("best validation loss +– +3 \\(at step 1; last 3\\) +–\n"));
}

TEST_F(RunsCompared, OfManyStepsStaySmall) {
  std::string lines = kRun;
  for (int step = 1; step <= 100000; ++step) lines += step_line(step, "2");
  const std::string page = Comparison({run("a", lines), run("b", lines), run("c", lines)}).html();
  EXPECT_LE(data_of(page)["begin"].size(), 20000u);
  EXPECT_LT(page.size(), 12u << 20);
}

TEST(PlacesOfSteps, AreFewerWhereEachHasManyLines) {
  std::vector<StepRecord> steps(120000);
  for (size_t i = 0; i < steps.size(); ++i) steps[i].step = static_cast<int64_t>(i);
  EXPECT_EQ(places_of(steps, 20).ranges().size(), 120000u);
  EXPECT_EQ(places_of(steps, 25).ranges().size(), 20000u);
  EXPECT_EQ(places_of(steps, 100).ranges().size(), 10000u);
}

TEST_F(RunsCompared, AreRefusedWithASentence) {
  const std::string a = run("a", kRun + step_line(1, "5")), b = run("b", kRun + step_line(1, "5"));
  EXPECT_EQ(error({a, b, a}).message(), a + " is named twice");
  EXPECT_EQ(error({a, (folder_ / "a").string()}).message(), a + " is named twice");
  std::filesystem::create_symlink(a, path("link.jsonl"));
  EXPECT_EQ(error({a, path("link.jsonl")}).message(), path("link.jsonl") + " and " + a + " are the same metrics file");
  EXPECT_EQ(error({a, path("absent.jsonl")}).code(), ErrorCode::kNotFound);
  EXPECT_THAT(error({a, run("c", kRun)}).message(), HasSubstr("c/metrics.jsonl has no step: there is nothing to compare"));
  EXPECT_THAT(error({a, b, a, b, a, b, a}).message(), HasSubstr("7 metrics files; a page compares up to 6 runs"));
  EXPECT_EQ(error({a, b, a, b, a, b, a}).code(), ErrorCode::kArgument);
}

TEST(RunNames, AreThePartsOfThePathsThatDiffer) {
  EXPECT_THAT(run_names({"/r/a/metrics.jsonl", "/r/b/metrics.jsonl"}), ElementsAre("a", "b"));
  EXPECT_THAT(run_names({"a.jsonl", "b.jsonl"}), ElementsAre("a", "b"));
  EXPECT_THAT(run_names({"/r/a/1/m.jsonl", "/r/b/1/m.jsonl", "/r/a/2/m.jsonl"}), ElementsAre("a/1", "b/1", "a/2"));
  EXPECT_THAT(run_names({"/r/m.jsonl", "/r/x/m.jsonl"}), ElementsAre("m", "x/m"));
  EXPECT_THAT(run_names({"/r/a", "/r/a.jsonl"}), ElementsAre("a", "a.jsonl"));
  EXPECT_THAT(run_names({"/r/../q/a.jsonl", "/q/b.jsonl"}), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace gannet::report
