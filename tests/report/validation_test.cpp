// The report's validation loss, and the plain names and fixed colours of phases and kinds of memory.
#include <gmock/gmock.h>

#include "observe/metrics.h"
#include "report/kinds.h"
#include "report/page_reader.h"
#include "report/report.h"

namespace gannet::report {
namespace {

using test::data_of;
using test::kRun;
using test::step_line;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A step with a value of the program's: `value` is that of `name`.
std::string step_with(int64_t step, const std::string& name, const std::string& value) {
  std::string line = step_line(step, "3");
  const std::string usual = "\"accuracy\": 0.75";
  return line.replace(line.find(usual), usual.size(), "\"" + name + "\": " + value);
}

class ValidationLoss : public test::MetricsFolder {
 protected:
  Report report(const std::string& content) const { return Report(file("metrics.jsonl", content)); }
};

TEST_F(ValidationLoss, IsASecondLineOfTheLossWithItsBestValueMarked) {
  const std::string page = report(kRun + step_line(1, "5") + step_with(2, "eval/loss", "4") + step_line(3, "3") +
                                  step_with(4, "eval/loss", "2.5") + step_with(5, "eval/loss", "2.75"))
                               .html();
  const auto chart = data_of(page)["charts"]["loss"];
  ASSERT_EQ(chart["lines"].size(), 2u);
  EXPECT_EQ(chart["lines"][0]["name"], "training");
  EXPECT_EQ(chart["lines"][1]["name"], "validation");
  EXPECT_NE(chart["lines"][1]["colour"], chart["lines"][0]["colour"]);
  EXPECT_EQ(chart["lines"][1]["mean"].dump(), "[null,4.0,null,2.5,2.75]");
  EXPECT_EQ(chart["lines"][1]["sparse"], true);
  EXPECT_EQ(chart["lines"][1]["best"].dump(), "[3,2.5]");
  EXPECT_FALSE(data_of(page)["charts"].contains("value-1"));  // not a second time, on its own
  EXPECT_THAT(page, AllOf(HasSubstr("</i>validation <b>"), HasSubstr("<dt>best validation loss</dt><dd>2.5<small>at step 4; "
                                                                     "last 2.75</small>")));
}

TEST_F(ValidationLoss, IsKnownByTheNamesOfTheTrainerATrialAndOfUsualLoops) {
  for (const char* name : {"eval/loss", "eval_loss", "val_loss", "validation_loss", "validation/loss"}) {
    const Report one = report(kRun + step_line(1, "5") + step_with(2, name, "4"));
    EXPECT_EQ(data_of(one.html())["charts"]["loss"]["lines"].size(), 2u) << name;
    EXPECT_THAT(one.text(), AllOf(HasSubstr("best validation loss 4 (at step 2"), HasSubstr("\nLoss validation "))) << name;
  }
  for (const char* name : {"train/loss", "accuracy", "loss", "test/loss"}) {
    const std::string page = report(kRun + step_line(1, "5") + step_with(2, name, "4")).html();
    EXPECT_EQ(data_of(page)["charts"]["loss"]["lines"].size(), 1u) << name;
    EXPECT_THAT(page, Not(HasSubstr("validation loss"))) << name;
  }
}

TEST_F(ValidationLoss, AfterTheLastStepBelongsToIt) {
  const std::string late = R"({"kind": "values", "step": 2, "samples": 16, "time": 9.5, "values": {"eval/loss": 1.5}})";
  const Report one = report(kRun + step_with(1, "eval/loss", "4") + step_line(2, "3") + late + "\n");
  const auto line = data_of(one.html())["charts"]["loss"]["lines"][1];
  EXPECT_EQ(line["mean"].dump(), "[4.0,1.5]");
  EXPECT_EQ(line["best"].dump(), "[1,1.5]");
}

TEST_F(ValidationLoss, HasAChartOfItsOwnWhereNoLossIsRecordedAndNoMarkerWhereNoneIsFinite) {
  const auto without =
      data_of(report(kRun + std::string("{\"kind\": \"step\", \"step\": 1, \"values\": {\"val_loss\": 4}}\n")).html());
  EXPECT_FALSE(without["charts"].contains("loss"));
  EXPECT_EQ(without["charts"]["value-0"]["lines"][0]["mean"].dump(), "[4.0]");

  const std::string page = report(kRun + step_line(1, "5") + step_with(2, "eval/loss", "\"NaN\"")).html();
  EXPECT_FALSE(data_of(page)["charts"]["loss"]["lines"][1].contains("best"));
  EXPECT_THAT(page, Not(HasSubstr("best validation loss")));
}

TEST_F(ValidationLoss, OfALongRunKeepsItsBestValue) {
  std::string lines = kRun;
  for (int step = 1; step <= 200000; ++step)
    lines += step % 1000 ? step_line(step, "3") : step_with(step, "eval/loss", step == 57000 ? "1.25" : "2");
  const auto data = data_of(report(lines).html());
  const auto best = data["charts"]["loss"]["lines"][1]["best"];
  EXPECT_EQ(best[1], 1.25);
  int64_t begin = 0;
  for (size_t place = 0; place <= best[0].get<size_t>(); ++place) begin += data["begin"][place].get<int64_t>();
  EXPECT_LE(begin, 57000);
  EXPECT_GT(begin, 57000 - 20);
}

TEST_F(ValidationLoss, PhasesHavePlainNamesAndKeepTheirColoursInAnyOrder) {
  const auto with = [](const std::string& phases) {
    return "{\"kind\": \"step\", \"step\": 1, \"seconds\": 2, \"phases\": {" + phases + "}}\n";
  };
  const std::string page = report(kRun + with(R"("forget": 0.25, "check": 0.5, "tell": 0.1, "dance": 0.1)")).html();
  const auto lines = data_of(page)["charts"]["step-time"]["lines"];
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0]["name"], "free gradients");
  EXPECT_EQ(lines[1]["name"], "norm and check");
  EXPECT_EQ(lines[2]["name"], "monitors");
  EXPECT_EQ(lines[3]["name"], "dance");  // of a later version
  EXPECT_EQ(lines[4]["name"], "other");
  EXPECT_THAT(page, AllOf(HasSubstr("Step time, norm and check, s"), HasSubstr("title=\"releasing the gradients&#39; memory\"")));
  const auto turned = data_of(report(kRun + with(R"("tell": 0.1, "check": 0.5, "forget": 0.25)")).html());
  EXPECT_EQ(turned["charts"]["step-time"]["lines"][0]["colour"], lines[2]["colour"]);
  EXPECT_EQ(turned["charts"]["step-time"]["lines"][1]["colour"], lines[1]["colour"]);
  EXPECT_EQ(turned["charts"]["step-time"]["lines"][2]["colour"], lines[0]["colour"]);
}

TEST(Kinds, HaveOneColourEach) {
  std::vector<int> colours{kOtherColour};
  for (const char* name : {"forward", "evaluate", "backward", "reduce", "check", "update", "publish", "forget", "offload",
                           "gather", "pipe", "checkpoint", "tell"}) {
    const Kind kind = phase_kind(name, 0);
    EXPECT_FALSE(kind.meaning.empty()) << name;
    EXPECT_THAT(colours, Not(testing::Contains(kind.colour))) << name;
    colours.push_back(kind.colour);
  }
  EXPECT_EQ(memory_kind("activations", 0).colour, memory_kind("activations", 3).colour);
}

}  // namespace
}  // namespace gannet::report
