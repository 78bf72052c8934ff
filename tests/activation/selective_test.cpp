// Recomputation by operator: gradients are those of the plain forward, and what is kept is what the list says.
#include <ATen/autocast_mode.h>
#include <gannet/checkpointing.h>
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "activation/selective_outcome.h"

namespace gannet::test {
namespace {

using ::testing::HasSubstr;

const Names kMany = {"gelu", "layer_norm", "dropout", "add", "mul", "softmax", "silu", "relu", "sigmoid", "to", "cat", "tanh"};

// name, function
const std::pair<const char*, Function> kFunctions[] = {
    {"gelu", [](const at::Tensor& x) { return torch::gelu(x * 2).sin(); }},
    {"two savers",
     [](const at::Tensor& x) {
       const at::Tensor y = torch::gelu(x * 2);
       return y.sin() + y.cos() * y;
     }},
    {"views",
     [](const at::Tensor& x) {
       const at::Tensor y = torch::silu(x.exp());
       return y.t().slice(1, 1, 5).sin().sum() + y.reshape({-1}).slice(0, 3, 17, 2).cos().sum();
     }},
    {"a view of a view as input", [](const at::Tensor& x) { return torch::gelu(x.exp().t().slice(0, 1, 4)).sin(); }},
    {"gated", [](const at::Tensor& x) { return (torch::silu(x.exp()) * x.sin()).cos(); }},
    {"chain", [](const at::Tensor& x) { return torch::layer_norm(torch::gelu(torch::gelu(x.exp())), {8}).sin(); }},
    {"diamond",
     [](const at::Tensor& x) {
       at::Tensor y = x.exp();
       for (int i = 0; i < 20; ++i) y = torch::tanh(y + y);
       return y.sin();
     }},
    {"dropouts",
     [](const at::Tensor& x) {
       at::Tensor y = x.exp();
       for (int i = 0; i < 3; ++i) y = torch::dropout(y.sin(), 0.3, true) + y;
       return torch::dropout(torch::gelu(y), 0.5, true).exp();
     }},
    {"dropout of softmax",
     [](const at::Tensor& x) { return torch::dropout(torch::softmax(x.sin(), -1), 0.2, true).matmul(x.t()); }},
    {"dropout in evaluation", [](const at::Tensor& x) { return torch::dropout(x.exp(), 0.2, false).sin(); }},
    {"masked",
     [](const at::Tensor& x) {
       return torch::softmax((x.exp() * 0.5).masked_fill(torch::ones({8, 8}).triu(1).to(torch::kBool), -1e9), -1).matmul(x);
     }},
    {"cat",
     [](const at::Tensor& x) {
       const at::Tensor y = x.exp();
       return torch::cat({torch::gelu(y), y.sin(), y}, 1).cos();
     }},
    {"casts", [](const at::Tensor& x) { return torch::gelu(x.exp().to(torch::kBFloat16)).to(torch::kFloat).sin(); }},
    {"scalars", [](const at::Tensor& x) { return (x.exp().mul(3).add(1.5) / 2).sin(); }},
    {"a storage seen as another dtype",
     [](const at::Tensor& x) { return torch::view_as_complex(torch::gelu(x.exp()).view({8, 4, 2})).abs(); }},
    {"conjugates",
     [](const at::Tensor& x) {
       const at::Tensor y = torch::view_as_complex(x.view({8, 4, 2})).exp();
       return torch::view_as_real((y.conj() * y).sin()).abs();
     }},
    {"in place afterwards, before it is saved",
     [](const at::Tensor& x) {
       at::Tensor y = torch::gelu(x.exp());
       y.mul_(2);
       return y.sin();
     }},
    {"in place on an input, before the result is saved",
     [](const at::Tensor& x) {
       at::Tensor y = x.sin();
       const at::Tensor z = torch::relu(y);
       y.mul_(2);
       return z.sin() + y;
     }},
    {"in place forms",
     [](const at::Tensor& x) {
       at::Tensor y = torch::dropout(x.exp(), 0.4, true);
       return torch::relu_(y).sin();
     }},
    {"a region",
     [](const at::Tensor& x) {
       const at::Tensor y = torch::gelu(x.exp());
       const at::Tensor z = checkpointing::checkpoint(
           [](const at::Tensor& y) { return torch::dropout(torch::gelu(y.sin()), 0.3, true).exp(); }, y);
       return torch::gelu(z).sin();
     }},
    {"norms without weights",  // undefined tensors among the arguments
     [](const at::Tensor& x) {
       const at::Tensor y = x.exp2();
       torch::nn::LayerNorm layer(torch::nn::LayerNormOptions({8}).elementwise_affine(false));
       torch::nn::GroupNorm group(torch::nn::GroupNormOptions(2, 8).affine(false));
       return torch::atan(layer(y)) + torch::atan(group(y)) + torch::atan(y);
     }},
    {"a running mean that moves after its use",
     [](const at::Tensor& x) {
       const at::Tensor y = x.exp2().repeat({4, 1}), mean = torch::zeros({8});  // a 32nd of it
       at::Tensor sum = torch::atan(y);
       for (int i = 0; i < 3; ++i) {
         sum = sum + torch::atan(y - mean);
         mean.lerp_(y.detach().mean(0), 0.1);
       }
       return sum;
     }},
    {"a bound that is undefined",
     [](const at::Tensor& x) {
       const at::Tensor y = x.exp2();
       const std::optional<at::Tensor> none{at::Tensor()}, one{torch::ones({8, 8})};
       return torch::atan(torch::clamp(y, none, one)) + torch::atan(y);
     }},
    {"a backward within",
     [](const at::Tensor& x) {
       const at::Tensor y = torch::gelu(x.exp()).sin();
       const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
       return torch::gelu(slope).sin() + y;
     }},
    {"no grad within",
     [](const at::Tensor& x) {
       const at::Tensor y = x.exp();
       at::Tensor z;
       {
         const torch::NoGradGuard no_grad;
         z = torch::gelu(y);
       }
       return (y * z).sin();
     }},
};

TEST(Selective, GradientsAreThePlainOnes) {
  for (const auto& [name, f] : kFunctions)
    for (const Names& names : {kMany, Names{"gelu", "silu"}, Names{"dropout"}, CheapOperators::names()})
      expect_same(outcome(names, f, {8, 8}), outcome({}, f, {8, 8}), name);
}

TEST(Selective, EveryOperatorOfTheList) {
  const std::map<std::string, Function> calls = {
      {"abs", [](const at::Tensor& y) { return y.abs(); }},
      {"add", [](const at::Tensor& y) { return y + y; }},
      {"alpha_dropout", [](const at::Tensor& y) { return torch::alpha_dropout(y, 0.3, true); }},
      {"cat", [](const at::Tensor& y) { return torch::cat({y, y}); }},
      {"celu", [](const at::Tensor& y) { return torch::celu(y); }},
      {"clamp", [](const at::Tensor& y) { return y.clamp(-1, 1); }},
      {"clone", [](const at::Tensor& y) { return y.clone(); }},
      {"contiguous", [](const at::Tensor& y) { return y.t().contiguous(); }},
      {"cos", [](const at::Tensor& y) { return y.cos(); }},
      {"div", [](const at::Tensor& y) { return y / 3; }},
      {"dropout", [](const at::Tensor& y) { return torch::dropout(y, 0.3, true); }},
      {"elu", [](const at::Tensor& y) { return torch::elu(y); }},
      {"embedding", [](const at::Tensor& y) { return torch::embedding(y, torch::arange(100) % 8); }},
      {"erf", [](const at::Tensor& y) { return y.erf(); }},
      {"exp", [](const at::Tensor& y) { return y.exp(); }},
      {"feature_alpha_dropout", [](const at::Tensor& y) { return torch::feature_alpha_dropout(y, 0.3, true); }},
      {"feature_dropout", [](const at::Tensor& y) { return torch::feature_dropout(y, 0.3, true); }},
      {"gelu", [](const at::Tensor& y) { return torch::gelu(y, "tanh"); }},
      {"glu", [](const at::Tensor& y) { return torch::glu(y); }},
      {"group_norm", [](const at::Tensor& y) { return torch::group_norm(y.view({2, 4, 8}), 2); }},
      {"hardshrink", [](const at::Tensor& y) { return torch::hardshrink(y); }},
      {"hardsigmoid", [](const at::Tensor& y) { return torch::hardsigmoid(y); }},
      {"hardswish", [](const at::Tensor& y) { return torch::hardswish(y); }},
      {"hardtanh", [](const at::Tensor& y) { return torch::hardtanh(y); }},
      {"layer_norm", [](const at::Tensor& y) { return torch::layer_norm(y, {8}); }},
      {"leaky_relu", [](const at::Tensor& y) { return torch::leaky_relu(y); }},
      {"log", [](const at::Tensor& y) { return y.log(); }},
      {"log_sigmoid", [](const at::Tensor& y) { return torch::log_sigmoid(y); }},
      {"log_softmax", [](const at::Tensor& y) { return torch::log_softmax(y, 1); }},
      {"masked_fill", [](const at::Tensor& y) { return y.masked_fill(y > 1, 0.5); }},
      {"mish", [](const at::Tensor& y) { return torch::mish(y); }},
      {"mul", [](const at::Tensor& y) { return y * y; }},
      {"neg", [](const at::Tensor& y) { return -y; }},
      {"pow", [](const at::Tensor& y) { return y.pow(3); }},
      {"prelu", [](const at::Tensor& y) { return torch::prelu(y, torch::full({1}, 0.2)); }},
      {"reciprocal", [](const at::Tensor& y) { return y.reciprocal(); }},
      {"relu", [](const at::Tensor& y) { return torch::relu(y); }},
      {"relu6", [](const at::Tensor& y) { return torch::relu6(y); }},
      {"reshape", [](const at::Tensor& y) { return y.t().reshape({-1}); }},
      {"rms_norm", [](const at::Tensor& y) { return torch::rms_norm(y, {8}); }},
      {"rsqrt", [](const at::Tensor& y) { return y.rsqrt(); }},
      {"rsub", [](const at::Tensor& y) { return torch::rsub(y, 2); }},
      {"selu", [](const at::Tensor& y) { return torch::selu(y); }},
      {"sigmoid", [](const at::Tensor& y) { return y.sigmoid(); }},
      {"silu", [](const at::Tensor& y) { return torch::silu(y); }},
      {"sin", [](const at::Tensor& y) { return y.sin(); }},
      {"softmax", [](const at::Tensor& y) { return torch::softmax(y, 1); }},
      {"softplus", [](const at::Tensor& y) { return torch::softplus(y); }},
      {"softshrink", [](const at::Tensor& y) { return torch::softshrink(y); }},
      {"sqrt", [](const at::Tensor& y) { return y.sqrt(); }},
      {"square", [](const at::Tensor& y) { return y.square(); }},
      {"stack", [](const at::Tensor& y) { return torch::stack({y, y}); }},
      {"sub", [](const at::Tensor& y) { return y - 1; }},
      {"tanh", [](const at::Tensor& y) { return y.tanh(); }},
      {"threshold", [](const at::Tensor& y) { return torch::threshold(y, 0.5, 0); }},
      {"to", [](const at::Tensor& y) { return y.to(torch::kDouble); }},
      {"where", [](const at::Tensor& y) { return torch::where(y > 1, y, y); }},
  };
  for (const std::string& name : CheapOperators::names()) {
    ASSERT_TRUE(calls.contains(name)) << name;
    // Its input is kept by another operator, and its result saved: it is dropped.
    const Function f = [&](const at::Tensor& x) {
      const at::Tensor y = torch::exp2(x);
      const at::Tensor z = calls.at(name)(y);
      return torch::tan(z).sum() + torch::atan(y).sum();
    };
    const Function large = [&](const at::Tensor& x) {
      const at::Tensor y = torch::exp2(x);
      return torch::atan(y).sum() + torch::atan(calls.at(name)(y)).sum();
    };
    expect_same(outcome({name}, f, {8, 8}), outcome({}, f, {8, 8}), name);
    if (name == "embedding" || name == "group_norm" || name == "layer_norm" || name == "rms_norm") continue;  // of other shapes
    const int64_t plain = outcome({}, large, {512, 256}).kept, dropped = outcome({name}, large, {512, 256}).kept;
    EXPECT_LE(dropped, plain - (128 << 10)) << name;
  }
}

TEST(Selective, GraphsThatAreKept) {
  torch::manual_seed(5);
  const at::Tensor x = torch::randn({8, 8}, torch::requires_grad());
  const Function f = [](const at::Tensor& x) { return torch::dropout(torch::gelu(x.exp()), 0.3, true).sin().sum(); };
  const auto thrice = [&](const Names& names) {
    torch::manual_seed(6);
    const at::Tensor y = forward_with(names, f, x);
    std::vector<at::Tensor> all;
    for (int i = 0; i < 3; ++i) all.push_back(torch::autograd::grad({y}, {x}, {}, true)[0]);
    const at::Tensor slope = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    all.push_back(torch::autograd::grad({slope.square().sum()}, {x})[0]);
    return all;
  };
  const auto plain = thrice({}), found = thrice(kMany);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(found[i], plain[i])) << i;
  EXPECT_TRUE(at::equal(found[0], found[2]));
}

TEST(Selective, AutocastIsThatOfTheForward) {
  auto model = torch::nn::Linear(8, 8);
  const Function f = [&](const at::Tensor& x) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor y = torch::gelu(torch::layer_norm(torch::softmax(model(x), -1).to(torch::kBFloat16), {8}));
    const at::Tensor z = model(torch::layer_norm(y, {8})).to(torch::kFloat).sin();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return z;
  };
  expect_same(outcome(kMany, f, {8, 8}, model->parameters()), outcome({}, f, {8, 8}, model->parameters()), "autocast");
}

