// The parameters of one group in one dtype, laid out flat: what the optimizer, the reduction and the norm work on.
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
  uint64_t index = 0;  // in its group, in the order of the model
  uint64_t id = 0;     // unique in the process, the same on every rank
  TensorLines lines;   // of the whole tensor, in its group
  at::Tensor tensor;   // the module's own; its data is a view of Range::param, or gathered on demand
  std::vector<int64_t> shape;
  int64_t numel = 0;
  int64_t offset = 0;  // elements into the range's flat buffers
  // This step's gradient so far, undefined before the first: its part of Range::grad, or, where no rank is to be averaged with,
  // the very tensor that autograd made (taken over, not copied). Where gradients are sharded: always undefined.
  at::Tensor held;
  // The boxes of the whole tensor that this rank's is, where the mesh's axis tensor or expert splits it; null: it is whole.
  // Everything else here, `shape` included, is of this rank's own tensor.
  std::shared_ptr<const DeclaredSplit> split;
  bool is_complex = false;  // `shape` ends in 2 then, the real and the imaginary part: flat buffers hold real numbers
  // Updates that were applied without it: before it joined, or while it was frozen. Negative where the program's optimizer
  // brought a state with updates that the engine did not count.
  int64_t lag = 0;
  bool is_moved = false;  // of a frozen range: it is trained now, in a range of its own
  // How the engine left `tensor`. What differs at the next audit was done by the program (engine/module_audit.h).
  struct Left {
    const c10::StorageImpl* storage = nullptr;
    int64_t offset = 0;            // in it, elements
    std::vector<int64_t> strides;  // of `tensor`
    uint32_t version = 0;          // advanced by every write in place but those through .data()
    uint64_t sample = 0;           // of some elements, where the program's values are not the masters themselves
  } left;
  // Where parameters are sharded: its number in the residency (params/residency.h), or, if small, its padded persistent copy.
  std::optional<size_t> resident;
  at::Tensor persistent;  // [its bucket's numel]
};

// What ZeRO shards of a range: each rank has a shard of it, or the whole. Each one shards what those before it do.
enum class Sharding { kNone, kStates, kGradients, kParameters };

// A part of a range as optimizers see it. What they are given has this struct's stride.
struct Segment : gannet_segment {
  size_t parameter = 0;  // of the range
};

// How the ranks' gradients become their average.
enum class Reduction {
  kAllReduce,             // in Range::grad, at a boundary
  kReduceScatterInPlace,  // the same, after which only this rank's shards are right
  kReduceScatter,         // from a buffer, in every backward; Range::grad is this rank's shards
};

// Where parameters' bytes are while no operator reads them: with the device, in host memory beside a device with its own, or on a
// drive (offload_param).
enum class Placement { kDevice, kHost, kDrive };

// Who has what of it, and where, is known in params/ alone: the rest asks for values, or what is to be done with them.
struct Range {
  size_t group = 0;
  Placement placement = Placement::kDevice;
  at::ScalarType dtype;                      // of the module's parameters
  at::ScalarType master_dtype;               // fp32 for 16-bit parameters, else dtype
  at::ScalarType grad_dtype;                 // gradients are accumulated in it
  std::vector<TrainedParameter> parameters;  // all of them split along the same axis, or none
  bool is_split() const { return !parameters.empty() && parameters[0].split != nullptr; }
  bool is_of_experts() const { return is_split() && parameters[0].split->is_along_expert; }
  bool is_split_along_tensor() const { return is_split() && !is_of_experts(); }
  ReductionGroup ranks;  // that hold the same parameters: gradients are summed over them, states sharded among them
  // Of a parameter that other stages of a pipeline hold as well, which then has a range of its own: the same shards on each of
  // them. Its gradients are summed over the stages at a boundary (engine/ties.h). "": other parameters.
  std::string tie;
  bool is_counted_elsewhere = false;  // in the norm: the first of those stages counts it
  double gradient_ratio = 1;          // of the number of ranks along data to what the sum is to be divided by
  bool keeps_whole_tensors = false;   // its optimizer needs them: no shard and no page ends inside a tensor
  int64_t alignment = 1;              // its optimizer's ranges begin at multiples of it in their tensor
  // Its optimizer may average gradients itself, over several ranks: every bucket is a piece, and of one length on all ranks,
  // which divides into equal parts for them.
  bool averages_itself = false;
  bool has_own_gradients = false;  // it does in this step: gradients are this rank's own, and not averaged
  zero::Layout layout;
  std::vector<zero::Shard> shards;  // of this rank, one for each bucket (each tensor is one, where parameters are sharded);
                                    // without sharding one that is the whole, or the buckets where the optimizer averages
  std::vector<zero::Part> parts;    // of the tensors in them
  // What the optimizer takes at once: a shard, so that it can be sent while the next is updated; where parameters are sharded, a
  // run of them.
  std::vector<zero::Shard> sub_groups;
  int64_t numel = 0;      // of the flat buffers, padding included
  int64_t own_numel = 0;  // of this rank's shards

