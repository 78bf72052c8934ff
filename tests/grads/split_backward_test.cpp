// A backward in two passes gives what one backward gives, bit for bit, on modules that know nothing
// of it.
#include "grads/split_backward.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gannet {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using Tensors = std::vector<Tensor>;

// A stage: parameters, and a forward of any inputs to any outputs.
struct Stage {
  std::shared_ptr<nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
  Tensors inputs;
};

struct Gradients {
  Tensors of_inputs, of_parameters;
  std::vector<int> hooks;  // [parameters] how often each one's hook ran
};

Tensors outputs_with_gradient(const Tensors& outputs) {
  Tensors found;
  for (const Tensor& output : outputs)
    if (output.requires_grad()) found.push_back(output);
  return found;
}

Tensors gradients_for(const Tensors& outputs) {
  torch::manual_seed(9);
  Tensors all;
  for (const Tensor& output : outputs) all.push_back(torch::randn_like(output));
  return all;
}

// Runs a forward, and `backward` with the outputs, their gradients and the leaves that are the inputs.
Gradients run(const Stage& stage, const std::function<Tensors(const Tensors&, const Tensors&, const Tensors&)>& backward) {
  const Tensors parameters = stage.module->parameters();
  std::vector<int> hooks(parameters.size(), 0);
  std::vector<unsigned> handles;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad().reset();
    if (parameters[i].requires_grad())
      handles.push_back(parameters[i].register_hook([&hooks, i](const Tensor&) { ++hooks[i]; }));
    else
      handles.push_back(0);
  }
  Tensors leaves, given;
  for (const Tensor& input : stage.inputs) {
    leaves.push_back(input.detach().clone().requires_grad_(input.is_floating_point()));
    given.push_back(input.is_floating_point() ? leaves.back() * 1 : leaves.back());  // may change in place
  }
  torch::manual_seed(5);
  const Tensors outputs = outputs_with_gradient(stage.forward(given));
  given.clear();
  Tensors asked;
  for (const Tensor& leaf : leaves)
    if (leaf.requires_grad()) asked.push_back(leaf);
  Tensors of_inputs = backward(outputs, gradients_for(outputs), asked);
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].requires_grad()) parameters[i].remove_hook(handles[i]);
  Gradients all{std::move(of_inputs), {}, hooks};
  for (const Tensor& parameter : parameters)
    all.of_parameters.push_back(parameter.grad().defined() ? parameter.grad().clone() : Tensor());
  return all;
}

Gradients whole(const Stage& stage) {
  return run(stage, [](const Tensors& outputs, const Tensors& gradients, const Tensors& inputs) {
    torch::autograd::backward(outputs, gradients);
    Tensors all;
    for (const Tensor& input : inputs) all.push_back(input.grad());
    return all;
  });
}

Gradients in_two_passes(const Stage& stage) {
  return run(stage, [&stage](const Tensors& outputs, const Tensors& gradients, const Tensors& inputs) {
    torch::autograd::edge_list roots, ends;
    for (const Tensor& output : outputs) roots.push_back(torch::autograd::impl::gradient_edge(output));
    for (const Tensor& input : inputs) ends.push_back(torch::autograd::impl::gradient_edge(input));
    SplitBackward split;
    Tensors of_inputs = split.input_pass(roots, gradients, ends);
    for (const auto& parameter : stage.module->named_parameters())
      EXPECT_FALSE(parameter.value().grad().defined()) << parameter.key() << " got its gradient in the first pass";
    split.weight_pass();
    return of_inputs;
  });
}

bool is_same(const Tensor& one, const Tensor& other) {
  if (one.defined() != other.defined()) return false;
  return !one.defined() || (one.layout() == other.layout() && one.to_dense().equal(other.to_dense()));
}

void expect_same(const std::string& name, const Stage& stage) {
  const Gradients expected = whole(stage), found = in_two_passes(stage);
  ASSERT_EQ(found.of_inputs.size(), expected.of_inputs.size());
  for (size_t i = 0; i < expected.of_inputs.size(); ++i)
    EXPECT_TRUE(is_same(found.of_inputs[i], expected.of_inputs[i])) << name << ", input " << i;
  const auto names = stage.module->named_parameters().keys();
  for (size_t i = 0; i < expected.of_parameters.size(); ++i) {
    EXPECT_TRUE(is_same(found.of_parameters[i], expected.of_parameters[i])) << name << ", " << names[i];
    EXPECT_EQ(found.hooks[i], expected.hooks[i]) << name << ", " << names[i];
  }
}

template <class Module>
std::shared_ptr<Module> in(const std::shared_ptr<nn::Module>& parent, const std::string& name,
                           const nn::ModuleHolder<Module>& child) {
  return parent->register_module(name, child.ptr());
}

Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes); }

