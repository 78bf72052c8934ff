// One optimizer with a group of 16 matrices in one piece of the host's memory, stepped through the
// contract's calls: begin_step, the rounds of sums, update, end_step.
//
//   SteppedOptimizer adam(plugin, params, {GANNET_FLOAT32, GANNET_FLOAT32, GANNET_DTYPE_NONE}, 1 << 24);
//   const auto [sums, step] = adam.run();      // seconds
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "interfaces/host.h"
#include "interfaces/optimizer.h"

namespace gannet::kit {

uint64_t size_of(uint32_t dtype);

// Zeroed memory, page-aligned, in huge pages where the system has them.
class Memory {
 public:
  explicit Memory(uint64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  void* data() const { return place_; }

 private:
  uint64_t bytes_;
  void* place_;
};

// Writes numbers of moderate size that differ.
void fill(void* data, uint32_t dtype, uint64_t numel, float scale);

struct DTypes {
  uint32_t param, grad, out;
};

class SteppedOptimizer {
 public:
  SteppedOptimizer(const plugin::Plugin& plugin, const Dict& params, DTypes types, uint64_t numel);

  const Optimizer& optimizer() const { return optimizer_; }
  uint64_t numel() const { return numel_; }
  // Bytes per parameter that the update moves if it reads the gradient, writes the copy, and reads
  // and writes the parameter and every state once.
  double update_bytes() const;
  // Runs a step. Returns the seconds for its sums, and for the whole step.
  std::pair<double, double> run();

 private:
  void add_states();
  void combine(uint32_t round);
  gannet_update_args arguments();
  void step_group(void (Optimizer::*function)(gannet_step_args), const double* sums);

  DTypes types_;
  uint64_t numel_;
  Host host_;
  Optimizer optimizer_;
  Memory param_, grad_, out_;
  std::vector<Optimizer::Tensor> tensors_;
  std::vector<gannet_segment> segments_;
  std::vector<std::unique_ptr<Memory>> states_, matrices_;
  std::vector<void*> places_, matrix_places_;
  std::vector<std::vector<double>> lines_;  // [sums]
  std::vector<double*> line_places_;
  std::vector<double> sums_, numbers_;
  std::unique_ptr<Memory> workspace_;
  uint64_t state_bytes_ = 0, step_ = 0;
};

}  // namespace gannet::kit
