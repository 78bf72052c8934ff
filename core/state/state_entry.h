// A tensor in a checkpoint: its name, and the part of it that this rank has.
//
//   parameter/<name>            masters (fp32, fp64), or the frozen parameter itself
//   average/<name>              the moving average of the masters (gannet.ema)
//   state/<state>/<name>        a parameter's optimizer state; for a parameter group: state/<state>/@<group>.<dtype>
//   rank_state/<rank>/...       optimizer states that differ between ranks
//                               (engine/checkpoint/rank_states.h)
//   rank_parameter/<rank>/<name>  masters that differ between ranks, after a local step;
//                               parameter/<name> then has the weights to use
//   buffer/<rank>/<name>        one per rank, because batch-norm statistics differ
//   rng/<rank>/<device>         the generator's state, as bytes
//   rng/<rank>/stream/<name>/<device>   the generator's state for a stream of checkpointing::rng_tracker()
//   gradient/<rank>/<name>      accumulated gradient, if the save falls between two boundaries
//   gradient/sum/<name>         the same for sharded gradients, summed over ranks
//   optimizer/user              serialized torch::optim::Optimizer of the program's own class,
//                               bytes; if ranks hold parts of the model, one entry for each of them:
//                               optimizer/user/pipe0.tensor1
//   client/<name>               belongs to the program
//
// <rank> gives a rank's coordinates in the mesh: "3" is the fourth along the data axis; "3.tensor1"
// if other axes have several ranks.
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
  std::vector<int64_t> shape;  // of the whole tensor, regardless of splits
  at::ScalarType dtype;
  at::Tensor whole;  // the tensor itself, in its local shape; undefined if ranks have parts of it
  at::Tensor part;   // [n] this rank's elements, from `begin` on, if it has any
  int64_t begin = 0;
  std::shared_ptr<StoredBytes> stored = nullptr;  // bytes on a tier; `part` is then on the "meta" device
  bool is_given_here = true;                      // whether this rank writes its part to a checkpoint
  Split split = {};                               // the boxes of the tensor on this rank
  // Axes along which ranks have different tensors or boxes. Along all other axes except data, they
  // have the same elements.
  std::vector<std::string> differs_along = {};
  // For a tensor that several pipeline stages hold: `saved_as` is the parameter's name on the first
  // of them, under which it is stored. `also_saved_as` has its names on all of them; a checkpoint
  // of a model without stages uses one of these.
  std::string saved_as = {};
  std::vector<std::string> also_saved_as = {};
};

// The parameter's name in an entry's name: "h.0.weight" for "exp_avg/h.0.weight".
std::string parameter_of(const StateEntry& entry);

// The trained parameters among the entries, by name.
std::unordered_map<std::string, const StateEntry*> trained_entries(const std::vector<StateEntry>& entries);

// The value of <rank> in the names above.
std::string rank_name(const MeshShape& mesh, uint32_t rank);

// The name under which a checkpoint stores this rank's entry. `rank` is its rank_name.
std::string stored_name(const StateEntry& entry, const std::string& rank);

// The ranks, including this one, that have the same tensor or the same boxes of it. Here and in
// gives_part, `mesh` is refined if it has experts: expert_data and expert replace data.
std::vector<uint32_t> holders_of(const StateEntry& entry, const MeshShape& mesh, uint32_t rank);

// Whether this rank writes its part to a checkpoint. Only one of the ranks with the same elements
// does.
bool gives_part(const StateEntry& entry, const MeshShape& mesh, uint32_t rank);

// Whether two meshes give every rank the same coordinates, ignoring axes of size 1.
bool same_coordinates(const MeshShape& a, const MeshShape& b);

// The saved rank from which `rank` loads state that is stored by rank: the one with the same
// coordinates or, along an axis of a different size, the first.
uint32_t source_rank(const MeshShape& saved, const MeshShape& mesh, uint32_t rank);

}  // namespace gannet
