// The update of LibTorch's own optimizers, beside the object's own step().
#include "update/torch_rule.h"

#include <gtest/gtest.h>

#include "zero/torch_cases.h"

namespace {

using namespace gannet::test;

// Pieces of any length, more elements than one step() takes, 16-bit gradients with a factor, a copy in 16 bits.
TEST(TorchRule, GivesTheSameForAnyCut) {
  const int64_t numel = 700'003;
  for (const auto& one : torch_cases()) {
    torch::manual_seed(3);
    at::Tensor parameter = torch::randn({numel});
    at::Tensor whole = parameter.clone();
    auto reference = one.make({whole});
    const auto program = one.make({parameter});
    const auto* type = gannet::torch_type_of(*program);
    ASSERT_NE(type, nullptr);
    std::vector<const gannet::TorchType::State*> kept;
    for (const auto& state : type->states)
      if (state.is_kept(program->param_groups()[0].options())) kept.push_back(&state);
    auto rule = gannet::make_torch_rule({*type, program, 0, kept, at::kCPU});
    rule->describe({});
    rule->require_support(GANNET_FLOAT32, GANNET_BFLOAT16, GANNET_BFLOAT16);
    std::vector<at::Tensor> states;
    for (const auto& state : rule->states()) states.push_back(torch::full({numel}, state.initial_value));
    at::Tensor out = torch::zeros({numel}, at::kBFloat16);
    const std::vector<double> hyper = rule->hyper_values();
    for (uint64_t step = 1; step <= 4; ++step) {
      const at::Tensor gradient = torch::randn({numel}).to(at::kBFloat16);
      whole.mutable_grad() = gradient.to(at::kFloat) * 0.3;
      reference->step();
      gannet_step_args begin{};
      begin.hyper = hyper.data();
      begin.hyper_count = hyper.size();
      rule->begin_step(begin);
      const int64_t cuts[] = {0, 1, 17, 4096 + 5, 300'000, 650'001, numel};
      for (size_t c = 0; c + 1 < std::size(cuts); ++c) {
        std::vector<void*> arrays;
        for (auto& state : states) arrays.push_back(state.data_ptr<float>() + cuts[c]);
        gannet_update_args args{};
        args.struct_size = sizeof(args);
        args.param_dtype = GANNET_FLOAT32;
        args.grad_dtype = args.out_dtype = GANNET_BFLOAT16;
        args.numel = static_cast<uint64_t>(cuts[c + 1] - cuts[c]);
        args.param = parameter.data_ptr<float>() + cuts[c];
        args.grad = gradient.data_ptr<at::BFloat16>() + cuts[c];
        args.out = out.data_ptr<at::BFloat16>() + cuts[c];
        args.states = arrays.data();
        args.state_count = arrays.size();
        args.grad_scale = 0.3;
        args.step = step;
        rule->update(args);
      }
      EXPECT_TRUE(torch::equal(parameter, whole)) << one.name << " at step " << step;
      EXPECT_TRUE(torch::equal(out, whole.to(at::kBFloat16))) << one.name;
    }
  }
}

}  // namespace
