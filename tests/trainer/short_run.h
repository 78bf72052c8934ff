// Arguments of a short run, and a folder for it.
#pragma once

#include <gannet/training_arguments.h>
#include <unistd.h>

#include <filesystem>
#include <string>

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

}  // namespace trainer_test
