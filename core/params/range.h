// The parameters of one group and dtype, in flat buffers. The optimizer, the reduction and the norm
// work on one range at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <gannet/value.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interfaces/optimizer.h"
#include "interfaces/scheduler.h"
#include "interfaces/tensor_lines.h"
#include "params/array.h"
#include "params/layout.h"
#include "params/reduction_group.h"
#include "tensor/flat_buffer.h"
#include "tensor/splits.h"

namespace gannet {

struct Piece;

struct TrainedParameter {
  std::string name;
  uint64_t index = 0;  // position in its group, in the order of the model
  uint64_t id = 0;     // unique in the process, the same on every rank
  TensorLines lines;   // the rows and columns of the whole tensor, in its group
  at::Tensor tensor;   // the module's tensor; its data is a view of Range::param, or is gathered on demand
  std::vector<int64_t> shape;
  int64_t numel = 0;
  int64_t offset = 0;  // position in the range's flat buffers, in elements
  // This step's gradient so far; undefined before the first one arrives. It is a slice of
  // Range::grad or, if there is no rank to average with, the tensor that autograd made (taken over,
  // not copied). Always undefined if gradients are sharded.
  at::Tensor held;
  // How the mesh's tensor or expert axis splits the whole tensor into boxes; null: not split. All
  // other members, `shape` included, describe this rank's tensor.
  std::shared_ptr<const DeclaredSplit> split;
  bool is_complex = false;  // then `shape` ends in 2 (real, imaginary), because flat buffers hold real numbers
  // Number of updates that were applied without this parameter: before it joined, or while it was
  // frozen. Negative if the program's optimizer brought a state that includes updates the engine
  // did not count.
  int64_t lag = 0;
  bool is_moved = false;  // for a parameter of a frozen range: it is now trained, as part of another range
  // The state in which the engine left `tensor`. The next audit attributes any difference from it
  // to the program (engine/module_audit.h).
  struct TensorSnapshot {
    const c10::StorageImpl* storage = nullptr;
    int64_t offset = 0;            // in the storage, in elements
    std::vector<int64_t> strides;  // the strides of `tensor`
    uint32_t version = 0;          // incremented by every in-place write except through .data()
    uint64_t sample = 0;           // hash of a sample of elements, if the program's values are not the masters themselves
  } left;
  // If parameters are sharded: the index in the residency (params/residency.h) or, for a small
  // parameter, the padded persistent copy.
  std::optional<size_t> resident;
  at::Tensor persistent;  // [its bucket's numel], or [numel] if the range keeps whole tensors
};

// The data of a range that ZeRO shards, so that this rank holds only its shard of it. Each level
// includes the previous ones.
enum class Sharding { kNone, kStates, kGradients, kParameters };

// A part of a range as optimizers see it. The stride of the array passed to them is the size of
// this struct.
struct Segment : gannet_segment {
  size_t parameter = 0;  // index in the range
};

// How gradients are averaged over the ranks.
enum class Reduction {
  kAllReduce,             // in Range::grad, at a boundary
  kReduceScatterInPlace,  // as above, but afterwards only this rank's shards are valid
  kReduceScatter,         // from a buffer in every backward; Range::grad holds this rank's shards
};

// The memory that holds parameter bytes while no operator reads them: the device's, host memory
// separate from the device's, or a drive (offload_param).
enum class Placement { kDevice, kHost, kDrive };

// Only params/ knows which rank has which part; other code asks for values or operations on them.
struct Range {
  size_t group = 0;
  Placement placement = Placement::kDevice;
  at::ScalarType dtype;                      // dtype of the module's parameters
  at::ScalarType master_dtype;               // fp32 for 16-bit parameters, else dtype
  at::ScalarType grad_dtype;                 // accumulation dtype
  std::vector<TrainedParameter> parameters;  // either all are split along the same axis, or none is
  bool is_split() const { return !parameters.empty() && parameters[0].split != nullptr; }
  bool is_of_experts() const { return is_split() && parameters[0].split->is_along_expert; }
  bool is_split_along_tensor() const { return is_split() && !is_of_experts(); }
  ReductionGroup ranks;  // the ranks with the same parameters: gradients are summed and states sharded over them
  // Name of a parameter that other pipeline stages hold too; "": not tied. A tied parameter has its
  // own range, with the same shards on each of these stages. Its gradients are summed over the
  // stages at a boundary (engine/ties.h).
  std::string tie;
  bool is_counted_elsewhere = false;  // the first of those stages counts it in the norm
  double gradient_ratio = 1;          // extra factor on gradients before they are summed; 1 if no divisor is declared
  bool keeps_whole_tensors = false;   // required by its optimizer: no shard and no page ends inside a tensor
  int64_t alignment = 1;              // required by its optimizer: segments begin at multiples of it within a tensor
  // The optimizer itself may average gradients over several ranks. Each bucket then has the same
  // length on all ranks, and that length is divisible by their number.
  bool is_optimizer_reduced = false;
  bool has_unreduced_gradients = false;  // the optimizer averages in this step: gradients are this rank's own, not averaged
  zero::Layout layout;
  std::vector<zero::Shard> shards;  // this rank's, one per bucket (per tensor if parameters are sharded); unsharded: one shard,
                                    // or one per bucket if the optimizer averages
  std::vector<zero::TensorPart> parts;  // the parts of tensors that are in `shards`
  // The stretches that an update is cut into (pieces.h). Each is a shard, so that it can be sent
  // while the next one is updated, or a run of shards if parameters are sharded.
  std::vector<zero::Shard> sub_groups;
  int64_t numel = 0;        // elements of the flat buffers, including padding
  int64_t shard_numel = 0;  // elements of this rank's shards

