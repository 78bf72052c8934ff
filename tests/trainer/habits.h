// Shared by the tests of users' habits: a folder, arguments and the log.
#pragma once

#include <gannet/trainer.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "short_run.h"
#include "tokens.h"

namespace trainer_test {

namespace fs = std::filesystem;
using gannet::Trainer;
using gannet::TrainingArguments;

class Habits : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("gannet_habits_" + std::to_string(getpid()));
    fs::remove_all(folder);
    gannet::set_log_sink([this](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  }
  void TearDown() override {
    gannet::set_log_sink({});
    fs::remove_all(folder);
  }
  TrainingArguments arguments(int64_t steps = 2) const {
    TrainingArguments a;
    a.output_dir = folder / "run";
    a.per_device_train_batch_size = 4;
    a.learning_rate = 0.01;
    a.max_steps = steps;
    a.save_strategy = "no";
    a.train_sampling_strategy = "sequential";
    a.disable_tqdm = true;
    return a;
  }
  std::string log() const {
    std::string all;
    for (const auto& line : lines) all += line + "\n";
    return all;
  }
  std::vector<std::string> checkpoints(const std::string& run = "run") const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder / run))
      if (entry.path().filename().string().starts_with("checkpoint-")) found.push_back(entry.path().filename());
    return found;
  }
  fs::path folder;
  std::vector<std::string> lines;
};

template <class T>
std::vector<double> rates_of(T& trainer) {
  std::vector<double> rates;
  for (auto& step : trainer.steps()) rates.push_back(step.learning_rate());
  return rates;
}

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const gannet::Error& error) {
    return error.what();
  }
  return "no error";
}

inline std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace trainer_test
