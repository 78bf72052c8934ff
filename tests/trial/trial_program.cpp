// SmallTrial as a program, for runs on several ranks and for runs that are ended.
//   TRIAL_KILL_AT=N: SIGKILL in batch N;  TRIAL_TERM_AT=N: SIGTERM in batch N, on the last rank only
//   TRIAL_FAIL_AT=N: an exception in batch N on the last rank only, which the program catches
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "staged_trial.h"

int main(int argc, char** argv) {
  const auto at = [](const char* name) { return std::getenv(name) ? std::atoll(std::getenv(name)) : -1; };
  trial_test::hooks.on_batch = [&](gannet::TrialContext& context) {
    if (context.current_train_batch() == at("TRIAL_KILL_AT")) std::raise(SIGKILL);
    if (context.current_train_batch() == at("TRIAL_TERM_AT") && context.rank() + 1 == context.size()) std::raise(SIGTERM);
    if (context.current_train_batch() == at("TRIAL_FAIL_AT") && context.rank() + 1 == context.size())
      throw std::runtime_error("a batch without labels");
    if (context.current_train_batch() == at("TRIAL_END_AT") && context.rank() + 1 == context.size()) context.set_stop_requested();
  };
  if (std::getenv("TRIAL_UNSHARED"))
    trial_test::hooks.training_loader = [](gannet::TrialContext& context) {
      return gannet::make_loader(gannet::Dataset<>(trial_test::samples(12)), {.batch_size = context.loader_options().batch_size});
    };
  if (std::getenv("TRIAL_UNEVEN"))
    trial_test::hooks.training_loader = [](gannet::TrialContext& context) {
      return gannet::make_loader(gannet::Dataset<>(trial_test::samples(12 + 8 * context.rank())), context.loader_options());
    };
  if (std::getenv("TRIAL_MPU"))
    trial_test::hooks.mpu =
        std::make_shared<trial_test::OneModel>(static_cast<uint32_t>(at("RANK")), static_cast<uint32_t>(at("WORLD_SIZE")));
  trial_test::hooks.gives_mpu = !std::getenv("TRIAL_MPU_NOT_GIVEN");
  if (std::getenv("TRIAL_VALIDATION")) trial_test::hooks.validation_samples = at("TRIAL_VALIDATION");
  if (std::getenv("TRIAL_NAMES"))
    trial_test::hooks.train_metrics = [rank = at("RANK")](const gannet::Example&, const at::Tensor& loss) {
      return gannet::BatchMetrics{{"loss", loss}, {rank == 0 ? "a" : "b", 1}};
    };
  std::vector<char*> words(argv, argv + argc);
  std::string length = "7";
  if (std::getenv("TRIAL_LENGTHS") && at("RANK") == 1)
    words.insert(words.end(), {const_cast<char*>("--epoch_length"), length.data()});
  argc = static_cast<int>(words.size());
  argv = words.data();
  if (std::getenv("TRIAL_STAGED")) {
    gannet::Dict hparams{{"deepspeed_config", trial_test::small_config(2, 3)}};
    const int code = gannet::run_trial<trial_test::StagedTrial>(argc, argv, {.hparams = hparams});
    return testing::Test::HasFailure() ? 99 : code;
  }
  if (std::getenv("TRIAL_FAIL_AT")) {  // the program catches the error of one rank, which lives on for a minute
    const auto settings = gannet::parse_trial_settings(argc, argv, {.hparams = trial_test::small_hparams()});
    try {
      gannet::run_trial<trial_test::SmallTrial>(settings);
    } catch (const std::exception& error) {
      std::cerr << "caught: " << error.what() << std::endl;
      if (at("RANK") == 1) std::this_thread::sleep_for(std::chrono::minutes(1));
      return 4;
    }
  }
  const int code = gannet::run_trial<trial_test::SmallTrial>(argc, argv, {.hparams = trial_test::small_hparams()});
  return testing::Test::HasFailure() ? 99 : code;
}