  Array param;    // [numel] dtype, [own_numel] where parameters are gathered on demand
  Array master;   // [own_numel] master_dtype; undefined where the parameters are their own masters
  Array average;  // [own_numel] master_dtype, where the masters lie: their moving average; undefined: none is kept
  at::Tensor
      grad;  // [numel] grad_dtype, [own_numel] where gradients are sharded; undefined as long as all gradients are taken over
  // Masters that the program's writes have displaced since the last step, where they lie, and of which parameters: a program that
  // swaps an average in and out puts their rounding back, and means them.
  Array displaced;
  std::vector<char> has_displaced;  // [parameters], or empty
  std::vector<Array> states;  // as the optimizer says: PER_ELEMENT [own_numel], PER_BLOCK [own_numel / block]; others undefined
  std::vector<std::vector<Segment>> segments;  // [stretches]: the tensors in each
  std::vector<Segment> own_segments;           // of each tensor alone and whole: offset 0

  // Of a state SERVED a rank has an equal part of every bucket, [numel / ranks], and not every element.
  bool is_served(const Optimizer::State& state) const { return averages_itself && state.is_served(); }
  bool has_master_copy() const { return master_dtype != dtype; }
  const Array& masters() const { return has_master_copy() ? master : param; }
  Reduction reduction() const {
    return shards_gradients() ? Reduction::kReduceScatter
           : is_sharded()     ? Reduction::kReduceScatterInPlace
                              : Reduction::kAllReduce;
  }
  // Of `array`, masters or a state, this rank has every element in memory.
  bool has_all_of(const Array& array) const { return !is_sharded() && array.is_here(); }
  // Every rank has every tensor whole: nothing of the range is sharded.
  bool has_every_tensor() const { return !is_sharded(); }
  // The values that operators read are a copy of others, which an update would bring back.
  bool reads_a_copy(const TrainedParameter& parameter) const {
    return parameter.persistent.defined() || (has_master_copy() && !parameter.resident);
  }
  // Elements of a parameter in this rank's memory, or on its tier.
  struct NumelHere {
    int64_t own = 0;  // of masters and states
    int64_t parameter = 0, gradient = 0;
  };
  std::vector<NumelHere> numel_here() const;  // [parameters]
  // One parameter without gradients, sharded and gathered on demand: before an engine has it.
  void shard_alone(int64_t tensor_numel, uint32_t rank, uint32_t ranks);

