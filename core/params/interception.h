// Sees every operator between forward and step, and has the parameters that it reads here while it runs: no wrapper, no hook, no
// list of layers in the user's module.
//
//   watch(storage, &residency, id);          // from now on, whoever reads the storage
//   Interception armed;                      // on this thread, and in the backward passes that begin on it
//   at::linear(x, weight);                   // residency.acquire({id}) ... release({id})
//
// How: a boxed fallback on a dispatch key above all others, which is included in the thread's state (LibTorch carries that state
// into autograd's threads). It looks up the storages of the operator's tensors: views share them, so that t(weight), and what
// autograd saved of it, are found too. What it cannot see: addresses that are asked for without an operator, and threads that
// have not armed it; both read a storage without bytes, which throws and names the parameter (tensor/absent_storage.h). What is
// thrown is LibTorch's, and becomes ours where an operator is seen: by an Interception, or by the AbsenceErrors of the engine's
// thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_number.h"

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace gannet::zero {

class Residency;
using ReadElements = c10::function_ref<void(int64_t begin, const at::Tensor& to)>;

// One table for the process, so that several engines live side by side. Thread-safe.
void watch(const c10::StorageImpl* storage, Residency* residency, size_t parameter);
void unwatch(const Residency* residency);  // all of its parameters
bool is_watched(const c10::StorageImpl* storage);
// Releases ownership of the storage's parameter; notifies its residency (Source::released).
void release_ownership(const c10::StorageImpl* storage);
// New values of the storage's parameter, of which `read` fills flattened elements from `begin` on, without gathering it
// (Source::write). False: nobody has it, or its source takes none.
bool write_at_source(const c10::StorageImpl* storage, ReadElements read);

// Who builds a model on this thread (zero::Init): told before an operator that takes no tensors, which makes new ones, and after
// every operator which leaves that require gradients it took, and what it made.
class Builder {
 public:
  virtual ~Builder() = default;
  virtual void before_making() = 0;
  virtual void after_operator(const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& made) = 0;
};
void set_builder(Builder* builder);  // of this thread; null: nobody builds

// Told of each operator that code on this thread calls, and not of those that it is made of (an Observer is, observer.h): linear,
// layer_norm, dropout. `stack` ends with the arguments, and after `run()`, which it calls once, with the results.
class CallWatcher {
 public:
  virtual ~CallWatcher() = default;
  virtual void on_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, c10::function_ref<void()> run) = 0;
};
CallWatcher* set_call_watcher(CallWatcher* watcher);  // of this thread; null: nobody watches. Returns the one before

// While it lives, operators on this thread are seen. They nest, and end in any order. One that ends on another thread leaves its
// own seen, which costs that thread's operators a look into a table, and nothing else.
class Interception {
 public:
  Interception();
  ~Interception();
  Interception(const Interception&) = delete;
  bool is_of_this_thread() const { return thread_ == thread_number(); }

 private:
  uint64_t thread_ = thread_number();
};

// While it lives, an operator of its thread that reads a parameter which is not here throws gannet::Error (kOrder) with its name,
// also where nothing is armed. It looks at nothing beforehand: an operator pays for one more call. On a second key, so that what
// Interception includes and excludes stays as it is.
class AbsenceErrors {
 public:
  AbsenceErrors();
  ~AbsenceErrors();
  AbsenceErrors(const AbsenceErrors&) = delete;

 private:
  uint64_t thread_ = thread_number();
};

}  // namespace gannet::zero