// x * x * weight, with a backward of its own that computes only what is asked for.
struct Scaled : torch::autograd::Function<Scaled> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * x * weight;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto saved = context->get_saved_variables();
    return {context->needs_input_grad(0) ? gradients[0] * 2 * saved[0] * saved[1] : Tensor(),
            context->needs_input_grad(1) ? (gradients[0] * saved[0] * saved[0]).sum_to_size(saved[1].sizes()) : Tensor()};
  }
};

std::map<std::string, std::function<Stage()>> kinds() {
  std::map<std::string, std::function<Stage()>> all;
  all["blocks with dropout"] = [] {
    nn::Sequential net;
    for (int i = 0; i < 3; ++i) {
      net->push_back(nn::LayerNorm(nn::LayerNormOptions({16})));
      net->push_back(nn::Linear(16, 32));
      net->push_back(nn::GELU());
      net->push_back(nn::Dropout(0.3));
      net->push_back(nn::Linear(32, 16));
    }
    return Stage{net.ptr(), [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; }, {random({4, 16})}};
  };
  all["weights used three times"] = [] {
    auto net = std::make_shared<nn::Module>();
    const auto norm = in(net, "norm", nn::LayerNorm(nn::LayerNormOptions({16})));
    const auto linear = in(net, "linear", nn::Linear(16, 16));
    return Stage{net,
                 [norm, linear](const Tensors& in) {
                   Tensor x = in[0];
                   for (int i = 0; i < 3; ++i) x = x + torch::gelu(linear->forward(norm->forward(x)));
                   return Tensors{x};
                 },
                 {random({4, 16})}};
  };
  all["LSTM with its states"] = [] {
    nn::LSTM net(nn::LSTMOptions(8, 8).num_layers(2));
    return Stage{net.ptr(),
                 [net](const Tensors& in) mutable {
                   const auto [output, states] = net->forward(in[0], std::tuple(in[1], in[2]));
                   return Tensors{output, std::get<0>(states), std::get<1>(states)};
                 },
                 {random({5, 3, 8}), random({2, 3, 8}), random({2, 3, 8})}};
  };
  all["a function of the program"] = [] {
    auto net = std::make_shared<nn::Module>();
    const Tensor weight = net->register_parameter("weight", random({16}));
    const auto linear = in(net, "linear", nn::Linear(16, 16));
    return Stage{
        net,
        [weight, linear](const Tensors& in) { return Tensors{linear->forward(Scaled::apply(linear->forward(in[0]), weight))}; },
        {random({4, 16})}};
  };
  all["frozen parameters"] = [] {
    nn::Sequential net(nn::Linear(16, 16), nn::ReLU(), nn::Linear(16, 16), nn::LayerNorm(nn::LayerNormOptions({16})));
    net->parameters()[0].requires_grad_(false);
    net->parameters()[3].requires_grad_(false);
    return Stage{net.ptr(), [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; }, {random({4, 16})}};
  };
  all["an embedding at both ends"] = [] {
    auto net = std::make_shared<nn::Module>();
    const auto words = in(net, "words", nn::Embedding(11, 16));
    const auto linear = in(net, "linear", nn::Linear(16, 16));
    return Stage{net,
                 [words, linear](const Tensors& in) {
                   const Tensor x = linear->forward(words->forward(in[1]) + in[0]);
                   return Tensors{at::matmul(x, words->weight.t())};
                 },
                 {random({4, 16}), torch::randint(11, {4}, torch::kLong)}};
  };
  all["a sparse gradient"] = [] {
    auto net = std::make_shared<nn::Module>();
    const auto words = in(net, "words", nn::Embedding(nn::EmbeddingOptions(11, 16).sparse(true)));
    const auto linear = in(net, "linear", nn::Linear(16, 16));
    return Stage{net,
                 [words, linear](const Tensors& in) { return Tensors{linear->forward(in[0] * words->forward(in[1]))}; },
                 {random({4, 16}), torch::tensor({1, 3, 5, 7})}};
  };
  all["convolution, batch norm and relu in place"] = [] {
    nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)), nn::BatchNorm2d(4),
                       nn::ReLU(nn::ReLUOptions().inplace(true)), nn::Conv2d(nn::Conv2dOptions(4, 4, 3)));
    return Stage{net.ptr(), [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; }, {random({2, 3, 6, 6})}};
  };
  all["an input changed in place"] = [] {
    nn::Sequential net(nn::Linear(16, 16), nn::Linear(16, 16));
    return Stage{net.ptr(),
                 [net](const Tensors& in) mutable {
                   Tensor x = in[0];
                   x.mul_(2).sigmoid_();
                   return Tensors{net->forward(x)};
                 },
                 {random({4, 16})}};
  };
  all["attention"] = [] {
    nn::TransformerEncoderLayer net(nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.1));
    return Stage{net.ptr(), [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; }, {random({5, 2, 16})}};
  };
  all["several inputs and outputs, some of them unused"] = [] {
    auto net = std::make_shared<nn::Module>();
    const auto a = in(net, "a", nn::Linear(16, 16)), b = in(net, "b", nn::Linear(16, 16));
    return Stage{net,
                 [a, b](const Tensors& in) {
                   const Tensor x = a->forward(in[0]);
                   return Tensors{x, x * 3, b->forward(in[1]).detach(), torch::ones({2}), b->weight.sum(), in[1]};
                 },
                 {random({4, 16}), random({4, 16}), random({4})}};
  };
  all["weights alone"] = [] {
    auto net = std::make_shared<nn::Module>();
    const auto linear = in(net, "linear", nn::Linear(16, 16));
    return Stage{net, [linear](const Tensors& in) { return Tensors{linear->forward(in[0].detach())}; }, {random({4, 16})}};
  };
  all["no weights"] = [] {
    return Stage{
        std::make_shared<nn::Module>(), [](const Tensors& in) { return Tensors{torch::gelu(in[0])}; }, {random({4, 16})}};
  };
  all["the input itself"] = [] {
    return Stage{std::make_shared<nn::Module>(), [](const Tensors& in) { return Tensors{in[0], in[0]}; }, {random({4, 16})}};
  };
  all["a table that is convolved, a parameter of one element, and views"] = [] {
    auto net = std::make_shared<nn::Module>();
    const Tensor scale = net->register_parameter("scale", torch::tensor(0.7));
    const Tensor table = net->register_parameter("table", random({3, 16}));
    return Stage{net,
                 [scale, table](const Tensors& in) {
                   const Tensor x = (in[0] * scale).view({2, 2, 16}).transpose(0, 1);
                   return Tensors{at::cat({x.reshape({4, 16}), table * scale}).select(0, 5) * table.select(0, 1)};
                 },
                 {random({4, 16})}};
  };
  return all;
}

