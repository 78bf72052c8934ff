// One tensor on the GPU and an optimizer that may want sums of it: the calls of a step, for timing them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "optimizers/loaded_plugin.h"
#include "tensor/dtype.h"

namespace gannet::test {

// fp32 masters of ones, bf16 gradients of ones, a bf16 copy, states of zeros.
class WholeTensor {
 public:
  WholeTensor(const std::string& file, const std::string& type, const Dict& params, std::vector<int64_t> shape)
      : plugin_(file, type), optimizer_(plugin_, params, host_), shape_(std::move(shape)) {
    const auto rows = static_cast<uint64_t>(shape_[0]), columns = static_cast<uint64_t>(shape_[1]);
    numel_ = shape_[0] * shape_[1];
    const auto fp32 = at::TensorOptions().device(at::Device(at::kCUDA, 0)), bf16 = fp32.dtype(at::kBFloat16);
    param_ = at::ones({numel_}, fp32);
    grad_ = at::ones({numel_}, bf16);
    out_ = at::zeros({numel_}, bf16);

    tensor_.struct_size = sizeof(tensor_);
    tensor_.dimensions = 2;
    tensor_.name = "weight";
    tensor_.numel = static_cast<uint64_t>(numel_);
    tensor_.shape = shape_.data();
    tensor_.columns = columns;
    tensor_.matrix_rows = rows;
    gannet_optimizer_context context{};
    context.struct_size = sizeof(context);
    context.group_count = context.world_size = context.tensor_count = 1;
    context.tensors = &tensor_;
    context.tensor_stride = sizeof(tensor_);
    const gannet_optimizer_description found = optimizer_.describe(context);
    for (uint64_t s = 0; s < found.state_count; ++s) {
      const gannet_state_spec& spec = found.states[s];
      const auto dtype = spec.dtype == GANNET_DTYPE_NONE ? GANNET_FLOAT32 : static_cast<gannet_dtype>(spec.dtype);
      const bool is_cut = spec.extent == GANNET_STATE_PER_ELEMENT || spec.extent == GANNET_STATE_PER_BLOCK;
      const auto block = static_cast<int64_t>(spec.extent == GANNET_STATE_PER_BLOCK ? spec.block : 1);
      const auto options = at::TensorOptions().dtype(to_scalar_type(dtype)).device(is_cut ? fp32.device() : at::kCPU);
      // For the whole tensor, rows and columns are the largest extents.
      states_.push_back(at::zeros({is_cut ? (numel_ + block - 1) / block : shape_[0] + shape_[1]}, options));
      pointers_.push_back(states_.back().data_ptr());
    }
    for (uint64_t k = 0; k < found.sum_count; ++k) {
      rounds_ = found.sums[k].round + 1;
      const uint32_t scope = found.sums[k].scope;
      lines_.emplace_back(scope == GANNET_SUM_OF_ROW ? rows : scope == GANNET_SUM_OF_COLUMN ? columns : 0);
    }
    for (auto& line : lines_) line_places_.push_back(line.empty() ? nullptr : line.data());
    sums_.resize(lines_.size());

    segment_.struct_size = sizeof(segment_);
    segment_.dimensions = 2;
    segment_.numel = segment_.tensor_numel = static_cast<uint64_t>(numel_);
    segment_.shape = shape_.data();
    segment_.name = "weight";
    segment_.columns = columns;
    segment_.matrix_rows = rows;
  }
  WholeTensor(const WholeTensor&) = delete;

  // The sums and the update of a step.
  void step() {
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = GANNET_FLOAT32;
    args.grad_dtype = args.out_dtype = GANNET_BFLOAT16;
    args.numel = static_cast<uint64_t>(numel_);
    args.param = param_.data_ptr();
    args.grad = grad_.data_ptr();
    args.out = out_.data_ptr();
    args.states = pointers_.data();
    args.state_count = pointers_.size();
    args.grad_scale = 0.5;
    args.step = 1;
    args.hyper = optimizer_.params.hyper.data();
    args.hyper_count = optimizer_.params.hyper.size();
    args.segments = &segment_;
    args.segment_count = 1;
    args.segment_stride = sizeof(segment_);
    args.sums = sums_.data();
    args.sum_count = sums_.size();
    args.lines = line_places_.data();
    std::fill(sums_.begin(), sums_.end(), 0);
    for (auto& line : lines_) std::fill(line.begin(), line.end(), 0);
    for (uint32_t round = 0; round < rounds_; ++round) optimizer_.sums(args, round, sums_.data());
    optimizer_.update(args);
  }
  int64_t numel() const { return numel_; }

 private:
  TestHost host_;
  LoadedPlugin plugin_;
  OptimizerUnderTest optimizer_;
  std::vector<int64_t> shape_;
  int64_t numel_ = 0;
  at::Tensor param_, grad_, out_;
  std::vector<at::Tensor> states_;
  std::vector<void*> pointers_;
  uint32_t rounds_ = 0;
  std::vector<double> sums_;
  std::vector<std::vector<double>> lines_;
  std::vector<double*> line_places_;
  gannet_tensor tensor_{};
  gannet_segment segment_{};
};

}  // namespace gannet::test
