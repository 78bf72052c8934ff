// Parameters that weight decay covers, compared with transformers 5.23.0, without DeepSpeed and
// with DeepSpeed 0.19.6. Losses: `python tests/trainer/write_decay.py`.
#include <string>
#include <vector>

#include "habits.h"

namespace {

using namespace trainer_test;

// Rounded to 6 digits, as the script prints them.
const std::vector<double> kWithoutBiasesAndNorms = {2.560952, 2.503279, 2.389518, 2.421278,
                                                    2.287318};                        // plain, config_without_optimizer
const std::vector<double> kAll = {2.560952, 2.499301, 2.385731, 2.415632, 2.289828};  // config_auto, config_number

std::shared_ptr<TokensImpl> model_of_script() {
  auto model = make_model();
  torch::NoGradGuard no_grad;
  int64_t number = 0;
  for (auto& parameter : model->parameters())
    parameter.copy_((torch::sin(torch::arange(parameter.numel(), torch::kDouble) + number++) * 0.5).view_as(parameter));
  return model;
}

class WeightDecay : public Habits {
 protected:
  std::vector<double> losses(gannet::Value config, double argument) const {
    auto a = arguments(5);
    a.learning_rate = 0.02;
    a.lr_scheduler_type = "constant";
    a.weight_decay = argument;
    a.deepspeed = std::move(config);
    Trainer trainer(model_of_script(), a, {.train_dataset = make_samples(8)});
    std::vector<double> found;
    for (auto& step : trainer.steps()) found.push_back(step.loss());
    return found;
  }
  void expect(const std::vector<double>& found, const std::vector<double>& wanted, const char* what) const {
    SCOPED_TRACE(what);
    expect_near(found, wanted, 2e-6);
  }
};

const std::string kSizes = R"({"gradient_clipping": "auto", "zero_optimization": {"stage": 1})";

TEST_F(WeightDecay, OfTheArgumentsOptimizerLeavesBiasesAndNormsOut) {
  expect(losses({}, 0.9), kWithoutBiasesAndNorms, "no config");
  expect(losses(kSizes + "}", 0.9), kWithoutBiasesAndNorms, "a config without an optimizer");
}

TEST_F(WeightDecay, OfTheConfigsOptimizerIsThatOfAllParametersHoweverItIsGiven) {
  const auto with = [](const std::string& decay) {
    return kSizes + R"(, "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "weight_decay": )" + decay + "}}}";
  };
  expect(losses(with("\"auto\""), 0.9), kAll, "\"auto\", and the argument");
  expect(losses(with("0.9"), 0), kAll, "the config alone");
  expect(losses(with("0.9"), 0.9), kAll, "the config and the argument");
  // A comma that JSON does not have is no reason to take the arguments' optimizer.
  expect(losses(with("0.9").insert(1, "\n// AdamW\n") + "\n", 0.9), kAll, "a comment");
  expect(losses(kSizes + R"(, "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "weight_decay": 0.9,},},})", 0.9), kAll,
         "commas at ends");
}

}  // namespace
