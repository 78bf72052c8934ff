// The interface for drivers of the engine, such as a pipeline, which run the micro-batches of a
// step themselves and have several in flight. A driver includes no other header of engine/. One
// thread makes all calls, from the constructor to the destructor.
//
//   MicroBatches batch(engine);                  // until it ends, the program's own forward(), step() ... are refused
//   for (Action action : schedule) {
//     if (action is a forward)  batch.forward([&] { output = model->forward(input); });
//     if (action is a backward) {
//       batch.backward({output}, {gradient});    // for a loss: batch.loss_gradient(loss)
//       result = batch.end_micro_batch();        // the last one takes the step
//     }
//   }
//
// An exception that leaves the scope abandons the step. The parameters are then still whole, but
// forward, training and saving are refused until load_checkpoint(), since ranks of other stages are
// still in the middle of the step.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/engine.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace gannet {

namespace control {
class Facts;
}

class MicroBatches {
 public:
  /// Called between two steps. Throws Error(kOrder) in states in which train_batch() could not take
  /// a step.
  explicit MicroBatches(EngineBase& engine);
  ~MicroBatches();
  MicroBatches(const MicroBatches&) = delete;

  /// The number of micro-batches in this step.
  int64_t count() const;
  /// Returns the gradient with which a micro-batch's loss starts its backward: the loss scale over
  /// count(), in the loss's dtype and on its device.
  at::Tensor loss_gradient(const at::Tensor& loss) const;
  /// Passes a loss to the monitors and to the check of losses. Called on the ranks that compute
  /// one.
  void take_loss(const at::Tensor& loss);

  /// `body` runs the module's forward, or a part of it.
  void forward(const std::function<void()>& body);
  /// Runs backward from the outputs of one micro-batch, with their gradients, and adds the
  /// parameters' gradients to the engine's buffers. These are averaged over the ranks along the
  /// data axis at the last micro-batch of a step or, if gradients are sharded, at every
  /// micro-batch.
  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool retain_graph = false);
  /// Called directly after each backward; the micro-batches may end in any order.
  StepResult end_micro_batch();

  /// Returns what all ranks of the data axis must agree on now (control/facts.h).
  control::Facts& agreed();
  /// Abandons the step, as an exception does.
  void abandon() noexcept;

 private:
  EngineBase& engine_;
  const int exceptions_;
  const int64_t step_;  // steps taken before this one
};

}  // namespace gannet
