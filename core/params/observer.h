// Observes every operator that runs, for the profiler. It is called by the interception that
// gathers ZeRO's parameters (interception.h).
//
//   auto counter = std::make_shared<Counter>();   // an Observer
//   { ObserverScope armed(counter); model->forward(x).backward(); }
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

// A composite operator, such as linear or einsum, is not reported; the operators that it calls are.
// Each piece of work is therefore reported once. The observer must call `run()` once; `stack` ends
// with the arguments before that call, and with the results after it. The parameters that the
// operator reads have already been gathered.
class Observer : public c10::DebugInfoBase {
 public:
  virtual void on_operator(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack,
                           c10::function_ref<void()> run) = 0;

 private:
  friend class ObserverScope;
  friend Observer* observer_here();
  std::atomic<bool> is_over_ = false;
};
Observer* observer_here();

// During its lifetime, the observer sees the operators of this thread and of the backward passes
// that start on it, because LibTorch copies the thread state that holds the observer to autograd's
// threads. While no observer is active in the process, the cost per operator is one load.
class ObserverScope {
 public:
  explicit ObserverScope(std::shared_ptr<Observer> observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;

 private:
  std::shared_ptr<Observer> observer_;
  Interception armed_;
  std::unique_ptr<c10::DebugInfoGuard> carried_;
};

}  // namespace gannet::zero
