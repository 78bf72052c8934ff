// Runs of trainer_program on several processes.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "launched.h"

namespace trainer_test {

struct Outcome : launched::Outcome {
  std::vector<double> numbers;  // losses and norms of the updates, then the parameters
};

inline Outcome run(const launched::Folder& folder, int ranks, const std::string& arguments) {
  const std::filesystem::path out = folder.path / "out.bin";
  std::filesystem::remove(out);
  Outcome outcome{
      launched::run(folder.path, ranks, "trainer_program",
                    "--out out.bin --output_dir run --save_strategy no --train_sampling_strategy sequential " + arguments),
      {}};
  const std::string bytes = launched::text_of(out);
  const auto* first = reinterpret_cast<const double*>(bytes.data());
  outcome.numbers.assign(first, first + bytes.size() / sizeof(double));
  return outcome;
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
  return most;
}

inline std::string batch(int micro_batch, int accumulation) {
  return "--per_device_train_batch_size " + std::to_string(micro_batch) + " --gradient_accumulation_steps " +
         std::to_string(accumulation) + " ";
}

}  // namespace trainer_test
