// The door for rooms above the engine that run the micro-batches of a step themselves, several of them in flight: a pipeline.
// Such a room includes this header and nothing else of engine/.
//
//   MicroBatches batch(engine, "train_batch");          // until its end the program's own forward(), step() ... are refused
//   for (Action action : schedule) {
//     if (action is a forward)  batch.forward([&] { output = model->forward(input); });
//     if (action is a backward) {
//       batch.backward({output}, {gradient});           // of a loss: batch.loss_gradient(loss)
//       result = batch.end_micro_batch();               // that of the last one takes the step
//     }
//   }
//
// An exception that leaves the scope gives the step up: parameters are whole, and every call but load_checkpoint() is refused,
// since the ranks of the other stages are somewhere in the middle of theirs.
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
  /// `call`: the public call that runs them, as errors name it. Error(kOrder) where the engine could not train now.
  MicroBatches(EngineBase& engine, const char* call);
  ~MicroBatches();
  MicroBatches(const MicroBatches&) = delete;

  /// Micro-batches of this step.
  int64_t count() const;
  /// The gradient that a micro-batch's loss begins its backward with: the loss scale over count(), of the loss's dtype and
  /// device.
  at::Tensor loss_gradient(const at::Tensor& loss) const;
  /// For the monitors and the check of losses: on the ranks that compute one.
  void take_loss(const at::Tensor& loss);

  /// `body` runs the module's forward, or a part of it.
  void forward(const std::function<void()>& body);
  /// From outputs of one micro-batch with their gradients into the engine's buffers; at the last micro-batch of a step, and with
  /// cut gradients at each, they are averaged over the ranks along the data axis.
  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool retain_graph = false);
  /// After the backward of each micro-batch, in whatever order they come.
  StepResult end_micro_batch();

  /// What all ranks of the data axis must agree on now (control/facts.h).
  control::Facts& agreed();
  /// Gives the step up, as an exception does.
  void abandon() noexcept;

 private:
  EngineBase& engine_;
  const char* const call_;
  const int exceptions_;
};

}  // namespace gannet
