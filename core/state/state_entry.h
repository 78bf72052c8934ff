// A tensor of the state that a checkpoint holds: what it is called, and what this rank has of it.
//
//   parameter/<name>            masters (fp32, fp64), or the frozen parameter itself
//   average/<name>              the moving average of the masters (gannet.ema)
//   state/<state>/<name>        an optimizer state of a parameter; of a group of parameters: state/<state>/@<group>.<dtype>
//   rank_state/<rank>/...       optimizer states that every rank has values of its own of (engine/checkpoint/rank_states.h)
//   rank_parameter/<rank>/<name>  likewise masters, after a local step; parameter/<name> is then what to use
//   buffer/<rank>/<name>        each rank's own: batch-norm statistics differ
//   rng/<rank>/<device>         state of a generator, bytes
//   rng/<rank>/stream/<name>/<device>   of a stream of checkpointing::rng_tracker()
//   gradient/<rank>/<name>      gathered so far, where the save falls between two boundaries
//   gradient/sum/<name>         the same where gradients are sharded: summed over ranks
//   optimizer/user              what a torch::optim::Optimizer of the program's own class writes, bytes; where ranks keep parts
//                               of the model optimizer/user/pipe0.tensor1, for each of them
//   client/<name>               the program's
//
// <rank> stands for a rank's coordinates in the mesh: "3" is the fourth along the data axis; where other axes have several ranks
// "3.tensor1".
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/mesh.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/boxes.h"
#include "tensor/stored_bytes.h"

namespace gannet {

struct StateEntry {
  enum class Kind { kTrained, kFrozen, kBuffer, kState, kAverage };
  Kind kind;
  std::string name;            // without the prefixes above: "h.0.weight", "exp_avg/h.0.weight"
  std::vector<int64_t> shape;  // of the whole tensor, however an axis splits it
  at::ScalarType dtype;
  at::Tensor whole;  // where it lives, in its local shape; undefined where the ranks have parts of it
  at::Tensor part;   // [n] its elements from `begin` on, where this rank has any
  int64_t begin = 0;
  std::shared_ptr<StoredBytes> stored = nullptr;  // where they lie on a tier; `part` is then on the "meta" device
  bool is_given_here = true;                      // to a checkpoint: by this rank, where the ranks have parts; once
  Split split = {};                               // which boxes of the tensor are here
  // Axes along which ranks have other tensors or other boxes; along all others but data, they have the same elements.
  std::vector<std::string> differs_along = {};
  // Of a tensor that several stages of a pipeline hold: the parameter's name on the first of them, under which it is stored, and
  // its names on all of them, one of which a checkpoint of a model without stages has.
  std::string saved_as = {};
  std::vector<std::string> also_saved_as = {};
};

// The parameter's part of an entry's name: that of "exp_avg/h.0.weight" is "h.0.weight".
std::string parameter_of(const StateEntry& entry);

// The trained parameters among them, by their names.
std::unordered_map<std::string, const StateEntry*> trained_entries(const std::vector<StateEntry>& entries);

// The rank as it is written in names.
std::string rank_name(const MeshShape& mesh, uint32_t rank);

// The name in a checkpoint of what this rank gives: `rank` is its rank_name.
std::string stored_name(const StateEntry& entry, const std::string& rank);

// Here and in gives_part a mesh is refined where it has experts: expert_data and expert stand in place of data.
// The ranks that have the same tensor or the same boxes of it; this one is one of them.
std::vector<uint32_t> holders_of(const StateEntry& entry, const MeshShape& mesh, uint32_t rank);

// Whether this rank gives its part of the elements to a checkpoint: of ranks that have the same, one does.
bool gives_part(const StateEntry& entry, const MeshShape& mesh, uint32_t rank);

// Whether two meshes give every rank the same coordinates; axes of one rank do not count.
bool same_coordinates(const MeshShape& a, const MeshShape& b);

// Whose state a rank takes up where it is kept by rank: the rank of the saved mesh with the same coordinates; along an axis of
// another size, the first.
uint32_t source_rank(const MeshShape& saved, const MeshShape& mesh, uint32_t rank);

}  // namespace gannet
