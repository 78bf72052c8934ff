// The schedule that a pipeline trains by: where it comes from, and what is wrong with it.
#include "pipeline/chosen_schedule.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/format.h"
#include "pipeline/built_in.h"
#include "pipeline/instructions.h"

namespace gannet::pipeline {
namespace {

using pipe::BackwardPass;
using pipe::ForwardPass;
using pipe::Instruction;
using pipe::LoadMicroBatch;
using pipe::RecvActivation;
using pipe::RecvGrad;
using pipe::SendActivation;
using pipe::SendGrad;
using testing::HasSubstr;
using Steps = std::vector<std::vector<Instruction>>;

std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

std::string refusal_of(const std::string& configured, uint32_t stages, int64_t micro_batches, const pipe::Options& options = {}) {
  return refusal_of([&] { ChosenSchedule({configured}, options, stages, micro_batches); });
}

// DeepSpeed's TrainSchedule with its instructions and buffers.
struct TrainSchedule : pipe::PipeSchedule {
  using PipeSchedule::PipeSchedule;
  int64_t num_pipe_buffers() const override {
    return std::max<int64_t>(2, std::min(num_stages() - stage(), num_micro_batches()));
  }
  Steps steps() const override {
    Steps steps;
    int64_t previous = -1;
    const auto exists = [&](int64_t i) { return i >= 0 && i < num_micro_batches(); };
    const auto buffer = [&](int64_t i) { return i % num_pipe_buffers(); };
    const int64_t s = stage(), all = 2 * (num_micro_batches() + num_stages() - 1);
    for (int64_t t = 0; t < all; ++t) {
      const bool is_forward = t % 2 == s % 2;
      const int64_t half = t / 2;
      int64_t now = is_forward ? half - s / 2 : half - num_stages() + (s + 1) / 2;
      if (!is_forward && t % 2 == 1) now = half - num_stages() + 1 + s / 2;
      auto& step = steps.emplace_back();
      if (is_forward) {
        if (exists(previous) && !is_first_stage()) step.push_back(SendGrad(buffer(previous)));
        if (exists(now) && !is_first_stage()) step.push_back(RecvActivation(buffer(now)));
      } else {
        if (exists(previous) && !is_last_stage()) step.push_back(SendActivation(buffer(previous)));
        if (exists(now) && !is_last_stage()) step.push_back(RecvGrad(buffer(now)));
      }
      if (is_forward && exists(now) && (is_first_stage() || is_last_stage())) step.push_back(LoadMicroBatch(buffer(now)));
      if (exists(now)) step.push_back(is_forward ? ForwardPass(buffer(now)) : BackwardPass(buffer(now)));
      if (t + 1 == all) step.insert(step.end(), {pipe::ReduceTiedGrads(), pipe::ReduceGrads(), pipe::OptimizerStep()});
      previous = now;
    }
    return steps;
  }
};

TEST(ChosenSchedule, DeepSpeedsInstructionsAreOneForwardOneBackward) {
  for (uint32_t stages = 2; stages <= 5; ++stages)
    for (int64_t m = 1; m <= 9; ++m) {
      ChosenSchedule chosen({"gpipe"}, {.schedule = pipe::schedule<TrainSchedule>()}, stages, m);
      EXPECT_EQ(to_csv(chosen.of(m)), to_csv(built_in("1f1b", {stages, m, {}}))) << stages << " stages, " << m;
    }
}

TEST(ChosenSchedule, ANameOrAFileOfTheConfigIsChecked) {
  ChosenSchedule by_name({"zb-v"}, {}, 2, 4);
  EXPECT_EQ(by_name.of(4), built_in("zb-v", {2, 4, {}}));
  EXPECT_EQ(by_name.of(6), built_in("zb-v", {2, 6, {}}));
  EXPECT_NE(by_name.hash_of(4), by_name.hash_of(6));
  EXPECT_EQ(by_name.stage_of(), v_shape(2));
  EXPECT_EQ(ChosenSchedule({"interleaved"}, {.chunks = 3}, 2, 4).stage_of().size(), 6u);
  EXPECT_EQ(to_csv(ChosenSchedule({"zb-h1"}, {.chunks = 2}, 1, 2).of(2)), "0F0,0B0,0F1,0B1\n")
      << "one stage has nothing to wait for";

  const std::string path = testing::TempDir() + "/mine.csv";
  std::ofstream(path) << to_csv(built_in("gpipe", {2, 3, {}}));
  EXPECT_EQ(ChosenSchedule({path}, {}, 2, 3).of(3), built_in("gpipe", {2, 3, {}}));
  EXPECT_THAT(refusal_of(path, 2, 4), HasSubstr("mine.csv\": it is of 3 micro-batches, and a step has 4"));
  EXPECT_THAT(refusal_of(path, 3, 3), HasSubstr("it has 2 rows, and the pipeline has 3 stages"));
  EXPECT_THAT(refusal_of(path, 2, 3, {.chunks = 2}), HasSubstr("pipe::Options asks for 2 chunks, and"));
  std::ofstream(path) << "0F0,0F1\n1F0,1F1\n";
  EXPECT_THAT(refusal_of(path, 2, 2), HasSubstr("it has only forwards"));
  std::ofstream(path) << "0F0,0B0\n1B0,1F0\n";
  EXPECT_THAT(refusal_of(path, 2, 1), HasSubstr("rank 1, position 1: 1B0 needs the activations of part 1"));
  EXPECT_THAT(refusal_of("interleaved", 4, 9), HasSubstr("\"interleaved\": schedule interleaved: 9 micro-batches"));
  EXPECT_THAT(refusal_of("dualpipe-v", 4, 7), HasSubstr("4 stages need 8 micro-batches at least"));
  try {
    ChosenSchedule({"/nowhere/mine.csv"}, {}, 2, 2);
    ADD_FAILURE() << "no file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  }
}

TEST(ChosenSchedule, AutoSearchesAgainWithTheTimesOfTheRun) {
  ChosenSchedule chosen({"auto", 4}, {}, 4, 8);
  EXPECT_TRUE(chosen.wants_times());
  const Schedule first = chosen.of(8);
  const Schedule parts{std::vector<std::vector<Action>>(4), chosen.stage_of()};
  const Times times = even_times(parts, {0.1, 0.3, 0.05});
  EXPECT_THAT(chosen.set_times(times, 8), HasSubstr("part 0 on stage 0: forward"));
  EXPECT_FALSE(chosen.wants_times());
  EXPECT_EQ(chosen.of(8).rank_of, first.rank_of) << "layers do not move";
  EXPECT_LE(simulate(chosen.of(8), times).total, simulate(first, times).total);
  for (const double peak : simulate(chosen.of(8), times).peaks) EXPECT_LE(peak, 4);
  EXPECT_FALSE(ChosenSchedule({"auto"}, {}, 1, 8).wants_times());
  EXPECT_THAT(refusal_of([] { ChosenSchedule({"1f1b", 4}, {}, 2, 4); }),
              HasSubstr("memory_limit is set, and gannet.pipeline.schedule: \"1f1b\""));
  EXPECT_THAT(refusal_of([] { ChosenSchedule({"auto", 4}, {.schedule = pipe::schedule<TrainSchedule>()}, 2, 4); }),
              HasSubstr("memory_limit is set, and pipe::Options::schedule"));
  EXPECT_THAT(refusal_of([] { ChosenSchedule({"auto", 0.2}, {}, 2, 4); }),
              HasSubstr("no schedule keeps at most 0.2 activations"));
}

// Stage 1 of 2 with these instructions, and num_pipe_buffers() 2.
std::string refused(const Steps& steps, int64_t stage = 1) {
  struct Written : pipe::PipeSchedule {
    Written(Steps all, int64_t stage) : PipeSchedule(2, 2, stage), all(std::move(all)) {}
    Steps steps() const override { return all; }
    Steps all;
  };
  return refusal_of([&] { actions_of(Written(steps, stage)); });
}

TEST(ChosenSchedule, TheFirstWrongInstructionIsNamed) {
  EXPECT_THAT(refused({{RecvActivation(0)}, {BackwardPass(0)}}),
              HasSubstr("stage 1, step 1: BackwardPass(0) comes before the ForwardPass of its buffer"));
  EXPECT_THAT(refused({{RecvActivation(0), ForwardPass(1)}}), HasSubstr("ForwardPass(1) has no inputs in its buffer"));
  EXPECT_THAT(refused({{RecvActivation(0), ForwardPass(0)}, {RecvActivation(0)}}),
              HasSubstr("RecvActivation(0) would overwrite micro-batch 0, whose backward has not run"));
  EXPECT_THAT(refused({{RecvActivation(2)}}), HasSubstr("names a buffer that does not exist: num_pipe_buffers() is 2"));
  EXPECT_THAT(refused({{RecvActivation(0), ForwardPass(0), SendActivation(0)}}), HasSubstr("is on the last stage"));
  EXPECT_THAT(refused({{LoadMicroBatch(0), ForwardPass(0), BackwardPass(0)}}, 0),
              HasSubstr("stage 0, step 0: BackwardPass(0) comes before the RecvGrad of its buffer"));
  EXPECT_THAT(refused({{LoadMicroBatch(0), ForwardPass(0), RecvGrad(0)}}, 0),
              HasSubstr("before the SendActivation of its buffer"));
  EXPECT_THAT(refused({{RecvActivation(0), ForwardPass(0)}, {BackwardPass(0)}}),
              HasSubstr("stage 1: the schedule ends while buffer 0 has micro-batch 0 in it"));
  EXPECT_THAT(refused({{LoadMicroBatch(0), SendGrad(0)}}, 0), HasSubstr("is on the first stage"));
}

TEST(ChosenSchedule, AScheduleOfTheProgramFitsTheQuestion) {
  const auto answers = [](int64_t micro_batches, int64_t stages) {
    return [=](int64_t, int64_t, int64_t stage) { return std::make_unique<TrainSchedule>(micro_batches, stages, stage); };
  };
  EXPECT_THAT(refusal_of("1f1b", 2, 4, {.schedule = answers(3, 2)}),
              HasSubstr("pipe::Options::schedule: it returned the schedule of stage 0 of 2 with 3 micro-batches, and was asked"));
  EXPECT_THAT(refusal_of("1f1b", 2, 4, {.schedule = [](int64_t, int64_t, int64_t) { return nullptr; }}),
              HasSubstr("it returned null for stage 0"));
}

TEST(ChosenSchedule, OneThatIsMissingAtASizeIsNotOneThatIsWrongThere) {
  ChosenSchedule built_in({"dualpipe-v"}, {}, 2, 4);
  EXPECT_TRUE(built_in.exists(5));
  EXPECT_FALSE(built_in.exists(3));
  ChosenSchedule missing({"1f1b"},
                         {.schedule =
                              [](int64_t micro_batches, int64_t stages, int64_t stage) {
                                return micro_batches < 4 ? nullptr
                                                         : std::make_unique<TrainSchedule>(micro_batches, stages, stage);
                              }},
                         2, 4);
  EXPECT_FALSE(missing.exists(3));
  EXPECT_TRUE(missing.exists(5));
  ChosenSchedule wrong({"1f1b"},
                       {.schedule =
                            [](int64_t micro_batches, int64_t stages, int64_t stage) {
                              return std::make_unique<TrainSchedule>(std::max<int64_t>(4, micro_batches), stages, stage);
                            }},
                       2, 4);
  EXPECT_THAT(refusal_of([&] { wrong.exists(3); }), HasSubstr("it returned the schedule of stage 0 of 2 with 4 micro-batches"));
}

}  // namespace
}  // namespace gannet::pipeline
