// Arguments of a short run, a folder for it, and numbers of it that are compared.
#pragma once

#include <gannet/training_arguments.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace trainer_test {

inline std::string new_folder() {
  static int count = 0;
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("gannet_trainer_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
  std::filesystem::remove_all(path);
  return path;
}

struct Removed {
  std::string path = new_folder();
  ~Removed() { std::filesystem::remove_all(path); }
};

inline gannet::TrainingArguments arguments_for(const std::string& folder, int64_t batch = 4, int64_t accumulation = 2) {
  gannet::TrainingArguments a;
  a.output_dir = folder;
  a.per_device_train_batch_size = batch;
  a.gradient_accumulation_steps = accumulation;
  a.learning_rate = 0.01;
  a.num_train_epochs = 2;
  a.save_strategy = "no";
  a.train_sampling_strategy = "sequential";
  return a;
}

inline void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance = 1e-9) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

}  // namespace trainer_test
