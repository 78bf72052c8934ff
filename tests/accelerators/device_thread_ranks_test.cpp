// A rank that waits for others in backward is known to be in that call, also where backward runs on a thread of its own.
#include <gtest/gtest.h>

#include "accelerators/apart.h"
#include "comm/ranks.h"
#include "control/watch.h"
#include "engine/models.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    a = register_module("a", torch::nn::Linear(8, 16));
    b = register_module("b", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const Block block = [this](const at::Tensor& z) {
      at::Tensor out = torch::tanh(b(z));
      out.register_hook([this](const at::Tensor&) { inside.push_back(gannet::control::Watch::is_inside()); });
      return out;
    };
    return torch::mse_loss(Apart::apply(torch::tanh(a(x)), block, /*on_thread=*/true), y);
  }
  std::vector<bool> inside;
  torch::nn::Linear a{nullptr}, b{nullptr};
};

RANK_BODY(waits_in_backward) {
  for (const int64_t stage : {1, 3})
    for (const bool is_scaled : {false, true}) {
      Dict config = config_with({{"zero_optimization", Dict{{"stage", stage}, {"stage3_param_persistence_threshold", 0}}}});
      torch::manual_seed(1);
      const auto net = std::make_shared<NetImpl>();
      const auto engine = gannet::initialize(net, {.config = config}).engine;
      for (int64_t step = 0; step < 3; ++step) {
        const auto [x, y] = make_batch(step * 2 + engine->rank(), 4);
        const at::Tensor loss = engine->forward(x, y);
        is_scaled ? engine->scale(loss).backward() : engine->backward(loss);
        expect(!gannet::control::Watch::is_inside(), "the call has ended with the backward");
        expect(engine->step().applied, "applied");
      }
      ranks::same(net->inside.size(), size_t{3}, "hooks");
      for (const bool inside : net->inside) expect(inside, "a node of backward is in the call");
    }
}
TEST(DeviceThreadOnRanks, IsInTheCallThatItsBackwardIs) { ranks::expect_all_succeed(ranks::run_ranks("waits_in_backward", 2)); }

}  // namespace
