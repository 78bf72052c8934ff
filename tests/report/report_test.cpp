// The report of a metrics file: what is read of it, what is drawn, and that nothing in it becomes markup.
#include "report/report.h"

#include <gannet/error.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "observe/metrics.h"
#include "report/format.h"
#include "report/page_reader.h"
#include "report/series.h"

namespace gannet::report {
namespace {

using test::count;
using test::data_of;
using test::kRun;
using test::step_line;
using test::without_library;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ReportOfFile : public test::MetricsFolder {
 protected:
  Records records(const std::string& content) const { return read_records(file("metrics.jsonl", content)); }
  std::string html(const std::string& content) const { return Report(file("metrics.jsonl", content)).html(); }
  Error error(const std::string& content) const {
    try {
      records(content);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return Error(ErrorCode::kInternal, "");
  }
};

TEST_F(ReportOfFile, HasWhatTheRunWasAndWhatEachStepDid) {
  const Records all = records(kRun + step_line(1, "5.5") + step_line(2, "4.5"));
  EXPECT_EQ(all.runs.size(), 1u);
  EXPECT_EQ(all.runs[0].parameters, 124439808);
  EXPECT_EQ(all.runs[0].config[1].origin, "default");
  EXPECT_THAT(all.runs[0].machine, Contains(std::make_pair("memory_bytes", "1.0 GiB")));
  ASSERT_EQ(all.steps.size(), 2u);
  EXPECT_EQ(all.steps[1].loss, 4.5);
  EXPECT_EQ(all.steps[1].phases[1].second, 0.2);
  EXPECT_THAT(all.phase_names, ElementsAre("forward", "backward"));
  EXPECT_THAT(all.notes, IsEmpty());
}

TEST_F(ReportOfFile, TakesTheLastRecordOfEachStepAndForgetsWhatAResumeLeftBehind) {
  // The first run came to step 4; the second went on from step 2 and is at step 3.
  const Records all =
      records(kRun + step_line(1, "5") + step_line(2, "4") + step_line(3, "3") + step_line(4, "2") + kRun + step_line(3, "2.5"));
  ASSERT_EQ(all.steps.size(), 3u);
  EXPECT_EQ(all.steps[2].loss, 2.5);
  EXPECT_EQ(all.steps[2].run, 1u);
  EXPECT_EQ(all.runs[0].left_behind, 2);
  EXPECT_EQ(all.runs[0].last_step, 4);
}

TEST_F(ReportOfFile, UsesAFileUpToALastLineThatWasCutShort) {
  const std::string cut = step_line(2, "4");
  const Records all = records(kRun + step_line(1, "5") + cut.substr(0, cut.size() / 2));
  EXPECT_EQ(all.steps.size(), 1u);
  EXPECT_THAT(all.notes, ElementsAre(HasSubstr("last line was cut short")));
}

TEST_F(ReportOfFile, NamesALineInTheMiddleThatACrashCutShort) {
  const std::string cut = step_line(2, "4");
  const Records all = records(kRun + step_line(1, "5") + cut.substr(0, cut.size() / 2) + "\n" + kRun + step_line(2, "4.5"));
  EXPECT_EQ(all.steps.size(), 2u);
  EXPECT_THAT(all.notes, ElementsAre("1 line was left out: line 3 was cut short, as by a crash"));
}

TEST_F(ReportOfFile, TakesTheWholeRecordBehindOneThatWasCutShort) {
  const std::string cut = step_line(2, "4");
  const Records all = records(kRun + step_line(1, "5") + cut.substr(0, cut.size() / 2) + kRun + step_line(2, "4.5"));
  EXPECT_EQ(all.runs.size(), 2u);
  EXPECT_EQ(all.steps.back().loss, 4.5);
  EXPECT_THAT(all.notes, ElementsAre(HasSubstr("line 3 begins with a record that was cut short")));
}

TEST_F(ReportOfFile, LeavesOutLinesThatAreNoRecordsAndNamesThem) {
  const Records all = records(kRun + std::string("garbage\n") + step_line(1, "5") + "[1]\n" + step_line(2, "\"high\"") +
                              R"({"kind": "step", "step": -1})"
                              "\n" +
                              step_line(3, "4"));
  EXPECT_EQ(all.steps.size(), 2u);
  EXPECT_THAT(all.notes, ElementsAre("4 lines were left out: line 2 is not JSON; line 4 is not a JSON object, but a JSON array; "
                                     "line 5 has no number in 'loss', but a JSON string; and so on"));
}

TEST_F(ReportOfFile, PassesOverKindsAndMembersOfLaterVersions) {
  const Records all = records(kRun + std::string("{\"kind\": \"weather\", \"rain\": true}\n") +
                              step_line(1, "5", "\"humidity\": [1, {\"a\": 2}]"));
  EXPECT_EQ(all.steps.size(), 1u);
  EXPECT_THAT(all.notes, IsEmpty());
}

TEST_F(ReportOfFile, RefusesANewerSchema) {
  const Error newer =
      error("{\"kind\": \"run\", \"schema\": 2, \"gannet\": \"9.0\", \"dtype\": {\"now\": \"an object\"}}\n" + step_line(1, "5"));
  EXPECT_EQ(newer.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(newer.message(), HasSubstr("has schema 2, written by Gannet 9.0; this one reads up to 1"));
}

TEST_F(ReportOfFile, RefusesFilesThatAreEmptyMissingOrOfAnotherKind) {
  EXPECT_THAT(error("").message(), HasSubstr("is empty"));
  EXPECT_EQ(error("step,loss\n1,5.0\n").code(), ErrorCode::kCorrupt);
  EXPECT_THAT(error("step,loss\n1,5.0\n").message(), HasSubstr("is not a metrics file: line 1 is not JSON"));
  EXPECT_THAT(error(std::string(100000, '[')).message(), HasSubstr("line 1 is nested deeper than 64 levels"));
  try {
    read_records(path("absent.jsonl"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.next_step(), HasSubstr("\"metrics\""));
  }
}

TEST_F(ReportOfFile, TakesTheOneMetricsFileOfAFolder) {
  EXPECT_THROW(read_records(folder_.string()), Error);
  file("a.jsonl", kRun + step_line(1, "5"));
  EXPECT_EQ(read_records(folder_.string()).steps.size(), 1u);
  file("b.jsonl", kRun);
  try {
    read_records(folder_.string());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("a.jsonl, b.jsonl"));
  }
}

TEST_F(ReportOfFile, SaysThatNoStepHasBeenRecorded) {
  const std::string page = html(kRun);
  EXPECT_THAT(page, AllOf(HasSubstr("no step has been recorded"), HasSubstr("ds.json:4:3"), Not(HasSubstr("<figure"))));
}

TEST_F(ReportOfFile, ReadsAndShowsNumbersThatAreNotFinite) {
  const std::string lines = kRun + step_line(1, "5") + step_line(2, "\"NaN\"") + step_line(3, "\"Infinity\"") + step_line(4, "4");
  const Records all = records(lines);
  EXPECT_TRUE(std::isnan(*all.steps[1].loss));
  EXPECT_EQ(all.steps[2].loss, std::numeric_limits<double>::infinity());
  const std::string page = html(lines);
  EXPECT_THAT(page, HasSubstr("not finite at 2 steps"));
  const auto loss = data_of(page)["charts"]["loss"]["lines"][0];
  EXPECT_EQ(loss["mean"].dump(), "[5.0,null,null,4.0]");
  EXPECT_EQ(loss["bad"].dump(), "[1,2]");
}

TEST_F(ReportOfFile, DrawsAChartOfAllThatWasRecorded) {
  const std::string page = html(kRun + step_line(1, "5") + step_line(2, "4"));
  for (const char* id : {"loss", "lr", "grad-norm", "loss-scale", "step-time", "rate-0", "memory", "value-0"})
    EXPECT_THAT(page, HasSubstr("data-chart=\"" + std::string(id) + "\"")) << id;
  EXPECT_THAT(page, AllOf(HasSubstr("of all 2 groups"), HasSubstr("clipped above 1"), HasSubstr(">tokens/s<"), HasSubstr("GiB"),
                          HasSubstr("accuracy")));
}

TEST_F(ReportOfFile, DrawsMemoryByKindWhereStepsSayIt) {
  const auto with = [](int64_t step, const char* activations) {
    return step_line(
        step, "5",
        R"("memory": {"parameters": 1048576, "states": 2097152, "buffers": 0, "activations": )" + std::string(activations) + "}");
  };
  const std::string page = html(kRun + with(1, "8388608") + with(2, "4194304"));
  const auto chart = data_of(page)["charts"]["memory-kinds"];
  EXPECT_EQ(chart["stack"], true);
  ASSERT_EQ(chart["lines"].size(), 3u);  // a kind that there never was is left out
  EXPECT_EQ(chart["lines"][2]["name"], "activations");
  EXPECT_EQ(chart["lines"][2]["mean"].dump(), "[8.0,4.0]");
  EXPECT_THAT(html(kRun + step_line(1, "5")), Not(HasSubstr("memory-kinds")));
}

TEST_F(ReportOfFile, GivesTheScriptEachStepWhereItStands) {
  const auto data = data_of(html(kRun + step_line(1, "5") + step_line(2, "4.25") + step_line(7, "3")));
  EXPECT_EQ(data["begin"].dump(), "[1,1,5]");  // differences
  EXPECT_EQ(data["time"].dump(), "[1,2,7]");
  EXPECT_EQ(data["charts"]["loss"]["lines"][0]["mean"].dump(), "[5.0,4.25,3.0]");
  EXPECT_EQ(data["charts"]["loss-scale"]["scale"], "two");
  EXPECT_EQ(data["charts"]["grad-norm"]["thresholds"].dump(), "[1.0]");
  EXPECT_EQ(data["charts"]["step-time"]["lines"][1]["name"], "backward");
  EXPECT_FALSE(data.contains("end"));
}

TEST_F(ReportOfFile, RoundsNumbersButNoneThatThePageShowsWhole) {
  const auto mean = data_of(html(kRun + step_line(1, "131072") + step_line(2, "0.123456789") + step_line(3, "-7654321.4")));
  EXPECT_EQ(mean["charts"]["loss"]["lines"][0]["mean"].dump(), "[131072.0,0.12346,-7654321.0]");
}

TEST_F(ReportOfFile, LeavesOutChartsOfWhatWasNotRecorded) {
  const std::string page =
      html(kRun + std::string("{\"kind\": \"step\", \"step\": 1, \"loss\": null, \"seconds\": 2, \"loss_scale\": 1}\n"));
  EXPECT_EQ(count(page, "<figure"), 2u);  // step time and samples/s
  EXPECT_THAT(page, AllOf(HasSubstr(">samples/s<"), HasSubstr("<dd>–<small>")));
  EXPECT_EQ(data_of(page)["charts"]["rate"]["lines"][0]["mean"].dump(), "[8.0]");
}

TEST_F(ReportOfFile, ShowsSkippedStepsWithTheirReasonsInTheTableAndUnderThePointer) {
  const std::string page =
      html(kRun + step_line(1, "5") + step_line(2, "4", R"("applied": false, "reason": "step 2 skipped: an inf in 'wte'")") +
           step_line(3, "4"));
  EXPECT_THAT(page, HasSubstr("<td>an inf in &#39;wte&#39;</td>"));
  EXPECT_EQ(data_of(page)["skipped"].dump(), "[[1,1,0]]");  // at the second place one step, for the first reason
  EXPECT_EQ(data_of(page)["reasons"].dump(), "[\"an inf in 'wte'\"]");
}

TEST_F(ReportOfFile, MakesNoMarkupOfWhatTheFileSays) {
  const std::string evil = R"(</script><script>alert(1)</script><img src=x onerror=alert(2)> \" ' {{title}} \u0007 \\)";
  std::string run = kRun;
  run.replace(run.find("ds.json"), 7, evil);
  run.replace(run.find("\"loom\""), 6, "\"" + evil + "\"");
  run.replace(run.find("\"AdamW\""), 7, "\"" + evil + "\"");
  std::string step = step_line(1, "5", R"("applied": false, "reason": ")" + evil + "\"");
  step.replace(step.find("accuracy"), 8, evil);
  step.replace(step.find("tokens"), 6, evil);
  step.replace(step.find("forward"), 7, evil);
  const std::string event = R"({"kind": "event", "step": 1, "time": 1, "what": ")" + evil + R"(", "text": ")" + evil + "\"}\n";
  const Records all = records(run + step + event);
  ASSERT_THAT(all.notes, IsEmpty());
  const std::string page = html(run + step + event);
  EXPECT_EQ(count(page, "<script"), 3u);  // the data, the library and the page's own
  EXPECT_EQ(count(page, "</script"), 3u);
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("{{title}}"));  // not taken for a place of the template
  EXPECT_THAT(page, HasSubstr("\\u003c/script\\u003e"));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;"));
}

TEST_F(ReportOfFile, NeedsNothingButItself) {
  const std::string page = html(kRun + step_line(1, "5"));
  for (const char* outside : {"http:", "https:", "src=", "@import", "url(", "<link"})
    EXPECT_THAT(without_library(page), Not(HasSubstr(outside))) << outside;
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));  // the browser loads nothing for the library either
  EXPECT_THAT(page, Not(HasSubstr("sourceMappingURL")));
  EXPECT_THAT(page, AllOf(HasSubstr("Permission is hereby granted"), HasSubstr(".Dygraph=t()")));  // its licence, and itself
}

