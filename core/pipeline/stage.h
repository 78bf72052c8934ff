// A chunk of this rank's layers in a pipe::Module: cuts the list of layers, registers the modules of
// its own layers under the whole model's names, declares tensors shared with other stages, and runs
// its layers.
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
  /// Error(kConfig), kOrder, kArgument, kMismatch or kNotFound with the module unchanged.
  static void build(pipe::ModuleImpl& module, const RankContext& ranks);

  /// This rank's chunks of layers, in the order of the layers: one or several, depending on the
  /// schedule.
  static std::vector<Stage> chunks_of(pipe::ModuleImpl& module, const RankContext& ranks);
  bool is_first() const { return part_ == 0; }          // whether it receives the model's inputs
  bool is_last() const { return part_ + 1 == parts_; }  // whether it computes the loss
  uint32_t index() const { return stage_of_[part_]; }   // this stage's index
  uint32_t count() const { return stages_; }
  uint32_t part() const { return part_; }  // this part's number in the order of the layers, from 0
  uint32_t parts() const { return parts_; }
  size_t first_layer() const { return first_layer_; }  // its number in the whole model
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<uint32_t>& stage_of() const { return stage_of_; }  // [parts]
  /// The stage of the previous part (not for the first part) and of the next part (not for the last one).
  uint32_t previous_stage() const { return stage_of_[part_ - 1]; }
  uint32_t next_stage() const { return stage_of_[part_ + 1]; }

  /// Runs this chunk's layers. `micro_batch`: its index within the run or, for an evaluation,
  /// within the call.
  Wire run(const Wire& inputs, int64_t micro_batch) const;
  /// The loss of the last stage's results, times the micro-batch's weight. Throws Error(kArgument) if
  /// the loss is not a single element, or if there is no loss_fn and not exactly one result.
  at::Tensor loss(const Wire& outputs, const pipe::MicroBatch& micro_batch) const;

 private:
  Stage(pipe::ModuleImpl& module, const RankContext& ranks, uint32_t part);
  std::vector<Layer> seeded(int64_t micro_batch) const;

  const pipe::Options& options_;
  std::vector<uint32_t> stage_of_;  // [parts]
  uint32_t stages_, part_, parts_;
  uint32_t data_rank_;
  size_t first_layer_;
  std::vector<Layer> layers_;  // of this chunk
  bool seeds_layers_;
  int64_t interval_;  // layers in a region of activation checkpointing; 0: run_layers decides
};

}  // namespace gannet::pipeline