TEST(Selective, BackwardOnAnotherThread) {
  auto model = blocks(2, 32, 0.1);
  const at::Tensor x = torch::randn({2, 6, 32});
  const auto run = [&](const Names& names, bool elsewhere) {
    model->zero_grad();
    torch::manual_seed(7);
    const at::Tensor y = forward_with(names, [&](const at::Tensor& x) { return model->forward(x); }, x);
    const auto backward = [&] { y.square().sum().backward(); };
    if (elsewhere)
      std::thread(backward).join();
    else
      backward();
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
    return torch::cat([&] {
      for (auto& gradient : gradients) gradient = gradient.reshape({-1});
      return gradients;
    }());
  };
  const at::Tensor plain = run({}, false);
  EXPECT_TRUE(at::equal(run(kMany, true), plain));
  EXPECT_TRUE(at::equal(run(kMany, false), plain));
}

TEST(Selective, OtherThreadsAreLeftAlone) {
  const CheapOperators chosen({"gelu"});
  const SelectiveRecomputation selective(chosen);
  bool is_asked = true;
  std::thread([&] { is_asked = activation::keeper_here() != nullptr; }).join();
  EXPECT_FALSE(is_asked);
  EXPECT_NE(activation::keeper_here(), nullptr);
}

template <class F>
Error error_in(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("there was no error");
}

