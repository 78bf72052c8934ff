/// Parameters that the ranks along the mesh's axis `tensor` hold in parts: what a tensor-parallel layer tells the engine;
/// experts, and tensors that several stages of a pipeline hold, further below. With it the norm counts every element once,
/// replicas are not expected to be equal, and checkpoints hold the whole tensor, so that they load on any other mesh, or without
/// one.
///
///   struct ColumnParallelImpl : torch::nn::Module {            // y = x W^T, of which each rank computes some columns
///     ColumnParallelImpl(int64_t in, int64_t out, uint32_t rank, uint32_t ranks) {
///       const auto part = gannet::split_evenly({out, in}, 0, rank, ranks);
///       weight = register_parameter("weight", torch::empty(part.local_shape()));
///       gannet::declare_split(weight, part);
///       ...
///
/// A fused weight is split piece by piece: split_evenly({3 * h, k}, 0, rank, ranks, 3) gives every rank its rows of q, of k and
/// of v. Grouped heads and experts are boxes as well. Sums over the axis in forward and backward are the layer's own.
#pragma once

#include <gannet/mesh.h>

#include <cstdint>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace gannet {

/// Elements [offsets, offsets + sizes) of a tensor: one number per dimension.
struct Box {
  std::vector<int64_t> offsets, sizes;
  bool operator==(const Box&) const = default;
};

/// What a rank holds of a tensor: boxes side by side along `dim`; their other sizes are equal.
struct TensorSplit {
  std::vector<int64_t> shape;  ///< of the whole tensor
  std::vector<Box> boxes;      ///< the rank's, in the order in which its own tensor has them
  int64_t dim = 0;
  std::vector<int64_t> local_shape() const;  ///< of the rank's own tensor
};

/// Equal parts along `dim` for each rank, the first ones larger by one element where they cannot be equal. `fused`: how many
/// tensors of equal size lie one after another along `dim`, each of which is split. Throws Error(kArgument) where a rank would
/// have nothing, or the tensors do not have equal sizes.
TensorSplit split_evenly(std::vector<int64_t> shape, int64_t dim, uint32_t rank, uint32_t ranks, int64_t fused = 1);

/// Before initialize, on every rank of the axis; the layer's constructor is the place. gannet::load_weights fills a declared
/// parameter from the whole tensor of a file. `initialize` refuses boxes that leave out elements of the tensor, or that several
/// ranks hold. Throws Error(kArgument) where the boxes do not make up the parameter's shape, Error(kOrder) where an engine trains
/// it already.
void declare_split(const at::Tensor& parameter, const TensorSplit& split);

/// The same for experts, which the ranks along the mesh's axis `expert` share out. That axis refines `data`: with
/// {"gannet": {"mesh": {"expert": 2}}} on 4 ranks, 0 and 1 hold different experts, 0 and 2 the same ones. `split` says which
/// boxes of the tensor of all experts this rank holds; along `tensor` they are replicas.
///
///   // [experts, out, in]: this rank's experts, neighbours along data hold the others
///   const auto mine = gannet::split_evenly({experts, out, in}, 0, data_rank % degree, degree);
///   weight = register_parameter("weight", torch::empty(mine.local_shape()));
///   gannet::declare_expert(weight, mine);
///
/// The gradient is summed over the ranks that hold the same boxes, and divided by `divisor`: 0 is the number of ranks along
/// `data`, since tokens of all of them have come to the expert (the layer's all-to-all); a layer that takes the mean over the
/// tokens itself gives the number of ranks that hold the same experts. ZeRO shards over those ranks, and what declare_split says
/// of the norm and of checkpoints holds: they load with another number of ranks along `expert`. Throws as declare_split does, and
/// Error(kArgument) on a divisor that is negative or no number.
void declare_expert(const at::Tensor& parameter, const TensorSplit& split, double divisor = 0);

/// One tensor that several stages of a pipeline (the mesh's axis `pipe`) hold a copy of, such as an embedding on the first one
/// that is the head on the last one. Every rank of those stages calls it before initialize, with the same name; what the
/// parameter is called in each stage's module does not matter. With one stage it does nothing: the module has the tensor once.
///
///   if (stage == 0 || stage == last) gannet::declare_tied(weight, "embedding");
///
/// initialize gives all copies the values of the first stage that holds it. step() sums the copies' gradients over those stages
/// at a boundary, so that each of them makes the same update; between backward() and step() a stage's gradient is its own part.
/// The norm counts the tensor once, and a checkpoint holds it once, under its name on the first of those stages: it loads at
/// another number of stages, or without any, as a model does that registers one tensor twice.
/// Throws Error(kArgument) on an empty name, Error(kOrder) where an engine trains the parameter already. initialize throws
/// Error(kMismatch) where copies have other shapes, dtypes, splits or parameter groups, or a rank of a stage has not declared it,
/// and Error(kConfig) where one stage alone has.
void declare_tied(const at::Tensor& parameter, const std::string& name);

}  // namespace gannet
