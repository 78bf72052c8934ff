// This rank's part of a pipe::Module: cuts the list of layers, registers the modules of its own
// layers under the whole model's names, declares what other stages use as well, and runs its
// layers.
#pragma once

#include <gannet/pipe.h>

#include <cstdint>
#include <string>
#include <vector>

#include "params/rank_context.h"
#include "pipeline/partition.h"

namespace gannet::pipeline {

class Stage {
 public:
  /// Called once the mesh is known, on every rank, with the same list of layers. Throws
  /// Error(kConfig) before anything is changed.
  static void build(pipe::ModuleImpl& module, const RankContext& ranks);

  Stage(pipe::ModuleImpl& module, const RankContext& ranks);
  bool is_first() const { return index_ == 0; }
  bool is_last() const { return index_ + 1 == stages_; }
  uint32_t index() const { return index_; }
  uint32_t count() const { return stages_; }

  /// Runs this stage's layers. `micro_batch`: the number of the micro-batch in the run.
  Wire run(const Wire& inputs, int64_t micro_batch) const;
  /// The loss of the last stage's results. Throws Error(kArgument) if it is not one element.
  at::Tensor loss(const Wire& outputs, const Wire& labels) const;

 private:
  std::vector<Layer> seeded(int64_t micro_batch) const;

  const pipe::Options& options_;
  uint32_t index_, stages_;
  uint32_t data_rank_;
  size_t first_layer_;
  std::vector<Layer> layers_;  // of this stage
  bool seeds_layers_;
  int64_t interval_;  // layers in a region of activation checkpointing; 0: run_layers decides
};

}  // namespace gannet::pipeline
