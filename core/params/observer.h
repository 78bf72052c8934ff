// Sees what runs, operator by operator: the profiler. It is called by the interception that brings ZeRO's parameters
// (interception.h).
//
//   auto counter = std::make_shared<Counter>();   // an Observer
//   { Observing armed(counter); model->forward(x).backward(); }
#pragma once

#include <c10/util/FunctionRef.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <memory>
#include <vector>

#include "params/interception.h"

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace gannet::zero {

// An operator that is made of others, as linear and einsum are, is not told, and those are: each piece of
// work is reported once. `stack` ends with the arguments, and after `run()`, which the observer calls once, with the results.
// Parameters are here by then.
class Observer : public c10::DebugInfoBase {
 public:
  virtual void on_operator(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack,
                           c10::function_ref<void()> run) = 0;

 private:
  friend class Observing;
  friend Observer* observer_here();
  std::atomic<bool> is_over_ = false;
};
Observer* observer_here();

// While it lives, the observer sees the operators of this thread and of the backward passes that begin on it: the state
// that LibTorch carries into autograd's threads names it. Where nobody observes anywhere, an operator pays for one load.
class Observing {
 public:
  explicit Observing(std::shared_ptr<Observer> observer);
  ~Observing();
  Observing(const Observing&) = delete;

 private:
  std::shared_ptr<Observer> observer_;
  Interception armed_;
  std::unique_ptr<c10::DebugInfoGuard> carried_;
};

}  // namespace gannet::zero
