// A step of an optimizer plugin on a group of tensors in fp32, by the contract's calls: the rounds of sums, then the update.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "interfaces/optimizer.h"
#include "tensor/flat_buffer.h"

namespace gannet::bench {

class GroupStep {
 public:
  GroupStep(const std::string& name, const Dict& params, const std::vector<std::vector<int64_t>>& shapes)
      : optimizer_(plugin_of(name), plugin::parse_params(plugin_of(name), params, [](auto&) { return "bench"; }), host_) {
    Optimizer::Context context;
    for (const auto& shape : shapes) {
      uint64_t numel = 1;
      for (const int64_t size : shape) numel *= static_cast<uint64_t>(size);
      context.tensors.push_back({"h." + std::to_string(context.tensors.size()), context.tensors.size(), shape, numel});
      numel_ += numel;
    }
    tensors_ = context.tensors;
    optimizer_.describe(context);
    uint64_t offset = 0;
    for (const auto& tensor : tensors_) {
      gannet_segment segment{};
      segment.struct_size = sizeof(segment);
      segment.dimensions = static_cast<uint32_t>(tensor.shape.size());
      segment.tensor_index = segment.tensor_id = tensor.id;
      segment.offset = offset;
      segment.numel = segment.tensor_numel = tensor.numel;
      segment.shape = tensor.shape.data();
      segment.name = tensor.name.c_str();
      segments_.push_back(segment);
      offset += tensor.numel;
    }
    for (at::Tensor* buffer : {&param_, &grad_}) *buffer = allocate_flat(static_cast<int64_t>(numel_), at::kFloat, at::kCPU);
    auto *param = static_cast<float*>(param_.data_ptr()), *grad = static_cast<float*>(grad_.data_ptr());
    std::minstd_rand random(1);
    for (uint64_t i = 0; i < numel_; ++i) {
      param[i] = static_cast<float>(i % 17) * 0.1f;
      grad[i] = static_cast<float>(random() % 2001) * 1e-3f - 1;
    }
    for (const auto& state : optimizer_.states()) {
      const bool is_elements = state.extent == GANNET_STATE_PER_ELEMENT;
      states_.push_back(allocate_flat(static_cast<int64_t>(is_elements ? numel_ : tensors_.size()), at::kFloat, at::kCPU));
      states_.back().zero_();
    }
  }

  uint64_t numel() const { return numel_; }
  const float* grad() const { return static_cast<const float*>(grad_.const_data_ptr()); }
  void run() {
    std::vector<void*> states;
    for (const auto& state : states_) states.push_back(state.data_ptr());
    std::vector<double> sums(segments_.size() * optimizer_.sums().size());
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = args.grad_dtype = GANNET_FLOAT32;
    args.numel = numel_;
    args.param = param_.data_ptr();
    args.grad = grad_.const_data_ptr();
    args.states = states.data();
    args.state_count = states.size();
    args.grad_scale = 1;
    args.step = ++step_;
    args.hyper = optimizer_.hyper_values().data();
    args.hyper_count = optimizer_.hyper_values().size();
    args.segments = segments_.data();
    args.segment_count = segments_.size();
    args.segment_stride = sizeof(gannet_segment);
    args.sums = sums.data();
    args.sum_count = optimizer_.sums().size();
    if (!sums.empty()) optimizer_.sums(args, 0, sums.data());
    optimizer_.update(args);
  }

 private:
  static const plugin::Plugin& plugin_of(const std::string& name) {
    static auto& registry = *new plugin::Registry({});
    return registry.require(GANNET_KIND_OPTIMIZER, name, "cpu");
  }

  Host host_;
  Optimizer optimizer_;
  std::vector<Optimizer::Tensor> tensors_;
  std::vector<gannet_segment> segments_;
  at::Tensor param_, grad_;         // [numel] fp32
  std::vector<at::Tensor> states_;  // [numel] or [tensors] fp32
  uint64_t numel_ = 0, step_ = 0;
};

}  // namespace gannet::bench