// A chunk of unsafe_chunk has a version counter of its own: the product's does not show that the chunk is written.
TEST(Selective, AChunkThatIsWrittenIsNotTheResultThatItIsAChunkOf) {
  const Function f = [](const at::Tensor& x) {
    const at::Tensor y = x.tanh();
    const auto chunks = (y * 1.5).unsafe_chunk(2, 1);
    const at::Tensor a = chunks[0].sigmoid_(), b = chunks[1].tanh_();
    return (a * b).sum() + (y * y).sum();
  };
  expect_same(outcome({"mul"}, f, {64, 64}), outcome({}, f, {64, 64}), "chunks");
}

TEST(Selective, AnInputThatIsChangedBeforeBackward) {
  const at::Tensor x = torch::randn({8, 8}, torch::requires_grad());
  at::Tensor y = x.exp().detach().requires_grad_() * 2;
  const at::Tensor z = forward_with({"gelu"}, [](const at::Tensor& y) { return torch::gelu(y).sin(); }, y);
  y.mul_(2);
  const Error error = error_in([&] { z.sum().backward(); });
  EXPECT_EQ(error.code(), ErrorCode::kOrder);
  EXPECT_THAT(error.message(), HasSubstr("operator aten::gelu is run again for backward, and its input tensor of Float [8, 8]"));
}

