// Intercepts every operator between forward and step and, while the operator runs, gathers the
// parameters that it reads. The user's module needs no wrapper, hook, or list of layers.
//
//   watch(storage, &residency, id);          // registers the storage
//   Interception armed;                      // for this thread and the backward passes that it starts
//   at::linear(x, weight);                   // residency.acquire({id}) ... release({id})
//
// Implementation: a boxed fallback on a dispatch key above all others, included in the thread's
// state, which LibTorch copies to autograd's threads. It looks up the storages of the operator's
// tensor arguments. Views share a storage, so t(weight) and tensors that autograd saved are found
// as well. It cannot see pointers that are taken without an operator, or threads that have not
// armed an Interception. Such accesses find a storage without bytes, which throws an exception that
// names the parameter (tensor/absent_storage.h). LibTorch throws that exception; it becomes a
// gannet::Error where an operator is intercepted, by an Interception or by the AbsenceErrors of the
// engine's thread.
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

// One table per process, so that several engines can coexist. Thread-safe.
void watch(const c10::StorageImpl* storage, Residency* residency, size_t parameter);
void unwatch(const Residency* residency);  // stops watching all of its parameters
bool is_watched(const c10::StorageImpl* storage);
// Releases ownership of the parameter with this storage, and notifies its source
// (ParameterSource::released).
void release_ownership(const c10::StorageImpl* storage);
// Writes new values to the parameter with this storage, without gathering it
// (ParameterSource::write). `read` fills `to` with the flattened parameter's elements from `begin`
// on. Returns false if the storage is not watched or its source does not accept writes.
bool write_at_source(const c10::StorageImpl* storage, ReadElements read);

// Takes part in building a model on this thread (zero::Init). before_making() is called before an
// operator that takes no tensors and therefore makes new ones. after_operator() is called after
// every operator, with those of its arguments that are leaves and require gradients, and with the
// tensors that it made.
class Builder {
 public:
  virtual ~Builder() = default;
  virtual void before_making() = 0;
  virtual void after_operator(const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& made) = 0;
};
void set_builder(Builder* builder);  // sets this thread's builder; null: none

// Sees each operator that code on this thread calls (linear, layer_norm, dropout), but not the
// operators that it is composed of; an Observer sees those (observer.h). on_call() must call
// `run()` once; `stack` ends with the arguments before that call, and with the results after it.
class CallWatcher {
 public:
  virtual ~CallWatcher() = default;
  virtual void on_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, c10::function_ref<void()> run) = 0;
};
CallWatcher* set_call_watcher(CallWatcher* watcher);  // sets this thread's watcher (null: none) and returns the previous one

// Intercepts the operators of this thread during its lifetime. Interceptions nest and may end in
// any order. One that ends on another thread leaves its own thread intercepted, which costs each
// operator there a table lookup and nothing else.
class Interception {
 public:
  Interception();
  ~Interception();
  Interception(const Interception&) = delete;
  bool is_of_this_thread() const { return thread_ == thread_number(); }

 private:
  uint64_t thread_ = thread_number();
};

// During its lifetime, an operator of its thread that reads an absent parameter throws
// gannet::Error (kOrder) with the parameter's name, even if no Interception is armed. It does not
// check arguments in advance, so it costs an operator only one extra call. It uses a second key, so
// that it does not affect whether Interception's own key is included or excluded.
class AbsenceErrors {
 public:
  AbsenceErrors();
  ~AbsenceErrors();
  AbsenceErrors(const AbsenceErrors&) = delete;

 private:
  uint64_t thread_ = thread_number();
};

}  // namespace gannet::zero
