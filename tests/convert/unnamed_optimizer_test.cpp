// What is in the files of a save and not in its config: the loss scale's kind, the optimizer that the program made.
#include "convert/exported_folders.h"
#include "convert/hand_training.h"

namespace gannet::convert {
namespace {

using testing::HasSubstr;

TEST_F(ToDeepSpeed, AStaticLossScaleStaysStatic) {
  hand::Training run;
  run.optimizer["loss_scaler"] = hand::dict({{"cur_scale", hand::real(128)}, {"dynamic", "\x89"}});
  run.write(file("run"));
  const auto opened = imported(file("run"), "in");
  EXPECT_FALSE(opened.document().find("loss_scaler")->at("dynamic").as_bool());
  for (const int64_t stage : {0, 2, 3}) {
    for (const char* folder : {"out", "again"}) fs::remove_all(root_ / folder);
    write_deepspeed(opened, file("out"), {stage, 1, 0}, {});
    const auto again = imported(file("out"), "again");
    EXPECT_FALSE(again.document().find("loss_scaler")->at("dynamic").as_bool()) << stage;
    EXPECT_EQ(again.document().find("loss_scaler")->at("scale").as_number(), 128) << stage;
  }
  const Leaves found(file("out/step4/zero_pp_rank_0_mp_rank_00_optim_states.pt"));
  EXPECT_EQ(found.texts.at("/optimizer_state_dict/loss_scaler"), "deepspeed.runtime.fp16.loss_scaler.LossScaler");
}

// An optimizer that the program gives to DeepSpeed's initialize() is not in the config.
TEST_F(ToDeepSpeed, TorchsOwnOptimizersKeepTheirFlagsAndCountInATensor) {
  hand::Training run;
  for (const char* flag : {"amsgrad", "maximize", "capturable"}) run.group[flag] = "\x89";
  run.group["decoupled_weight_decay"] = "\x88";
  run.write(file("run"));
  write_universal(imported(file("run"), "in"), file("out"), {});
  const Leaves step(file("out/step4_universal/zero/w/step.pt")), common(file("out/step4_universal/zero/optimizer_state.pt"));
  EXPECT_THAT(step.texts.at(""), HasSubstr("Float"));
  EXPECT_THAT(common.texts.at("/optimizer_state_dict/state/0/step"), HasSubstr("Float"));
  EXPECT_EQ(common.texts.at("/param_groups/0/decoupled_weight_decay"), "True");
  EXPECT_EQ(common.texts.at("/param_groups/0/maximize"), "False");
}

TEST_F(ToDeepSpeed, StatesThatDeepSpeedDoesNotLoadAreNamedOnce) {
  const auto exported = [&](const hand::Training& run) {
    for (const char* folder : {"run", "in", "out"}) fs::remove_all(root_ / folder);
    run.write(file("run"));
    return write_universal(imported(file("run"), "in"), file("out"), {}).to_string();
  };
  hand::Training run;
  run.adam["max_exp_avg_sq"] = hand::tensor();
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { exported(run); }), HasSubstr("the states of amsgrad (max_exp_avg_sq)"));
  run.adam = {{"step", hand::real(4)}, {"sum", hand::tensor()}};
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { exported(run); }),
              HasSubstr("the states of an optimizer that its config does not name (sum) are not exported"));
  run = {};
  run.adam["server_error"] = hand::tensor();
  EXPECT_THAT(exported(run), testing::AllOf(HasSubstr("left out: what each rank's 1-bit optimizer has not sent yet"),
                                            testing::Not(HasSubstr("does not have them"))));
}

}  // namespace
}  // namespace gannet::convert