TEST(Selective, AResultThatIsChangedBeforeBackward) {
  const at::Tensor x = torch::randn({8, 8}, torch::requires_grad());
  at::Tensor kept;
  const at::Tensor z = forward_with({"gelu"}, [&](const at::Tensor& x) { return (kept = torch::gelu(x.exp())).sin(); }, x);
  kept.mul_(2);
  const Error error = error_in([&] { z.sum().backward(); });
  EXPECT_EQ(error.code(), ErrorCode::kOrder);
  EXPECT_THAT(error.message(), HasSubstr("was changed in place afterwards: it is at version 1, and version 0 was saved"));
}

TEST(Selective, AKeptTensorThatIsChangedBeforeBackward) {
  const at::Tensor x = torch::randn({8, 8}, torch::requires_grad());
  at::Tensor kept;
  const at::Tensor z = forward_with({"gelu"}, [&](const at::Tensor& x) { return (kept = x * 2).sin(); }, x);
  kept.mul_(2);
  EXPECT_EQ(error_in([&] { z.sum().backward(); }).code(), ErrorCode::kOrder);
}

TEST(Selective, AnUnknownOperatorIsNamedWithTheNearest) {
  const Error error = error_in([] { const CheapOperators chosen({"gelu", "layernorm"}); });
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  EXPECT_THAT(error.message(), HasSubstr("'layernorm'"));
  EXPECT_THAT(error.message(), HasSubstr("did you mean 'layer_norm'?"));
  EXPECT_THAT(error.next_step(), HasSubstr("gelu, "));
  EXPECT_THROW(CheapOperators({"batch_norm"}), Error);
}

}  // namespace
}  // namespace gannet::test
