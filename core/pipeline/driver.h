// Runs the steps and the evaluations of a pipeline: draws micro-batches, runs this stage's actions
// in the order of the schedule, and passes activations and gradients to the stages of the
// neighbouring parts. A part on the same stage gets them without a message.
#pragma once

#include <gannet/pipe.h>

#include <memory>
#include <optional>
#include <vector>

#include "engine/micro_batch.h"
#include "pipeline/chosen_schedule.h"
#include "pipeline/lane.h"
#include "pipeline/layer_files.h"
#include "pipeline/pass_clock.h"
#include "pipeline/stage.h"

namespace gannet::pipeline {

class Driver {
 public:
  /// Constructed on every rank, after the engine. `module`: already divided by Stage::build.
  Driver(EngineBase& engine, pipe::ModuleImpl& module);
  const Stage& first_chunk() const { return chunks_.front(); }
  const Stage& last_chunk() const { return chunks_.back(); }
  const MeshShape& mesh() const { return ranks_.mesh->shape(); }
  /// The weights of this stage's layers.
  LayerFiles layer_files() { return LayerFiles(engine_, ranks_, module_, chunks_); }

  /// Returns the mean of the losses, the same on every rank.
  double train_batch(const pipe::Source& source);
  pipe::EvalResult eval_batch(const pipe::Source& source, const pipe::EvalOptions& options);
  bool has_schedule_for(int64_t micro_batches) const { return schedule_->exists(micro_batches); }
  /// The result of the last train_batch().
  const StepResult& last_step() const { return last_step_; }

 private:
  template <class Body>
  auto told_to_others(const char* call, const Body& body);
  double take_step(MicroBatches& batch, const pipe::Source& source);
  pipe::EvalResult evaluate(const pipe::Source& source, const pipe::EvalOptions& options);
  struct InFlight;  // a micro-batch between its forward and its backward
  std::vector<pipe::MicroBatch> draw(const pipe::Source& source, int64_t count, const char* call, bool trains);
  void check_alike(const std::vector<std::string>& all, int64_t count, const char* call, bool trains) const;
  using StepState = std::vector<std::vector<InFlight>>;  // [chunks][micro-batches]
  struct InFlightRef {                                   // locates an action's micro-batch
    StepState& all;
    size_t chunk;
    int64_t micro_batch;
    InFlight& here() const;
    InFlight& of_chunk(size_t other) const;
  };
  Wire receive_inputs(const Stage& chunk, int64_t micro_batch, std::vector<bool>& requires_grad);
  void send_outputs(const Stage& chunk, int64_t micro_batch, const Wire& outputs);
  Wire receive(Lane& lane, uint32_t from, const char* what, const Stage& chunk, int64_t micro_batch,
               std::vector<bool>& requires_grad);
  void forward(MicroBatches& batch, const InFlightRef& place);
  void backward(MicroBatches& batch, const InFlightRef& place, bool is_last);
  void input_pass(MicroBatches& batch, const InFlightRef& place);
  std::vector<MicroBatches::Root> roots_of(const InFlightRef& place);
  void pass_gradients_on(const InFlightRef& place, Wire computed);
  void choose_schedule(int64_t count);
  void expect_messages(const std::vector<Action>& actions);
  size_t chunk_of(uint32_t part) const;
  double mean_over_ranks(double sum, int64_t count);
  std::vector<double> of_last_stage(const std::vector<double>& losses, int64_t count);

  EngineBase& engine_;
  const pipe::ModuleImpl& module_;
  RankContext& ranks_;
  const std::shared_ptr<ChosenSchedule> schedule_;
  const std::vector<Stage> chunks_;                   // in the order of the layers
  std::optional<Lane> forward_lane_, backward_lane_;  // null: one stage
  int64_t first_micro_batch_ = 0;                     // index within the run of the current batch's first micro-batch
  bool has_trained_ = false;                          // whether this run has trained a batch
  std::vector<double> hop_bytes_;                     // [parts] bytes of this rank's largest sent activations, until logged
  PassClock clock_;
  StepResult last_step_;
  at::Tensor loss_sum_;  // over the current batch, fp64 on the loss's device; undefined: none yet
};

}  // namespace gannet::pipeline
