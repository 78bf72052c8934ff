// Attribution of operators to modules; counting changes nothing.
#include <gannet/error.h>
#include <gannet/profile.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "params/observer.h"
#include "profiler/net.h"

namespace {

using at::Tensor;
using namespace gannet::test;

TEST(Attribution, AnOperatorIsItsParametersModulesElseOfTheModuleRoundItsNeighbours) {
  const auto net = std::make_shared<Net>();
  const auto profile = gannet::profile(net, at::randn({N, C}));
  const auto forward = [&](const char* name) { return profile.module(name).forward.flops; };
  EXPECT_EQ(forward("in"), 2 * N * C * C);
  EXPECT_EQ(forward("block.up"), 2 * N * C * F);
  EXPECT_EQ(forward("block.down"), 2 * N * C * F);
  EXPECT_EQ(forward("block"), 4 * N * C * F + N * F);  // gelu is the block's
  EXPECT_EQ(forward(""),
            4 * N * C * C + forward("block") + 2 * N * C);  // the sum after the block and tanh after all are the model's
}

TEST(Attribution, BackwardFollowsTheNodesOfForward) {
  const auto net = std::make_shared<Net>();
  const auto profile = gannet::profile(net, at::randn({N, C}));
  const auto backward = [&](const char* name) { return profile.module(name).backward; };
  EXPECT_EQ(backward("in").macs, N * C * C);  // its input wants no gradient
  EXPECT_EQ(backward("out").macs, 2 * N * C * C);
  EXPECT_EQ(backward("block.up").macs, 2 * N * C * F);
  EXPECT_EQ(backward("block.up").flops,
            4 * N * C * F + N * F + N * C);  // its bias' sum, and its input's gradient joins the residual's
  EXPECT_EQ(backward("block").flops, backward("block.up").flops + backward("block.down").flops + N * F);  // gelu's
  EXPECT_EQ(backward("block.down").flops, 4 * N * C * F + N * C);
}

TEST(Attribution, RowsCarryTypesDepthsAndParametersOfAllBelow) {
  const auto net = std::make_shared<Net>();
  const auto profile = gannet::profile(net, at::randn({N, C}));
  const auto& block = profile.module("block");
  EXPECT_EQ(block.type, "Block");
  EXPECT_EQ(profile.module("block.up").depth, 2);
  EXPECT_EQ(block.parameters, 2 * C * F + F + C);
  EXPECT_EQ(block.memory.parameters, 4 * block.parameters);
  EXPECT_THROW(profile.module("blok"), gannet::Error);
}

TEST(Attribution, TiedWeightsAreTheirFirstModules) {
  struct Tied : torch::nn::Module {
    struct Named : torch::nn::Module {
      explicit Named(const Tensor& tensor) : weight(register_parameter("weight", tensor)) {}
      Tensor weight;
    };
    Tied()
        : a(register_module("a", std::make_shared<Named>(at::randn({C, C})))),
          b(register_module("b", std::make_shared<Named>(a->weight))) {}
    Tensor forward(const Tensor& x) { return at::mm(at::relu(at::mm(x, a->weight)), b->weight.t()); }
    std::shared_ptr<Named> a, b;
  };
  const auto profile = gannet::profile(std::make_shared<Tied>(), at::randn({N, C}));
  EXPECT_EQ(profile.module("a").forward.macs, 2 * N * C * C);
  EXPECT_EQ(profile.module("b").forward.macs, 0);
  EXPECT_EQ(profile.parameters(), C * C);
}

TEST(Attribution, ParametersThatShareAStorageAndViewsOfThemAreToldApart) {
  struct Flat : torch::nn::Module {
    Flat() {
      const Tensor flat = at::randn({2 * C * C});
      a = register_module("a", std::make_shared<FcImpl>(C, C));
      b = register_module("b", std::make_shared<FcImpl>(C, C));
      a->weight.set_data(flat.narrow(0, 0, C * C).view({C, C}));
      b->weight.set_data(flat.narrow(0, C * C, C * C).view({C, C}));
    }
    Tensor forward(const Tensor& x) { return at::mm(at::mm(x, a->weight.t()), b->weight.narrow(1, 0, 1)); }
    std::shared_ptr<FcImpl> a, b;
  };
  const auto profile = gannet::profile(std::make_shared<Flat>(), at::randn({N, C}));
  EXPECT_EQ(profile.module("a").forward.macs, N * C * C);
  EXPECT_EQ(profile.module("b").forward.macs, N * C);
}

TEST(Attribution, RowsOfATableAreNoCopiesOfIt) {
  struct Words : torch::nn::Module {
    Words() : table(register_parameter("table", at::randn({10, C}))), a(register_module("a", std::make_shared<FcImpl>(C, C))) {}
    Tensor forward(const Tensor& words) { return a->forward(at::embedding(table, words)); }
    Tensor table;
    std::shared_ptr<FcImpl> a;
  };
  const auto profile = gannet::profile(std::make_shared<Words>(), at::arange(N));
  EXPECT_EQ(profile.module("a").forward.macs, N * C * C);
  EXPECT_EQ(profile.module("a").backward.macs, 2 * N * C * C);
}

// A function of its own, which works on copies in another dtype.
struct Wide : torch::autograd::Function<Wide> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return at::mm(x.to(at::kDouble), weight.to(at::kDouble)).to(at::kFloat);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor grad = grads[0].to(at::kDouble) * 1.0;
    return {at::mm(grad, saved[1].to(at::kDouble).t()).to(at::kFloat), at::mm(saved[0].to(at::kDouble).t(), grad).to(at::kFloat)};
  }
};

