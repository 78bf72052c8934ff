// `gannet estimate`, and gannet::estimate of a module: what they print.
#include <gannet/estimate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "estimate/fit.h"
#include "launched.h"
#include "params/layout.h"
#include "plugin/support.h"

namespace gannet::zero {
namespace {

using test::TemporaryFolder;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

launched::Outcome command(const std::string& arguments) {
  return launched::shell(GANNET_BINARY_DIR "/bin/gannet estimate " + arguments);
}

TEST(EstimateCommand, PrintsATableOfEveryStageAndOffload) {
  const auto outcome = command("--parameters 1.3B --largest 50M --ranks 8 --dtype bf16 --accelerator cuda --device-memory 16GiB");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Bytes on each of 8 ranks (8 on a host), for 1.3B parameters in bf16"),
                    ContainsRegex("stage +offload_optimizer +offload_param +device +host +of it pinned +NVMe +checkpoint"),
                    ContainsRegex("\n0 +none +none +19.4 GiB +- +- +- +1.8 GiB +lacks 3.4 GiB of device memory\n"),
                    ContainsRegex("\n1 +none +none +6.7 GiB +- +- +- +1.8 GiB +fits\n"),
                    ContainsRegex("\n1 +nvme +none +4.8 GiB +384.0 MiB +384.0 MiB +1.8 GiB +1.8 GiB +"),
                    ContainsRegex("\n3 +nvme +nvme +")));
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Not counted: activations"), HasSubstr("This machine: "), HasSubstr("A checkpoint has 14.5 GiB")));
}

TEST(EstimateCommand, CountsHowTheModelIsBuiltAndNamesTheFastestThatFits) {
  const auto device = command("--parameters 1000M --largest 50M --ranks 8 --dtype bf16 --accelerator cuda --device-memory 4GiB");
  EXPECT_THAT(
      device.output,
      AllOf(ContainsRegex("the model is built +a rank +a host \\(8\\) +on this machine\n"),
            ContainsRegex("\nwhole on each rank +3.7 GiB +29.8 GiB +[^\n]*\n"),
            ContainsRegex("\nunder zero::Init, stage 3 +667.6 MiB +5.2 GiB +only with accelerator cpu\n"),
            HasSubstr("3, 3 with offload to cpu; then what is offloaded to nvme. The first of them that fits: stage 2.")));
  const auto host = command("--parameters 1M --largest 1k --ranks 4 --accelerator cpu --dtype fp32");
  EXPECT_THAT(host.output, AllOf(ContainsRegex("\nwhole on each rank +3.8 MiB +15.3 MiB +fits\n"),
                                 ContainsRegex("\nunder zero::Init, stage 3 +980.5 KiB +3.8 MiB +fits\n"),
                                 HasSubstr("The first of them that fits: stage 0."), Not(HasSubstr("multiples of 16"))));
  EXPECT_THAT(command("--parameters 1T --ranks 4 --accelerator cpu").output,
              AllOf(ContainsRegex("\nwhole on each rank +3.6 TiB +14.6 TiB +lacks [^\n]* of host memory"),
                    HasSubstr("None of them fits.")));
}

TEST(EstimateCommand, SaysWhichSizesAreNoMultiplesOf16) {
  const std::string model = "--parameters 10M --accelerator cpu --layers 2 ";
  EXPECT_THAT(
      command(model + "--width 1000 --heads 10 --seq-len 1024").output,
      HasSubstr("where sizes are multiples of 16: 1000 of --width (next: 1008), 100 of --width over --heads (next: 112) are "
                "not."));
  EXPECT_THAT(command(model + "--width 1024 --heads 16 --seq-len 1000").output,
              HasSubstr("1000 of --seq-len (next: 1008) is not."));
  EXPECT_THAT(command(model + "--width 1024 --heads 16 --seq-len 1024").output, Not(HasSubstr("multiples of 16")));
}

TEST(EstimateCommand, OfAModuleNamesItsMatrices) {
  torch::nn::Sequential model(torch::nn::Linear(64, 100), torch::nn::Linear(100, 10));
  const Dict config{{"train_batch_size", 1}, {"accelerator", Dict{{"type", "cpu"}}}};
  EXPECT_THAT(gannet::estimate(*model, config),
              HasSubstr("100 of 0.weight's rows (next: 112), 100 of 1.weight's columns (next: 112) are not."));
}

TEST(EstimateCommand, OnTheCpuThereIsOneMemory) {
  const auto outcome = command("--parameters 1M --largest 1k --accelerator cpu --dtype fp32 --ranks 4");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(ContainsRegex("offload_param +memory +NVMe +checkpoint"), Not(HasSubstr("pinned")),
                                    ContainsRegex("\n0 +none +none +15.3 MiB +- +2.9 MiB +fits\n"),
                                    ContainsRegex("\n1 +none +none +9.5 MiB +- +2.9 MiB +fits\n")));
}

