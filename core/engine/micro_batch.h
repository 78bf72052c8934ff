// The interface for rooms above the engine that run the micro-batches of a step themselves, with
// several in flight: a pipeline. Such a room includes no other header of engine/.
//
// until it ends, the program's own forward(), step() ... are refused
//   for (Action action : schedule) {
//     if (action is a forward)  batch.forward([&] { output = model->forward(input); });
//     if (action is a backward) {
// for a loss: batch.loss_gradient(loss)
// the last one takes the step
//     }
//   }
//
// An exception that leaves the scope abandons the step. Parameters are whole then, but forward,
// training and saving are refused until load_checkpoint(), since ranks of other stages are still in
// the middle of theirs.
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
  /// `call`: the public call that runs them, for error texts. Throws Error(kOrder) if the engine
  /// cannot train now.
  MicroBatches(EngineBase& engine, const char* call);
  ~MicroBatches();
  MicroBatches(const MicroBatches&) = delete;

  /// The number of micro-batches in this step.
  int64_t count() const;
  /// Returns the gradient with which a micro-batch's loss starts its backward: the loss scale over
  /// count(), in the loss's dtype and on its device.
  at::Tensor loss_gradient(const at::Tensor& loss) const;
  /// Gives a loss to the monitors and to the check of losses; on the ranks that compute one.
  void take_loss(const at::Tensor& loss);

  /// `body` runs the module's forward, or a part of it.
  void forward(const std::function<void()>& body);
  /// Runs backward from the outputs of one micro-batch, with their gradients, into the engine's
  /// buffers. At the last micro-batch of a step, and with sharded gradients at each, they are
  /// averaged over the ranks along the data axis.
  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool retain_graph = false);
  /// Called after the backward of each micro-batch, in any order.
  StepResult end_micro_batch();

  /// Returns what all ranks of the data axis must agree on now (control/facts.h).
  control::Facts& agreed();
  /// Abandons the step, as an exception does.
  void abandon() noexcept;

 private:
  EngineBase& engine_;
  const char* const call_;
  const int exceptions_;
};

}  // namespace gannet
