// The interface for drivers of the engine, such as a pipeline, which run the micro-batches of a
// step themselves and have several in flight. A driver includes no other header of engine/. One
// thread makes all calls, from the constructor to the destructor.
//
//   MicroBatches batch(engine);                  // until it ends, the program's own forward(), step() ... are refused
//   for (Action action : schedule) {
//     if (action is a forward)  batch.forward(i, [&] { output = model->forward(input); });
//     if (action is a backward) {
//       batch.backward(i, {{MicroBatches::edge_of(output), gradient}});    // for a loss: batch.loss_gradient(loss)
//       result = batch.end_micro_batch();        // the last one takes the step
//     }
//   }
//
// An exception that leaves the scope in the middle of the step abandons it. The parameters are then
// still valid, but forward, training and saving are refused until load_checkpoint(), since ranks of
// other stages are still in the middle of the step. An exception before the first forward, or at
// the boundary, where all ranks meet, leaves the engine as before the step.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/engine.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "grads/split_backward.h"
#include "params/rank_context.h"

namespace gannet {

/// The ranks, the device and the config of an engine.
RankContext& context_of(EngineBase& engine);
/// From now on, the engine's own forward(), backward() and step() are refused.
void train_by_driver_alone(EngineBase& engine);
/// Runs `body`, the module's forward or a part of it, as an evaluation.
void evaluate_forward(EngineBase& engine, const std::function<void()>& body);

class MicroBatches {
 public:
  /// Called between two steps. Throws Error(kOrder) in states in which train_batch() could not take
  /// a step.
  explicit MicroBatches(EngineBase& engine);
  ~MicroBatches();
  MicroBatches(const MicroBatches&) = delete;

  /// The number of micro-batches in this step.
  int64_t count() const;
  /// Returns the gradient that seeds a micro-batch's backward from its loss: the loss scale divided
  /// by count(), in the loss's dtype and on its device.
  at::Tensor loss_gradient(const at::Tensor& loss) const;
  /// Passes a loss to the monitors and to the finiteness check. Called on the ranks that compute
  /// one. A loss that is not finite makes the step fail or be skipped at its end, on all ranks.
  void take_loss(const at::Tensor& loss);

  /// `body` runs the module's forward, or a part of it. `micro_batch`: its number in the step, for
  /// the trace.
  void forward(int64_t micro_batch, const std::function<void()>& body);
  /// The start of a backward: the edge of an output, which does not keep the output's memory alive,
  /// and the output's gradient.
  struct Root {
    torch::autograd::Edge edge;
    at::Tensor gradient;
  };
  static torch::autograd::Edge edge_of(const at::Tensor& output);
  /// Runs backward from the outputs of one micro-batch and adds the parameters' gradients to the
  /// engine's buffers. These are averaged over the ranks along the data axis at the last
  /// micro-batch of a step or, if gradients are sharded, at every micro-batch. Without roots, the
  /// micro-batch has no gradients on this rank.
  /// A driver that has several backwards in a micro-batch sets `is_last` only for the last one of the
  /// step.
  void backward(int64_t micro_batch, const std::vector<Root>& roots, bool is_last = true);
  /// The same in two passes. The first one computes the gradients of `inputs`, edges at which the
  /// graph of this stage ends, and returns them; no parameter gets a gradient. The second one
  /// computes the rest from the same `split`, after any number of other passes.
  std::vector<at::Tensor> input_pass(int64_t micro_batch, const std::vector<Root>& roots,
                                     const std::vector<torch::autograd::Edge>& inputs, SplitBackward& split);
  void weight_pass(int64_t micro_batch, SplitBackward split, bool is_last = true);
  /// Called count() times in a step, directly after a backward; micro-batches may end in any order.
  StepResult end_micro_batch();

  /// Checks that all ranks along the data axis agree on the step (learning rates, values that the
  /// program wrote ...). Called before a control::Watch::Call over more ranks, in which the
  /// engine's own calls are not compared.
  void agree();
  /// Abandons the step, as an exception does.
  void abandon() noexcept;

 private:
  void run(int64_t micro_batch, const char* name, const std::function<void()>& pass);

  EngineBase& engine_;
  const int exceptions_;
  const int64_t step_;             // steps taken before this one
  bool is_in_the_middle_ = false;  // some micro-batches have begun, and not all have ended
};

}  // namespace gannet