TEST(EstimateCommand, MarksTheConfigsRowCountsItsOptimizerAndSaysWhatWouldFit) {
  const TemporaryFolder folder;
  const std::string file = (folder / "ds_config.json").string();
  test::write_file(file, R"({"train_batch_size": 8, "fp16": {"enabled": true}, "accelerator": {"type": "cuda"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}})");
  const auto outcome = command("--parameters 1B --ranks 8 --largest 1M --device-memory 3GiB --config '" + file + "'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("parameters in fp16"), HasSubstr("with 8 bytes of optimizer states for each:"),
                    ContainsRegex("\n2 +none +none +3.5 GiB .*lacks [0-9.]+ MiB of device memory   <- [^\n]*ds_config.json\n"),
                    HasSubstr("ds_config.json: the model does not fit: at stage 2 on 8 ranks"),
                    HasSubstr("stage 3 fits: 2.0 GiB of 3.0 GiB of device memory; set zero_optimization.stage to 3")));
}

TEST(EstimateCommand, CountsTheMovingAverage) {
  const TemporaryFolder folder;
  const std::string file = (folder / "ds_config.json").string();
  for (const bool has_average : {false, true}) {
    test::write_file(file, std::string(R"({"train_batch_size": 8, "bf16": {"enabled": true}, "accelerator": {"type": "cpu"},)") +
                               (has_average ? R"("gannet": {"ema": {"decay": 0.999}},)" : "") +
                               R"("optimizer": {"type": "AdamW"}})");
    const auto outcome = command("--parameters 1048576 --ranks 1 --largest 1024 --config '" + file + "'");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, has_average ? HasSubstr("with 8 bytes of optimizer states for each, 4 of its moving average:")
                                            : HasSubstr("with 8 bytes of optimizer states for each:"));
    EXPECT_THAT(outcome.output, ContainsRegex(has_average ? "\n0 +none +none +20.0 MiB +- +16.0 MiB +fits"
                                                          : "\n0 +none +none +16.0 MiB +- +12.0 MiB +fits"));
  }
}

TEST(EstimateCommand, LooksAtTheDisksThatItIsTold) {
  const TemporaryFolder folder;
  const auto outcome =
      command("--parameters 1M --accelerator cpu --nvme '" + folder.string() + "' --checkpoints '" + folder.string() + "/later'");
  EXPECT_THAT(outcome.output,
              AllOf(ContainsRegex("This machine: .*B of disk free in " + folder.string()),
                    HasSubstr(" in " + folder.string() + "/later.\n"), ContainsRegex("\n1 +nvme +none +[^\n]* fits\n")));
  EXPECT_THAT(command("--parameters 1T --accelerator cpu --checkpoints '" + folder.string() + "'").output,
              HasSubstr("of disk space for a checkpoint"));
  EXPECT_THAT(command("--parameters 1M --accelerator cpu").output, ContainsRegex("\n1 +nvme +none +[^\n]* unknown: NVMe\n"));
}

TEST(EstimateCommand, IsAboutThisMachineWhereItHasNoGpu) {
  const test::Environment hidden("CUDA_VISIBLE_DEVICES", ""), also_hidden("HIP_VISIBLE_DEVICES", "");
  EXPECT_THAT(command("--parameters 1M").output,
              AllOf(ContainsRegex("\n0 +none +none +[^\n]* fits\n"), HasSubstr("Training here takes the CPU ("),
                    Not(HasSubstr("unknown: device"))));
  EXPECT_THAT(command("--parameters 1M --device-memory 1GiB").output,
              AllOf(ContainsRegex("stage +offload_optimizer +offload_param +device "), Not(HasSubstr("takes the CPU"))));
}

TEST(EstimateCommand, WhatIsNoNumberOfParametersIsSaid) {
  for (const char* wrong : {"many", "1.3X", "-5", "0", "1e30", "1.3B extra"}) {
    const auto outcome = command("--parameters='" + std::string(wrong) + "'");
    EXPECT_EQ(outcome.exit_code, 2) << wrong;
    EXPECT_THAT(outcome.output, HasSubstr("is not a number of parameters"));
  }
  EXPECT_THAT(command("--parameters 1M --largest 2M").output, HasSubstr("--largest 2M is more than all parameters, 1M"));
  EXPECT_EQ(command("").exit_code, 2);
}

}  // namespace
}  // namespace gannet::zero
