// Which tensors can be parameters: views of temporaries, results of operators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

struct MadeImpl : torch::nn::Module {
  explicit MadeImpl(std::vector<at::Tensor> given) {
    for (size_t i = 0; i < given.size(); ++i) weights.push_back(register_parameter("w" + std::to_string(i), given[i]));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor sum = x.sum();
    for (const at::Tensor& weight : weights) sum = sum + (weight * x.sum() - 1).pow(2).mean();
    return sum;
  }
  std::vector<at::Tensor> weights;
};

const std::vector<std::pair<std::string, std::function<std::vector<at::Tensor>()>>> kMade = {
    {"unsqueeze", [] { return std::vector{torch::arange(4.0).unsqueeze(0)}; }},
    {"view", [] { return std::vector{torch::arange(6.0).view({2, 3})}; }},
    {"transposed", [] { return std::vector{torch::arange(6.0).view({2, 3}).t()}; }},
    {"select", [] { return std::vector{torch::arange(6.0).view({2, 3})[1]}; }},
    {"expanded and dense", [] { return std::vector{torch::arange(3.0).expand({2, 3}).contiguous()}; }},
    {"detached", [] { return std::vector{torch::arange(4.0).detach()}; }},
    {"chunks", [] { return torch::arange(8.0).chunk(2); }},
    {"chunks of a matrix", [] { return torch::arange(8.0).view({4, 2}).chunk(2); }},
};

TEST(Parameters, ViewsOfATemporaryTrainAsTheirCopies) {
  for (const auto& [name, make] : kMade) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& one : make()) copies.push_back(one.clone());
    auto views = std::make_shared<MadeImpl>(make()), plain = std::make_shared<MadeImpl>(copies);
    const Dict sgd{{"type", "SGD"}, {"params", Dict{{"lr", 0.1}}}};
    const auto engine = initialize(views, {.config = config_with({{"gradient_clipping", 0.0}, {"optimizer", sgd}})}).engine;
    torch::optim::SGD optimizer(plain->parameters(), torch::optim::SGDOptions(0.1));
    for (int64_t i = 0; i < 3; ++i) {
      const at::Tensor x = make_batch(i, 4).first;
      engine->backward(engine->forward(x));
      EXPECT_TRUE(engine->step().applied);
      optimizer.zero_grad();
      plain->forward(x).backward();
      optimizer.step();
    }
    EXPECT_TRUE(torch::allclose(flat_parameters(*views), flat_parameters(*plain))) << name;
  }
}

std::string refused(const std::vector<at::Tensor>& given) {
  try {
    initialize(std::make_shared<MadeImpl>(given), {.config = config_with({})});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kArgument);
    return error.what();
  }
  return "";
}

TEST(Parameters, AViewWhoseBaseTheProgramKeepsIsRefused) {
  const at::Tensor kept = torch::arange(8.0);
  EXPECT_THAT(refused({kept.view({2, 4})}), HasSubstr("the memory of parameter 'w0' is also that of another tensor"));
  const auto chunks = torch::arange(8.0).chunk(2);
  EXPECT_THAT(refused({chunks[0]}), HasSubstr("the memory of parameter 'w0' is also that of another tensor"));
}

TEST(Parameters, TheResultOfAnOperatorIsNoParameter) {
  const at::Tensor leaf = torch::ones({4}, torch::requires_grad());
  EXPECT_THAT(refused({leaf * 2}), HasSubstr("parameter 'w0' is the result of an operator, not a leaf of the graph"));
}

// Trained parameters go back to the engine's dtype, and so do those that were frozen at that time.
// A part that the program converts separately stays unchanged.
TEST(Parameters, FrozenOnesGoBackWithTheTrainedOnesBehindAConversion) {
  for (const bool bf16 : {false, true}) {
    const auto net = make_net();
    net->second->weight.set_requires_grad(false);
    const auto engine = initialize(net, {.config = config_with({{"bf16", Dict{{"enabled", bf16}}}})}).engine;
    const auto train = [&] {
      const auto [x, y] = make_batch(0, 4);
      engine->backward(engine->forward(x, y));
      EXPECT_TRUE(engine->step().applied);
    };
    train();
    const at::Tensor before = net->second->weight.clone();
    net->to(at::kFloat);
    net->to(at::kDouble);
    train();
    EXPECT_EQ(net->second->weight.scalar_type(), bf16 ? at::kBFloat16 : at::kFloat);
    EXPECT_TRUE(net->second->weight.equal(before));
  }
  const auto net = make_net();
  net->register_parameter("teacher", torch::ones({3}), /*requires_grad=*/false);
  const auto engine = initialize(net, {.config = config_with({})}).engine;
  const auto teacher = net->named_parameters()["teacher"];
  at::Tensor(teacher).set_data(teacher.to(at::kHalf));
  const auto [x, y] = make_batch(0, 4);
  engine->backward(engine->forward(x, y));
  EXPECT_TRUE(engine->step().applied);
  EXPECT_EQ(teacher.scalar_type(), at::kHalf);
}

}  // namespace
}  // namespace gannet::test