  // A part of a flat buffer as the module's parameter sees it.
  static at::Tensor shaped(const at::Tensor& flat, const TrainedParameter& parameter) {
    const at::Tensor real = flat.narrow(0, 0, parameter.numel).view(parameter.shape);
    return parameter.is_complex ? at::view_as_complex(real) : real;
  }
  // A tensor in a flat buffer.
  at::Tensor slice(const at::Tensor& flat, const TrainedParameter& parameter) const {
    return flat.narrow(0, parameter.offset, parameter.numel).view(parameter.shape);
  }
  // A stretch of this rank's masters, parameters and gradients: views, or copies of what is on a tier; set_ writes to either.
  at::Tensor master_of(const zero::Shard& shard) const {
    return has_master_copy() ? master.get(shard.own, shard.numel) : param_of(shard);
  }
  at::Tensor param_of(const zero::Shard& shard) const { return param.get(param_place(shard), shard.numel); }
  at::Tensor grad_of(const zero::Shard& shard) const {
    return grad.narrow(0, shards_gradients() ? shard.own : shard.offset, shard.numel);
  }
  at::Tensor grad_of(const zero::Part& part) const {
    return is_sharded() ? grad_of(zero::Shard{part.offset, part.own, part.numel}) : parameters[part.tensor].held.flatten();
  }
  void set_master(const zero::Shard& shard, const at::Tensor& values) const {
    has_master_copy() ? master.set(shard.own, values) : set_param(shard, values);
  }
  void set_param(const zero::Shard& shard, const at::Tensor& values) const { param.set(param_place(shard), values); }
  int64_t param_place(const zero::Shard& shard) const { return is_gathered_on_demand_ ? shard.own : shard.offset; }
  int64_t master_place(const zero::Shard& shard) const { return has_master_copy() ? shard.own : param_place(shard); }
  // A whole parameter's place in `grad`, where gradients are not sharded.
  at::Tensor flat_grad(const TrainedParameter& parameter) {
    if (!grad.defined()) grad = allocate_flat(numel, grad_dtype, parameter.tensor.device());
    return slice(grad, parameter);
  }
  // Where a parameter's values of a state that is cut begin in it, and how many there are; those of a part of it likewise.
  static zero::Part values_in(const zero::Part& part, const Optimizer::State& state) {
    const auto block = static_cast<int64_t>(state.block);
    return {part.tensor, part.begin / block, part.offset / block, part.own / block,
            static_cast<int64_t>(state.values_of(static_cast<uint64_t>(part.numel)))};
  }
  // Without sharding: the master of a whole parameter.
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
  // Each tensor is a bucket, cut for all ranks; else a bucket has several, and a shard the whole of some.
  bool cuts_each_tensor() const { return shards_parameters() && !keeps_whole_tensors; }
  // Each tensor is on one rank.
  bool has_owners() const { return is_sharded() && keeps_whole_tensors; }
  uint32_t owner_of(size_t parameter) const {
    size_t bucket = 0;
    while (layout.buckets[bucket].last <= parameter) ++bucket;
    return static_cast<uint32_t>((parameters[parameter].offset - layout.buckets[bucket].offset) / shards[bucket].numel);
  }
  Sharding sharding_ = Sharding::kNone;
  // The module's parameters have no bytes of their own: they come when an operator reads them, from `param`, and go
  // (params/residency.h).
  bool is_gathered_on_demand_ = false;
};

// The tensors in elements [own, own + numel) of this rank's arrays, as the optimizer sees them: offsets count from `own`.
std::vector<Segment> segments_in(const Range& range, int64_t own, int64_t numel);

// Hyperparameters that are shared, and the plugin's object that applies the rule to the group's ranges.
struct Group {
  std::string name;
  std::unique_ptr<Optimizer> optimizer;  // null with an optimizer of the program's own class
  std::vector<std::string> hyper_names;
  std::vector<uint32_t> hyper_roles;   // [hyper_names] gannet_param_role
  std::vector<double> hyper;           // [hyper_names] current values
  Scheduler::Values base;              // as the optimizer's params gave them
  std::vector<at::Tensor> parameters;  // all of the group, for the program to read
  // The optimizer's states that are not cut, in host memory: [states] [tensors] PER_TENSOR, [1] SCALAR, [rows] PER_ROW, [columns]
  // PER_COLUMN; others undefined.
  std::vector<at::Tensor> own_states;
  // Its squares, where the update runs: [states][tensors of the group][matrices * rows * rows], undefined where a tensor has none
  // or another rank has the tensor; empty where no state is a square.
  std::vector<std::vector<at::Tensor>> squares;
  int64_t lag = 0;                 // updates that were applied before the optimizer at hand began to count
  bool has_own_gradients = false;  // of its ranges, see there

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