  Array param;      // [numel] dtype, [shard_numel] where parameters are gathered on demand
  Array master;     // [shard_numel] master_dtype; undefined where the parameters are their own masters
  Array average;    // [shard_numel] master_dtype: the masters' moving average, on the same tier; undefined: none
  at::Tensor grad;  // [numel] grad_dtype, or [shard_numel] if sharded; undefined while autograd's own tensors are used
  // The masters that the program's writes have displaced since the last step, kept in the masters'
  // tier, and the parameters that they belong to. A program that swaps an average in and out writes
  // rounded masters back, and expects the exact masters to be restored.
  Array displaced;
  std::vector<char> has_displaced;  // [parameters], or empty
  std::vector<Array> states;        // as declared: PER_ELEMENT [shard_numel], PER_BLOCK [shard_numel / block]; others undefined
  std::vector<std::vector<Segment>> segments;  // [sub_groups] the tensors in each
  std::vector<Segment> tensor_segments;        // one per whole tensor, offset 0

  // Whether the state is SERVED. A rank then holds an equal part of each of its buckets, [numel /
  // ranks], instead of every element.
  bool is_served(const Optimizer::State& state) const { return is_optimizer_reduced && state.is_served(); }
  bool has_master_copy() const { return master_dtype != dtype; }
  const Array& masters() const { return has_master_copy() ? master : param; }
  Reduction reduction() const {
    return shards_gradients() ? Reduction::kReduceScatter
           : is_sharded()     ? Reduction::kReduceScatterInPlace
                              : Reduction::kAllReduce;
  }
  // Whether this rank has every element of `array` (masters or a state) in memory.
  bool has_all_of(const Array& array) const { return !is_sharded() && array.is_here(); }
  // Whether every rank has every tensor in full.
  bool has_every_tensor() const { return !is_sharded(); }
  // Whether operators read a copy of the masters or shards; an update then overwrites that copy
  // with the new values.
  bool reads_a_copy(const TrainedParameter& parameter) const {
    return parameter.persistent.defined() || (has_master_copy() && !parameter.resident);
  }
  // The number of elements of a parameter that are in this rank's memory or on its tier.
  struct NumelHere {
    int64_t own = 0;  // elements of masters and states
    int64_t parameter = 0, gradient = 0;
  };
  std::vector<NumelHere> numel_here() const;  // [parameters]
  // Makes this the range of one parameter without gradients, which is sharded and gathered on
  // demand before an engine takes it over.
  void shard_alone(int64_t tensor_numel, uint32_t rank, uint32_t ranks);