TEST(SplitBackward, GivesTheBitsOfOneBackwardOnAnyModule) {
  for (const auto& [name, make] : kinds()) {
    torch::manual_seed(3);
    expect_same(name, make());
  }
}

// A hook on a tensor between two layers changes what comes to the layer below it: in either pass
// its result counts once.
TEST(SplitBackward, HooksOfTensorsRunOnce) {
  torch::manual_seed(3);
  nn::Linear below(16, 16), above(16, 16);
  auto net = std::make_shared<nn::Module>();
  in(net, "below", below);
  in(net, "above", above);
  int runs = 0;
  std::vector<Tensor> retained;
  const Stage stage{net,
                    [&](const Tensors& inputs) {
                      Tensor x = below->forward(inputs[0]);
                      x.register_hook([&runs](const Tensor& gradient) {
                        ++runs;
                        return gradient * 2;
                      });
                      x.retain_grad();
                      retained.push_back(x);
                      return Tensors{above->forward(x)};
                    },
                    {random({4, 16})}};
  expect_same("hooks", stage);
  EXPECT_EQ(runs, 2) << "once for each of the two backwards";
  ASSERT_EQ(retained.size(), 2u);
  EXPECT_TRUE(retained[0].grad().equal(retained[1].grad()));
}

struct ChangesItsGradient : torch::autograd::Function<ChangesItsGradient> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return 2 * x * weight;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    const auto saved = context->get_saved_variables();
    gradients[0].mul_(2);
    return {gradients[0] * saved[1], gradients[0] * saved[0]};
  }
};

TEST(SplitBackward, AGradientThatIsChangedInPlaceIsAnError) {
  const Tensor x = random({4}).requires_grad_(true), weight = random({4}).requires_grad_(true);
  const Tensor output = ChangesItsGradient::apply(x, weight);
  SplitBackward split;
  try {
    split.input_pass({torch::autograd::impl::gradient_edge(output)}, {torch::ones({4})},
                     {torch::autograd::impl::gradient_edge(x)});
    ADD_FAILURE() << "it was allowed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("changed the gradient that came to it in place"));
  }
}

TEST(SplitBackward, TheFirstPassReleasesWhatTheSecondDoesNotNeed) {
  // gelu's input is saved for the gradient of inputs alone, and the norm's for both.
  torch::manual_seed(3);
  nn::LayerNorm norm(nn::LayerNormOptions({16}));
  Tensor x = random({4, 16}).requires_grad_(true);
  at::Tensor before_gelu = norm->forward(x.view_as(x));
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> watched(before_gelu.getIntrusivePtr());
  Tensor output = torch::gelu(before_gelu);
  before_gelu.reset();
  ASSERT_FALSE(watched.expired());
  SplitBackward split;
  {
    const torch::autograd::edge_list roots{torch::autograd::impl::gradient_edge(output)};
    output.reset();
    split.input_pass(roots, {torch::ones({4, 16})}, {torch::autograd::impl::gradient_edge(x)});
  }
  EXPECT_TRUE(watched.expired());
  split.weight_pass();
  EXPECT_TRUE(norm->weight.grad().defined());
}

}  // namespace
}  // namespace gannet
