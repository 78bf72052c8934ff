/// Declares parameters that are split among the ranks along the mesh's axis `tensor`, as in
/// tensor-parallel layers. Experts, and tensors that several stages of a pipeline hold, follow
/// below. With the declaration the norm counts every element once, ranks' tensors need not be
/// equal, and checkpoints hold the whole tensor, so that they load on any other mesh, or without
/// one.
///
///   struct ColumnParallelImpl : torch::nn::Module {            // y = x W^T; each rank computes some columns of y
///     ColumnParallelImpl(int64_t in, int64_t out, uint32_t rank, uint32_t ranks) {
///       const auto part = gannet::split_evenly({out, in}, 0, rank, ranks);
///       weight = register_parameter("weight", torch::empty(part.local_shape()));
///       gannet::declare_split(weight, part);
///       ...
///
/// In a fused weight, each of the fused weights is split: split_evenly({3 * h, k}, 0, rank, ranks,
/// 3) gives every rank its rows of q, of k and of v. Grouped heads and experts can be expressed as
/// boxes as well. The layer itself must sum over the axis in forward and backward.
#pragma once

#include <gannet/mesh.h>

#include <cstdint>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace gannet {

/// Elements [offsets, offsets + sizes) of a tensor, with one offset and one size per dimension.
struct Box {
  std::vector<int64_t> offsets, sizes;
  bool operator==(const Box&) const = default;
};

/// A rank's part of a tensor: boxes that are concatenated along `dim`, and have equal sizes in the
/// other dimensions.
struct TensorSplit {
  std::vector<int64_t> shape;  ///< shape of the whole tensor
  std::vector<Box> boxes;      ///< the rank's boxes, in their order in its own tensor
  int64_t dim = 0;
  std::vector<int64_t> local_shape() const;  ///< shape of the rank's own tensor
};

/// Splits a tensor into equal parts along `dim`, one for each rank; if they cannot be equal, the
/// first ones are larger by one element. `fused`: number of equal-sized tensors that are
/// concatenated along `dim` and split one by one. Throws Error(kArgument) if a rank would get no
/// elements, or if the tensors do not have equal sizes.
TensorSplit split_evenly(std::vector<int64_t> shape, int64_t dim, uint32_t rank, uint32_t ranks, int64_t fused = 1);

/// Call it before initialize, on every rank of the axis, usually in the layer's constructor.
/// gannet::load_weights fills a declared parameter from the whole tensor of a file. `initialize`
/// refuses boxes that leave out elements of the tensor or that overlap.
/// Throws Error(kArgument) if the boxes do not make up the parameter's shape or its dtype is not
/// floating-point, Error(kOrder) if an engine already trains it.
void declare_split(const at::Tensor& parameter, const TensorSplit& split);

/// Does the same for experts, which are divided among the ranks along the mesh's axis `expert`.
/// That axis refines `data`: with {"gannet": {"mesh": {"expert": 2}}} on 4 ranks, ranks 0 and 1
/// hold different experts, and ranks 0 and 2 the same ones. `split` gives this rank's boxes of the
/// tensor of all experts; along `tensor` they are replicas.
///
///   // [experts, out, in]: this rank's experts; neighbours along data hold the others
///   const auto mine = gannet::split_evenly({experts, out, in}, 0, data_rank % degree, degree);
///   weight = register_parameter("weight", torch::empty(mine.local_shape()));
///   gannet::declare_expert(weight, mine);
///
/// The gradient is summed over the ranks that hold the same boxes, and divided by `divisor`. A
/// divisor of 0 means the number of ranks along `data`, since the expert has received tokens from
/// all of them (by the layer's all-to-all). A layer that takes the mean over the tokens itself
/// passes the number of ranks that hold the same experts. ZeRO shards over those ranks. The norm
/// and checkpoints behave as with declare_split: checkpoints load with a different number of ranks
/// along `expert`. Throws as declare_split does, Error(kArgument) if the divisor is negative or not
/// finite, and Error(kOrder) if zero::Init has already sharded the parameter.
void declare_expert(const at::Tensor& parameter, const TensorSplit& split, double divisor = 0);

/// Declares a tensor that several pipeline stages (the mesh's axis `pipe`) hold a copy of,
/// such as an embedding on the first stage that is the head on the last one. Every rank of those
/// stages calls it before initialize, with the same name; the parameter's name in each stage's
/// module does not matter. With one stage it is a no-op, since the module has the tensor once.
///
///   if (stage == 0 || stage == last) gannet::declare_tied(weight, "embedding");
///
/// initialize gives all copies the values of the first stage that holds the tensor. step() sums the
/// copies' gradients over those stages at a boundary, so that each of them makes the same update;
/// between backward() and step() a stage's gradient is only its contribution. The norm counts the
/// tensor once. A checkpoint holds it once, under its name on the first of those stages, and loads
/// with a different number of stages or without stages, as for a model that registers one tensor
/// twice. Throws Error(kArgument) on an empty name or a dtype that is not a floating-point type,
/// Error(kOrder) if an engine already trains the parameter. initialize throws Error(kMismatch) if
/// copies differ in shape, dtype, split or parameter group, or if a rank of a stage has not
/// declared it, and Error(kConfig) if only one stage has.
void declare_tied(const at::Tensor& parameter, const std::string& name);

}  // namespace gannet