TEST(Attribution, FunctionsOfTheProgramsOwnAreCountedAsWhatTheyCallAndCopiesOfAParameterAreItsModules) {
  struct Two : torch::nn::Module {
    Two() : a(register_module("a", std::make_shared<FcImpl>(C, C))), b(register_module("b", std::make_shared<FcImpl>(C, C))) {}
    Tensor forward(const Tensor& x) { return Wide::apply(Wide::apply(x, a->weight), b->weight); }
    std::shared_ptr<FcImpl> a, b;
  };
  const auto profile = gannet::profile(std::make_shared<Two>(), at::randn({N, C}));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(profile.module(name).forward.macs, N * C * C) << name;
    EXPECT_EQ(profile.module(name).backward.macs, 2 * N * C * C) << name;
    EXPECT_EQ(profile.module(name).backward.flops, 4 * N * C * C + N * C) << name;
  }
}

TEST(Attribution, ActivationsAreWhatBackwardNeeds) {
  const auto net = std::make_shared<Net>();
  const auto profile = gannet::profile(net, at::randn({N, C}));
  // gelu keeps its input and down its input: both are made in the block.
  EXPECT_EQ(profile.module("block.up").memory.activations, 4 * N * F);
  EXPECT_GE(profile.module("block").memory.activations, 2 * 4 * N * F);
  EXPECT_LE(profile.module("").memory.activations, 4 * (2 * N * F + 5 * N * C));
}

TEST(Profile, ChangesNoBitOfTheResultAndLeavesNoGradients) {
  const auto net = std::make_shared<Net>();
  const Tensor x = at::randn({N, C});
  const Tensor plain = net->forward(x);
  Tensor seen;
  const auto profile = gannet::profile_forward(*net, [&] { return seen = net->forward(x); });
  EXPECT_TRUE(at::equal(plain, seen));
  for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_GT(profile.forward_seconds, 0);
  EXPECT_TRUE(profile.is_timed);
  EXPECT_LE(profile.forward().seconds, profile.forward_seconds);
}

TEST(Profile, NobodyObservesOutsideOfIt) {
  const auto net = std::make_shared<Net>();
  bool was_observed = false;
  EXPECT_EQ(gannet::zero::observer_here(), nullptr);
  gannet::profile_forward(*net,
                          [&] {
                            was_observed = gannet::zero::observer_here() != nullptr;
                            return net->forward(at::randn({N, C}));
                          },
                          {.warm_up = 0});
  EXPECT_TRUE(was_observed);
  EXPECT_EQ(gannet::zero::observer_here(), nullptr);
}

TEST(Profile, TheTextHonoursDepthTopModulesAndDetail) {
  const auto profile = gannet::profile(std::make_shared<Net>(), at::randn({N, C}));
  const std::string all = profile.to_string();
  EXPECT_THAT(all, testing::HasSubstr("(up) Fc: "));
  EXPECT_THAT(all, testing::HasSubstr("depth 2:"));
  EXPECT_THAT(all, testing::HasSubstr("aten::addmm"));
  const std::string shallow = profile.to_string({.module_depth = 1});
  EXPECT_THAT(shallow, testing::HasSubstr("(block) Block: "));
  EXPECT_THAT(shallow, testing::Not(testing::HasSubstr("(up) Fc: ")));
  EXPECT_THAT(shallow, testing::Not(testing::HasSubstr("depth 2:")));
  EXPECT_THAT(profile.to_string({.top_modules = 1}), testing::Not(testing::HasSubstr("Block: 148, Fc")));
  EXPECT_THAT(profile.to_string({.top_modules = 2}), testing::HasSubstr("params      - Block: 148, Fc: 40"));
  EXPECT_THAT(profile.to_string({.detailed = false}), testing::Not(testing::HasSubstr("aten::addmm")));
}

}  // namespace