  // A slice of a flat buffer in the dtype and shape of the module's parameter.
  static at::Tensor shaped(const at::Tensor& flat, const TrainedParameter& parameter) {
    const at::Tensor real = flat.narrow(0, 0, parameter.numel).view(parameter.shape);
    return parameter.is_complex ? at::view_as_complex(real) : real;
  }
  // A tensor's slice of a flat buffer.
  at::Tensor slice(const at::Tensor& flat, const TrainedParameter& parameter) const {
    return flat.narrow(0, parameter.offset, parameter.numel).view(parameter.shape);
  }
  // A stretch of this rank's masters, parameters or gradients: a view, or a copy if it is on a
  // tier. The set_ functions write through in both cases.
  at::Tensor master_of(const zero::Shard& shard) const {
    return has_master_copy() ? master.get(shard.own, shard.numel) : param_of(shard);
  }
  at::Tensor param_of(const zero::Shard& shard) const { return param.get(param_place(shard), shard.numel); }
  at::Tensor grad_of(const zero::Shard& shard) const {
    return grad.narrow(0, shards_gradients() ? shard.own : shard.offset, shard.numel);
  }
  at::Tensor grad_of(const zero::TensorPart& part) const {
    return is_sharded() ? grad_of(zero::Shard{part.offset, part.own, part.numel}) : parameters[part.tensor].held.flatten();
  }
  void set_master(const zero::Shard& shard, const at::Tensor& values) const {
    has_master_copy() ? master.set(shard.own, values) : set_param(shard, values);
  }
  void set_param(const zero::Shard& shard, const at::Tensor& values) const { param.set(param_place(shard), values); }
  int64_t param_place(const zero::Shard& shard) const { return is_gathered_on_demand_ ? shard.own : shard.offset; }
  int64_t master_place(const zero::Shard& shard) const { return has_master_copy() ? shard.own : param_place(shard); }
  // A whole parameter's slice of `grad`, which is allocated at first use. Requires unsharded gradients.
  at::Tensor flat_grad(const TrainedParameter& parameter) {
    if (!grad.defined()) grad = allocate_flat(numel, grad_dtype, parameter.tensor.device());
    return slice(grad, parameter);
  }
  // Maps a part of a parameter to the values of a state that is cut along elements: returns their
  // offsets and their number.
  static zero::TensorPart values_in(const zero::TensorPart& part, const Optimizer::State& state) {
    const auto block = static_cast<int64_t>(state.block);
    return {part.tensor, part.begin / block, part.offset / block, part.own / block,
            static_cast<int64_t>(state.values_of(static_cast<uint64_t>(part.numel)))};
  }
  // The master of a whole parameter. Requires an unsharded range.
  at::Tensor whole_master(const TrainedParameter& parameter) const {
    return masters().get(parameter.offset, parameter.numel).view(parameter.shape);
  }

 private:
  friend class ParameterStore;
  friend class Gatherer;
  friend class ReduceBuckets;
  friend std::vector<Piece> whole_pieces(const Range& range);

  bool is_sharded() const { return sharding_ != Sharding::kNone; }
  bool shards_gradients() const { return sharding_ >= Sharding::kGradients; }
  bool shards_parameters() const { return sharding_ == Sharding::kParameters; }
  // True if each tensor is its own bucket, cut into one shard per rank. Otherwise a bucket has
  // several tensors, or a shard has whole tensors.
  bool cuts_each_tensor() const { return shards_parameters() && !keeps_whole_tensors; }
  // Whether each tensor is owned by one rank.
  bool has_owners() const { return is_sharded() && keeps_whole_tensors; }
  uint32_t owner_of(size_t parameter) const {
    size_t bucket = 0;
    while (layout.buckets[bucket].last <= parameter) ++bucket;
    return static_cast<uint32_t>((parameters[parameter].offset - layout.buckets[bucket].offset) / shards[bucket].numel);
  }
  Sharding sharding_ = Sharding::kNone;
  // True if the module's parameters have no bytes of their own. They are filled from `param` while
  // an operator reads them (params/residency.h).
  bool is_gathered_on_demand_ = false;
};

// The tensors in elements [own, own + numel) of this rank's arrays, as the optimizer sees them.
// Offsets are relative to `own`.
std::vector<Segment> segments_in(const Range& range, int64_t own, int64_t numel);

// A parameter group: its hyperparameters, and the plugin object that applies the update rule to its
// ranges.
struct Group {
  std::string name;
  std::unique_ptr<Optimizer> optimizer;  // null if the program has an optimizer class of its own
  std::vector<std::string> hyper_names;
  std::vector<uint32_t> hyper_roles;   // [hyper_names] gannet_param_role
  std::vector<double> hyper;           // [hyper_names] current values
  Scheduler::Values base;              // the initial values, from the optimizer's params
  std::vector<at::Tensor> parameters;  // all parameters of the group, readable by the program
  // The optimizer's states that are not cut along elements, in host memory: [states], each of
  // [tensors] values if PER_TENSOR, [1] if SCALAR, [rows] if PER_ROW, [columns] if PER_COLUMN;
  // undefined for the other states.
  std::vector<at::Tensor> group_states;
  // Square states, on the device of the update: [states][tensors of the group][matrices * rows *
  // rows]. Undefined if a tensor has none or is on another rank; empty if no state is a square.
  std::vector<std::vector<at::Tensor>> squares;
  int64_t lag = 0;                       // updates that were applied before the current optimizer began to count
  bool has_unreduced_gradients = false;  // set for all its ranges, see Range

  double* find(const std::string& hyperparameter) {
    for (size_t i = 0; i < hyper_names.size(); ++i)
      if (hyper_names[i] == hyperparameter) return &hyper[i];
    return nullptr;
  }
  double* find(gannet_param_role role) {
    for (size_t i = 0; i < hyper_roles.size(); ++i)
      if (hyper_roles[i] == static_cast<uint32_t>(role)) return &hyper[i];
    return nullptr;
  }
  const double* find(gannet_param_role role) const { return const_cast<Group*>(this)->find(role); }
};

}  // namespace gannet
