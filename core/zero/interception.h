// Sees every operator between forward and step, and has the parameters that it reads here while it runs: no wrapper, no hook, no
// list of layers in the user's module.
//
//   watch(storage, &residency, id);          // from now on, whoever reads the storage
//   Interception armed;                      // on this thread, and in the backward passes that begin on it
//   at::linear(x, weight);                   // residency.acquire({id}) ... release({id})
//
// How: a boxed fallback on a dispatch key above all others, which is included in the thread's state (LibTorch carries that state
// into autograd's threads). It looks up the storages of the operator's tensors: views share them, so that t(weight), and what
// autograd saved of it, are found too. What it cannot see: addresses taken earlier, and threads that have not armed it; both
// read a storage without bytes, which throws and names the parameter (tensor/absent_storage.h).
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstddef>

namespace gannet::zero {

class Residency;

// One table for the process, so that several engines live side by side. Thread-safe.
void watch(const c10::StorageImpl* storage, Residency* residency, size_t parameter);
void unwatch(const Residency* residency);  // all of its parameters

// While it lives, operators on this thread are seen. They nest, and end in any order, on the thread that began them.
class Interception {
 public:
  Interception();
  ~Interception();
  Interception(const Interception&) = delete;
};

}  // namespace gannet::zero
