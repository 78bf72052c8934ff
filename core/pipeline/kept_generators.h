// Restores the default generators of the CPU and of a device, so that building and measuring layers
// does not advance the program's random numbers.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace gannet::pipeline {

class KeptGenerators {
 public:
  explicit KeptGenerators(at::Device device = at::kCPU) {
    keep(at::globalContext().defaultGenerator(at::kCPU));
    if (!device.is_cpu()) keep(at::globalContext().defaultGenerator(device));
  }
  ~KeptGenerators() {
    for (auto& [generator, state] : kept_) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(state);
    }
  }
  KeptGenerators(const KeptGenerators&) = delete;
  KeptGenerators& operator=(const KeptGenerators&) = delete;
  void seed_cpu(uint64_t seed) {  // at::manual_seed would also seed the devices' generators
    at::Generator& generator = kept_.front().first;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }

 private:
  void keep(at::Generator generator) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor state = generator.get_state();
    kept_.emplace_back(std::move(generator), std::move(state));
  }
  std::vector<std::pair<at::Generator, at::Tensor>> kept_;
};

}  // namespace gannet::pipeline
