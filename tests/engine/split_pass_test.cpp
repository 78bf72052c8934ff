// A micro-batch's backward in two passes through the engine: with others between them, with layers
// that are recomputed, and with what does not allow it.
#include <gannet/checkpointing.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/micro_batch.h"
#include "models.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

struct BlocksImpl : torch::nn::Module {
  explicit BlocksImpl(bool is_reentrant = false) : is_reentrant(is_reentrant) {
    torch::manual_seed(2);
    for (int i = 0; i < 3; ++i) {
      norms.push_back(register_module("norm" + std::to_string(i), torch::nn::LayerNorm(torch::nn::LayerNormOptions({8}))));
      linears.push_back(register_module("linear" + std::to_string(i), torch::nn::Linear(8, 8)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < linears.size(); ++i)
      x = checkpointing::checkpoint(
          {.use_reentrant = is_reentrant},
          [this, i](const at::Tensor& x) {
            ++runs;
            return x + torch::dropout(torch::gelu(linears[i](norms[i](x))), 0.2, true);
          },
          x);
    return last ? last(x) : x;
  }
  bool is_reentrant;
  std::function<at::Tensor(const at::Tensor&)> last;
  int runs = 0;
  std::vector<torch::nn::LayerNorm> norms;
  std::vector<torch::nn::Linear> linears;
};

// Steps of 4 micro-batches, whose backwards are whole or in two passes: I0, then I and W of the
// micro-batch before in turn.
void train(const std::shared_ptr<BlocksImpl>& model, const Dict& config, bool splits, int steps) {
  const auto engine = initialize(model, {.config = config}).engine;
  for (int step = 0; step < steps; ++step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    MicroBatches batch(*engine);
    std::vector<at::Tensor> inputs(4), losses(4);
    std::vector<SplitBackward> split(4);
    for (int64_t i = 0; i < 4; ++i)
      batch.forward(i, [&] {
        inputs[static_cast<size_t>(i)] = torch::randn({4, 8}).requires_grad_(true);
        losses[static_cast<size_t>(i)] = model->forward(inputs[static_cast<size_t>(i)]).square().mean();
      });
    const auto root_of = [&](int64_t i) {
      const at::Tensor loss = std::exchange(losses[static_cast<size_t>(i)], {});
      batch.take_loss(loss);
      return std::vector<MicroBatches::Root>{{MicroBatches::edge_of(loss), batch.loss_gradient(loss)}};
    };
    const auto weights = [&](int64_t i) {
      batch.weight_pass(i, std::move(split[static_cast<size_t>(i)]), i == 3);
      batch.end_micro_batch();
    };
    for (int64_t i = 0; i < 4; ++i) {
      if (!splits) {
        batch.backward(i, root_of(i), i == 3);
        batch.end_micro_batch();
        continue;
      }
      const auto edge = torch::autograd::impl::gradient_edge(inputs[static_cast<size_t>(i)]);
      const auto of_inputs = batch.input_pass(i, root_of(i), {edge}, split[static_cast<size_t>(i)]);
      EXPECT_TRUE(of_inputs.at(0).defined());
      if (i > 0) weights(i - 1);
    }
    if (splits) weights(3);
  }
}

TEST(SplitPasses, TrainAsWholeBackwardsAndRecomputeALayerOnceOrTwice) {
  for (const auto& [stage, is_twice] : {std::pair(int64_t{0}, false), {1, true}, {2, false}, {3, false}, {3, true}}) {
    Dict config = config_with({{"gradient_accumulation_steps", 4}, {"zero_optimization", Dict{{"stage", stage}}}});
    config["gannet"] = Dict{{"pipeline", Dict{{"recompute_twice", is_twice}}}};
    const auto whole = std::make_shared<BlocksImpl>(), split = std::make_shared<BlocksImpl>();
    train(whole, config, false, 3);
    train(split, config, true, 3);
    const auto expected = whole->named_parameters(), found = split->named_parameters();
    for (const auto& one : expected) EXPECT_TRUE(at::equal(one.value(), found[one.key()])) << one.key() << ", stage " << stage;
    EXPECT_EQ(whole->runs, 3 * 4 * 3 * 2);
    EXPECT_EQ(split->runs, is_twice ? 3 * 4 * 3 * 3 : whole->runs) << "once for both passes, or once for each";
  }
}

// Its backward runs the module once more, and a backward of that.
struct RunsABackward : torch::autograd::Function<RunsABackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, torch::nn::LinearImpl* linear) {
    context->save_for_backward({x});
    context->saved_data["linear"] = reinterpret_cast<int64_t>(linear);
    return linear->forward(x);
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<at::Tensor>& gradients) {
    const at::AutoGradMode with_grad(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    auto* const linear = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["linear"].toInt());
    torch::autograd::backward({linear->forward(x)}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

TEST(SplitPasses, ABackwardWithinABackwardIsRefused) {
  const auto message = [](const std::shared_ptr<BlocksImpl>& model) {
    try {
      train(model, config_with({{"gradient_accumulation_steps", 4}}), true, 1);
      return std::string("it was allowed");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return std::string(error.what());
    }
  };
  EXPECT_THAT(message(std::make_shared<BlocksImpl>(/*is_reentrant=*/true)), HasSubstr("leave use_reentrant at false"));
  const auto model = std::make_shared<BlocksImpl>();
  model->last = [&](const at::Tensor& x) { return RunsABackward::apply(x, model->linears[0].get()); };
  EXPECT_THAT(message(model), HasSubstr("got its gradient in the pass that computes the gradients of a stage's inputs alone: a "
                                        "function's backward runs a backward of its own"));
}

}  // namespace
}  // namespace gannet::test