TEST_F(ReportOfFile, OfManyStepsStaysSmallAndKeepsEveryExtreme) {
  const auto lines_of = [](int steps) {
    std::string lines = kRun;
    for (int step = 1; step <= steps; ++step)
      lines += step_line(step, step == 7777 ? "99" : "2",
                         step % 50 ? "\"applied\": true" : "\"applied\": false, \"reason\": \"" + std::to_string(step) + "\"");
    return lines;
  };
  const std::string exact = html(lines_of(60000));
  EXPECT_EQ(count(exact, "rows left out"), 1u);
  const auto all = data_of(exact);
  EXPECT_EQ(all["begin"].size(), 60000u);  // a place for each step
  EXPECT_EQ(all["reasons"].size(), 500u);
  EXPECT_EQ(all["skipped"].back()[2], -1);

  std::string lines = lines_of(250000);
  const std::string page = html(lines);
  EXPECT_LT(page.size(), 3u << 20);
  const auto data = data_of(page);
  EXPECT_EQ(data["begin"].size(), data["end"].size());
  EXPECT_LE(data["begin"].size(), 20000u);
  const auto loss = data["charts"]["loss"]["lines"][0];
  const size_t place = (7777 - 1) * data["begin"].size() / 250000;
  EXPECT_EQ(loss["high"][place], 99.0);
  EXPECT_EQ(loss["low"][place], 2.0);
  int64_t skipped = 0;
  for (const auto& one : data["skipped"]) skipped += one[1].get<int64_t>();
  EXPECT_EQ(skipped, 5000);
}

