// What an engine is, as named tensors: what a checkpoint keeps of it, and where a load puts it back.
//
//   parameter/<name>            masters (fp32, fp64), or the frozen parameter itself
//   state/<state>/<name>        an optimizer state of a parameter; of a group of parameters: state/<state>/@<group>.<dtype>
//   buffer/<rank>/<name>        each rank's own: batch-norm statistics differ
//   rng/<rank>/<device>         state of a generator, bytes
//   gradient/<rank>/<name>      gathered so far, where the save falls between two boundaries
//   gradient/sum/<name>         the same where gradients are sharded: summed over ranks
//   optimizer/user              what the program's own torch::optim::Optimizer writes, bytes
//   client/<name>               the program's
#pragma once

#include <string>
#include <vector>

#include "engine/impl.h"

namespace gannet {

struct StateEntry {
  enum class Kind { kTrained, kFrozen, kBuffer, kState };
  Kind kind;
  std::string name;  // without the prefixes above: "h.0.weight", "exp_avg/h.0.weight"
  std::vector<int64_t> shape;
  at::ScalarType dtype;
  at::Tensor whole;  // where it lives, in its logical shape; undefined where the ranks have parts of it
  at::Tensor part;   // [n] its elements from `begin` on, where this rank has any
  int64_t begin = 0;
  std::shared_ptr<StoredBytes> stored;  // where they lie on a tier; `part` is then on the "meta" device
  bool is_given_here = true;            // by this rank to a checkpoint, where the ranks have parts
};

// Trained parameters (their masters), frozen ones, buffers of this rank, optimizer states. Tied ones once.
std::vector<StateEntry> state_entries(const EngineBase::Impl& impl);

// The name in a checkpoint of what rank `rank` gives.
std::string stored_name(const StateEntry& kept, uint32_t rank);

// Each generator that training draws from: "cpu", and the engine's device.
std::vector<std::pair<std::string, at::Generator>> generators(const EngineBase::Impl& impl);

}  // namespace gannet
