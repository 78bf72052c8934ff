// The Trainer beside Hugging Face's: losses, rates, norms, steps, epochs, events and folders of histories.json, which
// write_histories.py made with transformers 5.23.0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tokens.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

gannet::Value value_of(const json& found) {
  if (found.is_boolean()) return found.get<bool>();
  if (found.is_number_integer()) return found.get<int64_t>();
  if (found.is_number()) return found.get<double>();
  if (found.is_string()) return found.get<std::string>();
  gannet::Dict dict;
  for (const auto& [name, part] : found.items()) dict[name] = value_of(part);
  return dict;
}

struct EventNames {
  std::vector<std::string>* events;
#define RECORD(name) \
  void on_##name(const gannet::TrainerEvent&) { events->push_back(#name); }
  RECORD(train_begin)
  RECORD(epoch_begin)
  RECORD(step_begin)
  RECORD(substep_end)
  RECORD(pre_optimizer_step)
  RECORD(optimizer_step)
  RECORD(step_end)
  RECORD(log)
  RECORD(evaluate)
  RECORD(prediction_step)
  RECORD(save)
  RECORD(epoch_end)
  RECORD(train_end)
#undef RECORD
};

std::shared_ptr<trainer_test::TokensImpl> same_model() {
  auto model = trainer_test::make_model();
  torch::NoGradGuard no_grad;
  int64_t number = 0;
  for (auto& parameter : model->parameters()) {
    parameter.copy_((torch::sin(torch::arange(parameter.numel(), torch::kDouble) + number) * 0.5).view_as(parameter));
    ++number;
  }
  return model;
}

json histories() {
  std::ifstream in(GANNET_SOURCE_DIR "/tests/trainer/histories.json");
  return json::parse(in);
}

class BesideHuggingFace : public testing::TestWithParam<std::string> {};

TEST_P(BesideHuggingFace, LogsEventsAndFoldersAreTheSame) {
  const json all = histories();
  const json& expected = all.at(GetParam());
  const fs::path folder = fs::temp_directory_path() / ("gannet_peer_" + std::to_string(getpid()));
  fs::remove_all(folder);
  gannet::Dict values{
      {"output_dir", folder.string()}, {"per_device_eval_batch_size", 3}, {"train_sampling_strategy", "sequential"}};
  for (const auto& [name, value] : expected.at("arguments").items()) values[name] = value_of(value);
  const auto arguments = gannet::training_arguments_from(values);
  std::vector<gannet::Example> held_out;
  for (int64_t i = 0; i < 7; ++i) held_out.push_back(trainer_test::make_samples(1, 4 * i)[0]);
  std::vector<std::string> events;
  std::vector<gannet::TrainerCallback> callbacks = {EventNames{&events}};
  if (GetParam() == "early_stopping") callbacks.push_back(gannet::EarlyStopping{.patience = 1});
  gannet::Trainer trainer(same_model(), arguments,
                          {.train_dataset = trainer_test::make_samples(22), .eval_dataset = held_out, .callbacks = callbacks});
  trainer.train();

  EXPECT_EQ(events, expected.at("events").get<std::vector<std::string>>());
  const auto& history = trainer.state().log_history;
  ASSERT_EQ(history.size(), expected.at("log_history").size());
  for (size_t i = 0; i < history.size(); ++i)
    for (const auto& [name, value] : expected.at("log_history")[i].items()) {
      ASSERT_NE(history[i].find(name), nullptr) << i << " " << name;
      const double wanted = value.get<double>(), found = history[i].find(name)->as_number();
      if (name == "step" || name == "epoch")
        EXPECT_DOUBLE_EQ(found, wanted) << i << " " << name;
      else
        EXPECT_NEAR(found, wanted, 2e-5 * std::max(1.0, std::abs(wanted))) << i << " " << name;
    }
  std::vector<std::string> folders;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().starts_with("checkpoint-")) folders.push_back(entry.path().filename());
  EXPECT_THAT(folders, testing::UnorderedElementsAreArray(expected.at("folders").get<std::vector<std::string>>()));
  EXPECT_EQ(trainer.state().max_steps, expected.at("max_steps"));
  if (!expected.at("best_global_step").is_null()) {
    EXPECT_EQ(trainer.state().best_global_step, expected.at("best_global_step").get<int64_t>());
    EXPECT_NEAR(trainer.state().best_metric.value(), expected.at("best_metric").get<double>(), 2e-5);
  }
  fs::remove_all(folder);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  const json runs = histories();
  for (const auto& [name, run] : runs.items()) all.push_back(name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Runs, BesideHuggingFace, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

}  // namespace