TEST_F(ReportOfFile, ShowsRunsAsSegmentsAndWhatChangedBetweenThem) {
  std::string second = kRun;
  second.replace(second.find("\"value\": 1.0"), 12, "\"value\": 0.5");
  const std::string page =
      html(kRun + step_line(1, "5") + step_line(2, "4") + second + step_line(2, "4") + step_line(3, "3") +
           "{\"kind\": \"event\", \"step\": 3, \"time\": 3, \"what\": \"checkpoint\", \"text\": \"saved it\"}\n");
  EXPECT_EQ(count(page, "class=\"bar"), 2u);
  EXPECT_THAT(page, AllOf(HasSubstr("run 1: steps 1 to 2; 1 step left behind"), HasSubstr("gradient_clipping: 1.0 → 0.5"),
                          HasSubstr("step 3: saved it")));
  EXPECT_EQ(data_of(page)["resumed"].dump(), "[[2,\"run 2\"]]");
  EXPECT_EQ(data_of(page)["runs"].dump(), "[[0,1],[1,2]]");
}

TEST_F(ReportOfFile, ForTheTerminalHasTheLossAsALineOfBlocks) {
  const Report report(file("metrics.jsonl", kRun + step_line(1, "3") + step_line(2, "2") +
                                                step_line(3, "1", R"("applied": false, "reason": "an \u001b[31m inf")")));
  EXPECT_THAT(report.text(), AllOf(HasSubstr("loss  █▄▁\n"), HasSubstr("step 3 skipped: an ?[31m inf"),
                                   HasSubstr("124 M parameters, 2 ranks, ZeRO stage 2, fp16")));
}

TEST(BucketsOfSteps, OfFewStepsHaveOneEachAndOfManyTheirExtremes) {
  std::vector<StepRecord> steps(10);
  for (int64_t i = 0; i < 10; ++i) steps[size_t(i)].step = i + 1, steps[size_t(i)].loss = i == 4 ? 100.0 : double(i);
  const auto loss = [](const StepRecord& step) { return step.loss; };
  EXPECT_TRUE(Buckets(steps, 10).is_exact());
  const Buckets two(steps, 2);
  const Series both = series(two, loss);
  ASSERT_EQ(both.points.size(), 2u);
  EXPECT_EQ(both.points[0].low, 0);
  EXPECT_EQ(both.points[0].high, 100);
  EXPECT_EQ(both.points[1].mean, 7);
  EXPECT_EQ(both.high_step, 5);
}

TEST(Smoothing, FollowsAStraightLineToItsEndsAndPassesOverWhatIsNotFinite) {
  std::vector<StepRecord> steps(50);
  for (int64_t i = 0; i < 50; ++i) steps[size_t(i)].step = i, steps[size_t(i)].loss = 3 - 0.05 * double(i);
  steps[20].loss = std::numeric_limits<double>::quiet_NaN();
  const auto values = smoothed(steps, [](const StepRecord& step) { return step.loss; }, 5);
  for (size_t i = 0; i < 50; ++i) EXPECT_NEAR(values[i].value(), 3 - 0.05 * double(i), 1e-9) << i;
}

TEST(Formats, AreShort) {
  EXPECT_EQ(number_text(2.31449), "2.314");
  EXPECT_EQ(number_text(8123.4), "8,123");
  EXPECT_EQ(number_text(0.0003), "3e-4");
  EXPECT_EQ(number_text(9.999e-4), "1e-3");
  EXPECT_EQ(number_text(-1234567), "-1,234,567");
  EXPECT_EQ(number_text(12345678), "1.23e7");
  EXPECT_EQ(count_text(124439808), "124 M");
  EXPECT_EQ(duration_text(0.0042), "4.2 ms");
  EXPECT_EQ(duration_text(192), "3 min 12 s");
  EXPECT_EQ(duration_text(7500), "2 h 05 min");
  EXPECT_EQ(html_text("a\xff<\x01é"),
            "a\xEF\xBF\xBD&lt;\xEF\xBF\xBD"
            "é");
}

}  // namespace
}  // namespace gannet::report
