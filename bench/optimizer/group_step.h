// Steps an optimizer plugin over a group of fp32 tensors through its contract's calls:
// begin_step, the rounds of sums, update, end_step.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "interfaces/optimizer.h"
#include "interfaces/tensor_lines.h"
#include "tensor/dtype.h"
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
    TensorLines lines;
    for (const auto& tensor : tensors_) {
      gannet_segment segment{};
      segment.struct_size = sizeof(segment);
      segment.dimensions = static_cast<uint32_t>(tensor.shape.size());
      segment.tensor_index = segment.tensor_id = tensor.id;
      segment.offset = offset;
      segment.numel = segment.tensor_numel = tensor.numel;
      segment.shape = tensor.shape.data();
      segment.name = tensor.name.c_str();
      lines = TensorLines::of(tensor.shape, tensor.numel, lines);
      lines.write_to(segment);
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
      const auto dtype = state.dtype == GANNET_DTYPE_NONE ? at::kFloat : to_scalar_type(state.dtype);
      const uint64_t count = state.is_cut() ? state.values_of(numel_) : optimizer_.group_numel(state);
      states_.push_back(allocate_flat(static_cast<int64_t>(count), dtype, at::kCPU));
      states_.back().zero_();
      if (state.is_cut()) state_bytes_ += states_.back().nbytes();
    }
    for (const auto& sum : optimizer_.sums()) {
      lines_.emplace_back(sum.is_of_lines() ? optimizer_.line_count(sum) : 0);
      line_places_.push_back(lines_.back().empty() ? nullptr : lines_.back().data());
    }
  }

  uint64_t numel() const { return numel_; }
  // Bytes per parameter that one pass must move: parameters and states both ways, gradients one
  // way.
  double bytes() const { return 12 + 2 * static_cast<double>(state_bytes_) / static_cast<double>(numel_); }
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
    args.lines = line_places_.data();
    for (auto& each : lines_) std::fill(each.begin(), each.end(), 0);
    step(&Optimizer::begin_step, nullptr);
    for (uint32_t round = 0; !sums.empty() && round <= optimizer_.sums().back().round; ++round)
      optimizer_.sums(args, round, sums.data());
    optimizer_.update(args);
    step(&Optimizer::end_step, sums.data());
  }

 private:
  void step(void (Optimizer::*function)(gannet_step_args), const double* sums) {
    std::vector<void*> states;
    for (size_t s = 0; s < states_.size(); ++s)
      states.push_back(optimizer_.states()[s].is_cut() ? nullptr : states_[s].data_ptr());
    gannet_step_args args{};
    args.step = step_;
    args.grad_scale = 1;
    args.hyper = optimizer_.hyper_values().data();
    args.hyper_count = optimizer_.hyper_values().size();
    args.states = states.data();
    args.state_count = states.size();
    args.sums = sums;
    args.sum_count = optimizer_.sums().size();
    args.lines = sums ? line_places_.data() : nullptr;
    (optimizer_.*function)(args);
  }
  static const plugin::Plugin& plugin_of(const std::string& name) {
    static auto& registry = *new plugin::Registry({});
    return registry.require(GANNET_KIND_OPTIMIZER, name, "cpu");
  }

  Host host_;
  Optimizer optimizer_;
  std::vector<Optimizer::Tensor> tensors_;
  std::vector<gannet_segment> segments_;
  at::Tensor param_, grad_;                 // [numel] fp32
  std::vector<at::Tensor> states_;          // one buffer per state
  std::vector<std::vector<double>> lines_;  // [sums]
  std::vector<double*> line_places_;
  uint64_t numel_ = 0, step_ = 0, state_bytes_ = 0;
};

}  // namespace gannet::bench
